//! Which crate may depend on which.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Vocabulary and codecs.
    Leaf,
    /// Decides: synchronous and deterministic.
    Pure,
    /// Touches a socket, the kernel, the clock.
    Rim,
    /// Wires the others together.
    Bin,
    /// Measures; linked by nobody.
    Bench,
    /// Helps tests.
    Test,
}
use Class::{Bench, Bin, Leaf, Pure, Rim, Test};

const CRATES: &[(Class, &[&str])] = &[
    (Leaf, &["types", "openflow", "ovsdb", "config"]),
    (Pure, &["delta", "selector", "policy", "proxy", "pipeline", "simulator", "node"]),
    (Rim, &["ovs", "host", "k8s", "api", "telemetry", "apiserver"]),
    (Bin, &["antrea-controller", "antrea-agent", "antrea-cni", "antctl", "antrea-lab"]),
    (Bench, &["benches"]),
    (Test, &["testkit", "compat", "oracle"]),
];

/// What a class may depend on, the rule in words, and what to do instead.
fn rule(class: Class) -> (&'static [Class], &'static str, &'static str) {
    match class {
        Leaf => (&[], "types, openflow, ovsdb and config depend on no crate here", "move what both need into `types`"),
        Pure => (
            &[Leaf, Pure],
            "pure crates depend on pure crates, types, openflow and ovsdb only",
            "describe the effect as a value, and let a bin hand it to the rim crate",
        ),
        Rim => (
            &[Leaf],
            "rim crates depend on types, openflow and ovsdb only, and never on each other",
            "move the shared type into `types`, or join the two in a bin",
        ),
        Bin => (&[Leaf, Pure, Rim, Bin], "testkit is a dev-dependency only", "move it to [dev-dependencies]"),
        Bench => {
            (&[Leaf, Pure, Rim, Test], "benches measure crates, not programs", "measure the crate behind the program")
        }
        Test => (&[], "testkit depends on no crate here", "move the helper into the tests of the crate it is about"),
    }
}

const NO_IO: &str = "it does no I/O and does not wait: return a value and let a rim crate carry it out";
const NO_CLOCK: &str = "it has no clock: take `now` as an argument";
const NO_DICE: &str = "it is deterministic, so that a run can be replayed: take the random value as an input";

/// What leaf and pure crates may not depend on, except in their tests; a name covers `name-*` too.
const BANNED: &[(&str, &[&str])] = &[
    (
        NO_IO,
        &["tokio", "async-std", "smol", "futures", "mio", "nix", "libc", "rustix", "socket2", "rtnetlink", "netlink"],
    ),
    (NO_IO, &["hyper", "reqwest", "tonic", "axum", "kube", "tempfile"]),
    (NO_CLOCK, &["chrono", "time", "jiff", "quanta", "coarsetime", "instant", "web-time"]),
    (NO_DICE, &["rand", "fastrand", "getrandom", "uuid"]),
];

pub(super) struct Package {
    pub(super) name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// From this workspace.
    ours: bool,
    /// For tests only.
    dev: bool,
    /// Behind a feature.
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

/// Every edge that the rules do not allow, with the rule and the fix.
pub(super) fn complaints(packages: &[Package]) -> Vec<String> {
    let edges = packages.iter().flat_map(|from| from.dependencies.iter().map(move |to| (from, to)));
    let unknown = packages.iter().filter(|package| class(&package.name).is_none()).map(|package| {
        let fix = "add it to the class it belongs to in `CRATES` (crates/testkit/src/house/edges.rs)";
        format!("crate {} is in no class, so nobody knows what it may depend on.\nFix: {fix}.", package.name)
    });
    unknown.chain(edges.filter_map(|(from, to)| bad_edge(from, to))).chain(cni_with_kube(packages)).collect()
}

fn bad_edge(from: &Package, to: &Dependency) -> Option<String> {
    let from_class = class(&from.name)?;
    if from.name == to.name {
        // A crate's tests may ask it for a feature.
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
            "do that, or move it to [dev-dependencies] if only tests use it",
        );
    }
    let (allowed, rule, fix) = rule(from_class);
    match (class(&to.name)?, to.name.as_str()) {
        (Test, _) if (to.dev && from_class != Test) || from_class == Bench => None,
        // What a bin joins, a test of the rim may join: decisions against the real thing.
        (Pure, _) if to.dev && from_class == Rim => None,
        // It sends requests to servers which others start, and waits as all tests do.
        (Test, "testkit") if from.name == "compat" => None,
        // It judges the objects themselves.
        (Leaf, "types") if from.name == "oracle" => None,
        (Test, _) => complaint("testkit is a dev-dependency only", "move it to [dev-dependencies]"),
        // The embedded Kubernetes API: whoever talks to Kubernetes is tested against it.
        (_, "apiserver") if to.dev && matches!(from_class, Rim | Bin) => None,
        (_, "apiserver") if from_class == Bin && from.name != "antrea-lab" => {
            complaint("apiserver is linked by antrea-lab and by tests only", "move it to [dev-dependencies]")
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
