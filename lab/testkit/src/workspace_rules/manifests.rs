//! Versions are written in the manifest of the workspace, and nowhere else.

/// A complaint for each dependency in the manifest of a crate that has a version or a path of its own.
pub(super) fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut in_dependencies = false;
    let mut complaints = Vec::new();
    for line in text.lines().map(str::trim) {
        let complaint = |what: &str| {
            let fix = "put the version into [workspace.dependencies] and write `workspace = true` here, on one line";
            format!("{path}: {what} does not come from the workspace.\nFix: {fix}.")
        };
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies = section.ends_with("dependencies");
            if section.contains("dependencies.") {
                complaints.push(complaint(&format!("[{section}]")));
            }
        } else if in_dependencies && !line.is_empty() && !line.starts_with('#') && !line.contains("workspace = true") {
            complaints.push(complaint(&format!("`{line}`")));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        complaints("crates/a/Cargo.toml", text).join("\n")
    }

    #[test]
    fn versions_and_paths_are_inherited() {
        let good = "[package]\nversion.workspace = true\n[dependencies]\n# why\nb.workspace = true\n\
                    c = { workspace = true, features = [\"d\"] }\n[[bin]]\nname = \"a\"\n";
        assert_eq!(check(good), "");
        for bad in ["b = \"1\"", "b = { version = \"1\" }", "b = { path = \"../b\" }"] {
            for section in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"]
            {
                let complaint = check(&format!("[{section}]\n{bad}\n"));
                assert!(complaint.starts_with(&format!("crates/a/Cargo.toml: `{bad}`")), "{complaint}");
            }
        }
        assert!(check("[dependencies.b]\nversion = \"1\"\n").contains("[dependencies.b]"));
    }
}
