//! The rules of this workspace, as tests: which crate may depend on which, what pure crates may use, where versions are
//! written, what every file looks like, where links lead, and the language.
//!
//! Each rule is a function from plain values to complaints, so that its own tests can show it failing; one test per rule
//! runs it over the real workspace.

mod edges;
mod language;
mod links;
mod manifests;
mod purity;
mod source;
mod tidy;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::process::run;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "the rules of the workspace are broken:\n\n{}\n", complaints.join("\n\n"));
}

#[test]
fn every_dependency_goes_in_an_allowed_direction() {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let args = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata = run(Command::new(cargo).args(args).current_dir(root()), None).unwrap();
    let packages = edges::packages(&metadata.parse().unwrap());
    assert!(packages.iter().any(|package| package.name == "testkit"), "the workspace was not found");
    assert_none(&edges::complaints(&packages));
}

/// Path and contents of every file of the repository. New files count before they are added; deleted ones do not count
/// before the deletion is committed.
fn files() -> Vec<(String, Vec<u8>)> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let files = run(Command::new("git").args(args).current_dir(root()), None).unwrap();
    let read = |file: &str| Some((file.to_owned(), fs::read(root().join(file)).ok()?));
    let files: Vec<_> = files.split_terminator('\0').filter_map(read).collect();
    assert!(files.iter().any(|(path, _)| path == "lab/testkit/src/workspace_rules.rs"), "the repository was not found");
    files
}

#[test]
fn every_file_is_tidy() {
    let complaints: Vec<_> = files().iter().flat_map(|(path, contents)| tidy::complaints(path, contents)).collect();
    assert_none(&complaints);
}

#[test]
fn versions_are_in_the_manifest_of_the_workspace_only() {
    let manifests = files().into_iter().filter(|(path, _)| {
        path.ends_with("/Cargo.toml") && ["crates/", "bins/", "lab/"].iter().any(|top| path.starts_with(top))
    });
    let complaints: Vec<_> =
        manifests.flat_map(|(path, text)| manifests::complaints(&path, &String::from_utf8_lossy(&text))).collect();
    assert_none(&complaints);
}

#[test]
fn pure_crates_use_no_clock_threads_or_io_of_std() {
    let of_pure = files().into_iter().filter(|(path, _)| {
        path.strip_prefix("crates/").and_then(|path| path.split('/').next()).is_some_and(edges::is_pure)
    });
    let complaints: Vec<_> =
        of_pure.flat_map(|(path, text)| purity::complaints(&path, &String::from_utf8_lossy(&text))).collect();
    assert_none(&complaints);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = files().into_iter().filter(|(path, _)| path.ends_with(".md"));
    let documents = documents.map(|(path, text)| (path, String::from_utf8_lossy(&text).into_owned())).collect();
    let complaints = |path: &String| links::complaints(path, &documents, |path| root().join(path).exists());
    assert_none(&documents.keys().flat_map(complaints).collect::<Vec<_>>());
}

#[test]
fn the_language_stays_within_its_budget() {
    let path = root().join("lab/testkit/src/workspace_rules/language-budget.txt");
    let budget = language::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    let read = files().into_iter().filter(|(path, _)| language::is_read(path));
    let findings: Vec<_> =
        read.flat_map(|(path, contents)| language::findings(&path, &String::from_utf8_lossy(&contents))).collect();
    if env::var_os("ANTREA_CODEGEN").is_some() {
        fs::write(&path, language::render(&language::lowered(&budget, &findings))).unwrap();
        return;
    }
    assert_none(&language::complaints(&budget, &findings));
}
