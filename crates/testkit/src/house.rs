//! The rules of this house, as tests: which crate may depend on which, and what every file has to look like.
//!
//! Each rule is a function from plain values to complaints, so that it can be shown to fail; one test a rule runs it
//! over the real workspace.

mod edges;
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
    assert!(complaints.is_empty(), "the house rules are broken:\n\n{}\n", complaints.join("\n\n"));
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

#[test]
fn every_file_is_tidy() {
    // New files count before they are added, and deleted ones no more before the deletion is committed.
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let files = run(Command::new("git").args(args).current_dir(root()), None).unwrap();
    let files: Vec<_> = files.split_terminator('\0').collect();
    assert!(files.contains(&"crates/testkit/src/house.rs"), "the repository was not found");
    let mut complaints = Vec::new();
    for file in files {
        if let Ok(contents) = fs::read(root().join(file)) {
            complaints.extend(tidy::complaints(file, &contents));
        }
    }
    assert_none(&complaints);
}
