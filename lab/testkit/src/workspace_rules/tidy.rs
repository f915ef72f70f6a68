//! Rules for every file of the repository: length, name, crate documentation, no paths of one machine.

/// The maximum length of a file that is not generated. Usual are 100 to 300 lines.
const LONGEST_FILE: usize = 1000;

/// The parts of the `//!` of every library.
const CRATE_DOCS: [&str; 3] = ["Role", "Invariants", "Not here"];

/// Home directories of development machines. In two parts, because this file is checked too.
const MACHINE_PATHS: [(&str, &str); 2] = [("/work", "/"), ("/root", "/")];

pub(super) fn complaints(path: &str, contents: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(contents);
    [too_long(path, &text), mod_rs(path), undocumented(path, &text), machine_path(&text)]
        .into_iter()
        .flatten()
        .map(|complaint| format!("{path}: {complaint}"))
        .collect()
}

fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let generated = text.lines().take(5).any(|line| line.contains("@generated"));
    let bad = path.ends_with(".rs") && lines > LONGEST_FILE && !generated;
    bad.then(|| {
        format!("{lines} lines, the limit is {LONGEST_FILE}.\nFix: split it into modules with one subject each.")
    })
}

fn mod_rs(path: &str) -> Option<String> {
    let bad = path == "mod.rs" || path.ends_with("/mod.rs");
    bad.then(|| "modules are `foo.rs` + `foo/`.\nFix: name the file after its directory, one level up.".into())
}

fn undocumented(path: &str, text: &str) -> Option<String> {
    let docs: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let docs = docs.join("\n");
    let missing: Vec<_> = if path.ends_with("/src/lib.rs") {
        CRATE_DOCS.into_iter().filter(|part| !docs.contains(&format!("*{part}"))).collect()
    } else if path.ends_with("/src/main.rs") && docs.is_empty() {
        vec!["a description"]
    } else {
        vec![]
    };
    let bad = !missing.is_empty();
    bad.then(|| format!("the `//!` at the top lacks: {}.\nFix: see any other crate here.", missing.join(", ")))
}

fn machine_path(text: &str) -> Option<String> {
    // After a name it is the end of another path.
    let absolute = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "_-.~}*".contains(c));
    for (number, line) in text.lines().enumerate() {
        for (directory, slash) in MACHINE_PATHS {
            let path = format!("{directory}{slash}");
            if line.match_indices(&path).any(|(at, _)| absolute(&line[..at])) {
                let fix = "a path relative to the repository, a temporary directory, or an invented one";
                return Some(format!("line {} has a path of one machine, {path}.\nFix: write {fix}.", number + 1));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(path: &str, text: &str) -> String {
        complaints(path, text.as_bytes()).join("\n")
    }

    #[test]
    fn a_long_file_is_refused_unless_it_is_generated() {
        let long = "//\n".repeat(1001);
        assert!(complaint("crates/a/src/b.rs", &long).starts_with("crates/a/src/b.rs: 1001 lines"));
        assert_eq!(complaint("crates/a/src/b.rs", &"//\n".repeat(1000)), "");
        assert_eq!(complaint("crates/a/src/b.rs", &format!("// @generated\n{long}")), "");
        assert_eq!(complaint("scenarios/a/flows.txt", &long), "");
    }

    #[test]
    fn mod_rs_is_refused() {
        assert!(complaint("crates/a/src/b/mod.rs", "").contains("`foo.rs` + `foo/`"));
        assert_eq!(complaint("crates/a/src/kmod.rs", ""), "");
    }

    #[test]
    fn a_library_documents_role_invariants_and_what_is_not_here() {
        let whole = "//! A crate.\n//!\n//! *Role.* a\n//!\n//! *Invariants.* b\n//!\n//! *Not here.* c\n";
        assert_eq!(complaint("crates/a/src/lib.rs", whole), "");
        for (part, all_others) in [("Role", "Invariants"), ("Invariants", "Not here"), ("Not here", "Role")] {
            let docs = whole.replace(part, "Something");
            let complaint = complaint("crates/a/src/lib.rs", &docs);
            assert!(complaint.contains(&format!("lacks: {part}.")), "{complaint}");
            assert!(!complaint.contains(all_others), "{complaint}");
        }
        let hidden = format!("use x;\n{whole}");
        assert!(complaint("crates/a/src/lib.rs", &hidden).contains("Role, Invariants, Not here"));
        assert!(complaint("bins/a/src/main.rs", "fn main() {}").contains("a description"));
        assert_eq!(complaint("bins/a/src/main.rs", "//! The agent.\nfn main() {}"), "");
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        for (directory, slash) in MACHINE_PATHS {
            for start in ["", " ", "=", "\"", "(", "file://"] {
                let text = format!("first line\n{start}{directory}{slash}src");
                assert!(complaint("README.md", &text).contains("line 2 has a path of one machine"), "{text}");
            }
            for start in ["target", "~", "$HOME", "${HOME}", "."] {
                assert_eq!(complaint("README.md", &format!("{start}{directory}{slash}src")), "");
            }
            assert_eq!(complaint("README.md", &format!("{directory}space{slash}src")), "");
        }
    }
}
