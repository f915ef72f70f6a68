//! Which crate may depend on which.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Shared types and codecs; depends on no crate here.
    Leaf,
    /// Decisions: synchronous, deterministic, without I/O.
    Pure,
    /// I/O: sockets, the kernel, the clock.
    Rim,
    /// A program: connects pure crates with the rim.
    Bin,
    /// The cluster on one machine and its API server. The product uses them in tests only.
    Lab,
    /// Benchmarks; no crate depends on them.
    Bench,
    /// Used by tests, as a dev-dependency, and by the lab.
    Test,
}
use Class::{Bench, Bin, Lab, Leaf, Pure, Rim, Test};

const CRATES: &[(Class, &[&str])] = &[
    (Leaf, &["types", "openflow", "ovsdb", "config"]),
    (Pure, &["delta", "selector", "policy", "proxy", "pipeline", "simulator", "node", "simcluster"]),
    (Rim, &["ovs", "host", "k8s", "api", "telemetry", "reconcile"]),
    (Bin, &["antrea-controller", "antrea-agent", "antrea-cni", "antctl"]),
    (Lab, &["antrea-lab", "apiserver", "streaming"]),
    (Bench, &["benches"]),
    (Test, &["testkit", "compat", "oracle"]),
];

/// The classes that a class may depend on, the rule as a sentence, and the fix.
fn rule(class: Class) -> (&'static [Class], &'static str, &'static str) {
    match class {
        Leaf => (&[], "types, openflow, ovsdb and config depend on no crate here", "move the shared type into `types`"),
        Pure => (
            &[Leaf, Pure],
            "pure crates depend on pure crates, types, openflow and ovsdb only",
            "return a value, and let a program pass it to the rim crate",
        ),
        Rim => (
            &[Leaf],
            "rim crates depend on types, openflow and ovsdb only, and never on each other",
            "move the shared type into `types`, or combine the two crates in a program",
        ),
        Bin => (&[Leaf, Pure, Rim, Bin], "testkit is a dev-dependency only", "move it to [dev-dependencies]"),
        Lab => (
            &[Leaf, Pure, Rim, Lab],
            "the lab depends on crates and on testkit, not on programs",
            "start the program, or use the crate behind it",
        ),
        Bench => (
            &[Leaf, Pure, Rim, Lab, Test],
            "benches measure crates, not programs",
            "measure the crate behind the program",
        ),
        Test => (&[], "testkit depends on no crate here", "move the helper into the tests of the crate it is about"),
    }
}

const NO_IO: &str = "it does no I/O and does not block: return a value and let a rim crate apply it";
const NO_CLOCK: &str = "it has no clock: take `now` as an argument";
const NO_RANDOMNESS: &str = "it is deterministic, so that a run can be replayed: take the random value as an argument";

/// Crates that leaf and pure crates may use in tests only; a name covers `name-*` too.
const BANNED: &[(&str, &[&str])] = &[
    (
        NO_IO,
        &["tokio", "async-std", "smol", "futures", "mio", "nix", "libc", "rustix", "socket2", "rtnetlink", "netlink"],
    ),
    (NO_IO, &["hyper", "reqwest", "tonic", "axum", "kube", "tempfile"]),
    (NO_CLOCK, &["chrono", "time", "jiff", "quanta", "coarsetime", "instant", "web-time"]),
    (NO_RANDOMNESS, &["rand", "fastrand", "getrandom", "uuid"]),
];

pub(super) struct Package {
    pub(super) name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// Whether it is a crate of this workspace.
    ours: bool,
    /// Whether it is a dev-dependency.
    dev: bool,
    /// Whether it is enabled by a feature.
    optional: bool,
}

/// The packages in the output of `cargo metadata --no-deps`.
pub(super) fn packages(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value| value.as_array().cloned().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let dependency = |value: &Value| Dependency {
        name: name(value),
        ours: value["path"].is_string(),
        dev: value["kind"] == "dev",
        optional: value["optional"] == true,
    };
    let package = |value: &Value| Package {
        name: name(value),
        dependencies: list(&value["dependencies"]).iter().map(dependency).collect(),
    };
    list(&metadata["packages"]).iter().map(package).collect()
}

