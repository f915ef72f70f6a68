//! The golden scenarios of the product: `scenarios/<area>/<case>/`.
//!
//! `cluster.yaml` and `steps.yaml` are the input; `steps.yaml` may name files of `scenarios/base` that `cluster.yaml` adds to.
//! The other files are what comes of it after each step: `controller.txt` (what the controller sends each Node), `switch.txt`
//! (flows and groups), `host.txt` (routes, neighbours, settings, nftables), `traffic.txt` (what becomes of each probe) and
//! `problems.txt` (what is reported as wrong, if anything is). `make scenarios` writes them.

use std::fs;
use std::path::{Path, PathBuf};

use simcluster::{Outcome, Scenario};

use crate::report;

/// The areas with scenarios of this kind; `pipeline` has golden flows of its own.
const AREAS: [&str; 5] = ["policies", "services", "nodes", "restarts", "outages"];
const INPUTS: [&str; 2] = ["cluster.yaml", "steps.yaml"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn directories(of: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(of)
        .unwrap_or_else(|error| panic!("{}: {error}", of.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn outputs(outcome: &Outcome) -> [(&'static str, &str); 5] {
    [
        ("controller.txt", &outcome.controller),
        ("switch.txt", &outcome.switch),
        ("host.txt", &outcome.host),
        ("traffic.txt", &outcome.traffic),
        ("problems.txt", &outcome.problems),
    ]
}

/// Writes a file; one without content goes.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if !text.is_empty() {
        return fs::write(path, text);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is wrong with a case; nothing if all is as it was written.
fn check(case: &Path, update: bool) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(case.join(name)).map_err(|error| format!("{name}: {error}"));
    let [cluster, steps] = INPUTS.map(read);
    let base = |name: &str| {
        let path = root().join("base").join(format!("{name}.yaml"));
        fs::read_to_string(&path).map_err(|error| simcluster::Error::new(format!("{}: {error}", path.display())))
    };
    let scenario = Scenario::read(&cluster?, &steps?, base).map_err(|error| error.to_string())?;
    let (outcome, end) = scenario.run().map_err(|error| error.to_string())?;
    let mut problems = String::new();
    for (name, text) in outputs(&outcome) {
        if update {
            write(&case.join(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        let expected = read(name).unwrap_or_default();
        if expected != *text {
            problems += &format!("{name} (- as written, + as it is now; `make scenarios` rewrites it)\n");
            problems += &report::difference(&expected, text);
        }
    }
    for (variant, other) in scenario.variants().map_err(|error| error.to_string())? {
        let difference = end.difference(&other);
        if !difference.is_empty() {
            problems += &format!("{variant}: the end is another one\n{difference}");
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn check_area(area: &str) -> usize {
    let update = std::env::var_os("ANTREA_CODEGEN").is_some();
    let cases = directories(&root().join(area));
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let name = case.strip_prefix(root()).unwrap_or(case).display().to_string();
            check(case, update).err().map(|problem| format!("scenarios/{name}: {problem}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    cases.len()
}

#[test]
fn policies() {
    check_area("policies");
}

#[test]
fn services() {
    check_area("services");
}

#[test]
fn nodes() {
    check_area("nodes");
}

#[test]
fn restarts() {
    check_area("restarts");
}

#[test]
fn outages() {
    check_area("outages");
}

#[test]
fn every_directory_is_an_area_with_a_test() {
    let mut expected: Vec<&str> = AREAS.into_iter().chain(["base", "pipeline"]).collect();
    expected.sort_unstable();
    let found: Vec<String> =
        directories(&root()).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_wrong_flow_is_reported_with_the_policy_it_belongs_to() {
    let case = root().join("policies/allow-from-label");
    let right = fs::read_to_string(case.join("switch.txt")).unwrap();
    let wrong = right.replacen("nw_src=10.10.0.", "nw_src=10.10.9.", 1);
    assert_ne!(right, wrong, "the scenario has no flow to be made wrong");
    let report = report::difference(&wrong, &right);
    assert!(report.contains("NetworkPolicy default/"), "{report}");
    assert!(report.contains("== start") && report.contains("-- node"), "{report}");
}
