//! Leaf and pure crates use nothing of `std` with a clock, threads or I/O. (`edges` bans crates that have these.)
//!
//! Every use of such a module begins with a path from `std`, so it is enough to read the paths. Tests are exempt: they read
//! files and the environment.

use super::source::{Kind, pieces};

/// What is banned, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("env", "take the value as an argument"),
    ("fs", "take the contents as an argument, or return what to write"),
    ("io::stderr", "return a value and let the program print it"),
    ("io::stdin", "take the input as an argument"),
    ("io::stdout", "return a value and let the program print it"),
    ("net::TcpListener", "return a value and let a crate of the rim do the I/O"),
    ("net::TcpStream", "return a value and let a crate of the rim do the I/O"),
    ("net::UdpSocket", "return a value and let a crate of the rim do the I/O"),
    ("os", "return a value and let a crate of the rim do the I/O"),
    ("process", "return a value and let a crate of the rim do the I/O"),
    ("thread", "leave concurrency to the program"),
    ("time::Instant", "take `now` as an argument"),
    ("time::SystemTime", "take `now` as an argument"),
    ("time::UNIX_EPOCH", "take `now` as an argument"),
    ("*", "name what is used"),
];

/// A complaint for each banned path in a source file of a pure crate.
pub(super) fn complaints(path: &str, text: &str) -> Vec<String> {
    // A test module of its own file is `tests.rs`, `tests/...` or `..._tests.rs`.
    let test = path.contains("/tests/") || path.ends_with("tests.rs");
    if test || !path.contains("/src/") || !path.ends_with(".rs") {
        return vec![];
    }
    let code: String = pieces(text).iter().filter(|piece| piece.kind == Kind::Code).map(|piece| piece.text).collect();
    let used = paths(without_tests(&code));
    let find = |used: &str| BANNED.iter().find(|(banned, _)| covers(banned, used));
    let complaint = |used: &String| {
        find(used).map(|(banned, fix)| format!("{path}: a pure crate uses std::{banned}.\nFix: {fix}."))
    };
    used.iter().filter_map(complaint).collect()
}

/// The code before an inline test module, which comes last (clippy: `items_after_test_module`).
fn without_tests(code: &str) -> &str {
    let inline = |at: &usize| code[*at..].lines().nth(1).is_some_and(|line| line.trim_end().ends_with('{'));
    let start = code.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at).find(inline);
    &code[..start.unwrap_or(code.len())]
}

fn covers(banned: &str, used: &str) -> bool {
    used.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path from `std`, without `std::` and with the groups of `use` spelt out.
fn paths(code: &str) -> Vec<String> {
    let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ::", "::").replace(":: ", "::");
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = code.match_indices("std::").filter(|(at, _)| !code[..*at].ends_with(word));
    let mut paths = Vec::new();
    for (at, std) in starts {
        expand("", &code[at + std.len()..], &mut paths);
    }
    if code.contains("use std as") || code.contains("use std;") || code.contains("extern crate std") {
        paths.push("*".into());
    }
    paths
}

/// Adds the paths of the use tree that `text` begins with; returns what comes after it.
fn expand<'a>(prefix: &str, text: &'a str, paths: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(prefix, rest, paths).trim_start();
            // ` as name` and anything else that is no part of the path.
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            match rest[end..].strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest[end..].strip_prefix('}').unwrap_or_default(),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (segment, rest) = text.split_at(end);
    let path = if prefix.is_empty() { segment.to_owned() } else { format!("{prefix}::{segment}") };
    match rest.strip_prefix("::") {
        Some(more) => expand(&path, more, paths),
        None => {
            paths.push(path);
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str) -> String {
        complaints("crates/node/src/a.rs", code).join("\n")
    }

    #[test]
    fn clock_threads_and_io_of_std_are_found_however_they_are_written() {
        for (code, banned) in [
            ("use std::fs;", "fs"),
            ("use std::{collections::BTreeMap, env};", "env"),
            ("use std::{\n    fmt,\n    time::{Duration, Instant as Now},\n};", "time::Instant"),
            ("fn f() { let now = std::time::SystemTime::now(); }", "time::SystemTime"),
            ("fn f() { ::std :: thread::spawn(f); }", "thread"),
            ("use std::process::{self, Command};", "process"),
            ("use std::os::unix::net::UnixStream;", "os"),
            ("use std::net::{IpAddr, TcpStream};", "net::TcpStream"),
            ("use std as s;", "*"),
            ("use std::*;", "*"),
            ("#[cfg(test)]\nmod tests;\nuse std::fs;", "fs"),
        ] {
            assert!(check(code).contains(&format!("uses std::{banned}.\nFix: ")), "{code}: {}", check(code));
        }
    }

    #[test]
    fn values_comments_texts_and_tests_are_fine() {
        for code in [
            "use std::time::Duration;\nuse std::net::{IpAddr, Ipv4Addr};\nuse std::{fmt, iter};",
            "// std::fs\nconst A: &str = \"std::env\";",
            "use mystd::fs;",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
            "const A: &str = env!(\"CARGO_PKG_NAME\");",
        ] {
            assert_eq!(check(code), "");
        }
        assert_eq!(complaints("crates/node/src/brain/tests.rs", "use std::env;"), Vec::<String>::new());
        assert_eq!(complaints("crates/node/tests/it/main.rs", "use std::env;"), Vec::<String>::new());
    }
}