/// A complaint for each dependency that the rules do not allow, with the rule and the fix.
pub(super) fn complaints(packages: &[Package]) -> Vec<String> {
    let edges = packages.iter().flat_map(|from| from.dependencies.iter().map(move |to| (from, to)));
    let unknown = packages.iter().filter(|package| class(&package.name).is_none()).map(|package| {
        let fix = "add it to the class it belongs to in `CRATES` (lab/testkit/src/workspace_rules/edges.rs)";
        format!("crate {} is in no class, so its dependencies cannot be checked.\nFix: {fix}.", package.name)
    });
    unknown.chain(edges.filter_map(|(from, to)| bad_edge(from, to))).chain(cni_with_kube(packages)).collect()
}

fn bad_edge(from: &Package, to: &Dependency) -> Option<String> {
    let from_class = class(&from.name)?;
    if from.name == to.name {
        // Tests of a crate may enable one of its features.
        return None;
    }
    let complaint = |rule: &str, fix: &str| {
        let kind = if to.dev { " (dev)" } else { "" };
        Some(format!("{} -> {}{kind}: {rule}.\nFix: {fix}.", from.name, to.name))
    };
    if !to.ours {
        let reason = banned(&to.name).filter(|_| matches!(from_class, Leaf | Pure) && !to.dev)?;
        return complaint(
            &format!("{} is a pure crate, {reason}", from.name),
            "do so, or move it to [dev-dependencies] if only tests use it",
        );
    }
    let (allowed, rule, fix) = rule(from_class);
    match (class(&to.name)?, to.name.as_str()) {
        (Test, _) if (to.dev && from_class != Test) || from_class == Bench => None,
        // A test of the rim may combine it with a pure crate, as a program does.
        (Pure, _) if to.dev && from_class == Rim => None,
        // They start servers, and wait for them, as tests do.
        (Test, "testkit") if from_class == Lab || from.name == "compat" => None,
        // It evaluates the objects themselves.
        (Leaf, "types") if from.name == "oracle" => None,
        (Test, _) => complaint("testkit is a dev-dependency only", "move it to [dev-dependencies]"),
        // Crates that use the Kubernetes API are tested against the embedded one.
        (Lab, _) if to.dev && matches!(from_class, Rim | Bin) => None,
        (Lab, _) if from_class == Bin => {
            complaint("the lab is linked by the lab and by tests only", "move it to [dev-dependencies]")
        }
        (to_class, _) if !allowed.contains(&to_class) => complaint(rule, fix),
        _ => None,
    }
}

/// antrea-cni starts for every Pod, so it links neither kube nor anything that does.
fn cni_with_kube(packages: &[Package]) -> Option<String> {
    let packages: BTreeMap<_, _> = packages.iter().map(|package| (package.name.as_str(), package)).collect();
    let mut paths = vec![vec!["antrea-cni"]];
    while let Some(path) = paths.pop() {
        let linked = packages.get(path.last()?)?.dependencies.iter().filter(|to| !to.dev && !to.optional);
        for to in linked {
            let path: Vec<_> = path.iter().copied().chain([to.name.as_str()]).collect();
            if covers("kube", &to.name) || (to.ours && to.name == "k8s") {
                let rule = "antrea-cni does not link kube: it starts for every Pod";
                return Some(format!("{}: {rule}.\nFix: put it behind a feature.", path.join(" -> ")));
            }
            if to.ours && packages.contains_key(to.name.as_str()) {
                paths.push(path);
            }
        }
    }
    None
}

/// Whether a crate has no clock, threads or I/O.
pub(super) fn is_pure(name: &str) -> bool {
    matches!(class(name), Some(Leaf | Pure))
}

fn class(name: &str) -> Option<Class> {
    CRATES.iter().find(|(_, names)| names.contains(&name)).map(|(class, _)| *class)
}

fn banned(name: &str) -> Option<&'static str> {
    BANNED.iter().find(|(_, names)| names.iter().any(|banned| covers(banned, name))).map(|(reason, _)| *reason)
}

fn covers(banned: &str, name: &str) -> bool {
    name.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests;
