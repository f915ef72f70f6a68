use serde_json::json;

use super::*;

/// Complaints about an invented workspace. An edge is `from -> to`, followed by `(dev)`, `(build)` or `(optional)`.
fn check(edges: &[&str]) -> Vec<String> {
    let mut packages: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for edge in edges {
        let (from, to) = edge.split_once(" -> ").unwrap();
        let (to, flag) = to.split_once(' ').unwrap_or((to, ""));
        let ours = class(to).is_some() || to == "newcomer";
        let kind = ["dev", "build"].into_iter().find(|kind| flag.contains(kind));
        packages.entry(from).or_default().push(json!({
            "name": to,
            "kind": kind,
            "path": ours.then_some("somewhere"),
            "optional": flag.contains("optional"),
        }));
        if ours {
            packages.entry(to).or_default();
        }
    }
    let packages: Vec<_> = packages
        .into_iter()
        .map(|(name, dependencies)| json!({ "name": name, "dependencies": dependencies }))
        .collect();
    complaints(&super::packages(&json!({ "packages": packages })))
}

#[track_caller]
fn assert_bad(edge: &str, rule: &str) {
    let complaints = check(&[edge]);
    assert_eq!(complaints.len(), 1, "{edge}: {complaints:?}");
    assert!(complaints[0].starts_with(edge.trim_end_matches(" (build)")), "{edge}: {complaints:?}");
    assert!(complaints[0].contains(rule), "{edge}: {complaints:?}");
    assert!(complaints[0].contains("\nFix: "), "{edge}: {complaints:?}");
}

#[test]
fn dependencies_of_the_architecture_are_allowed() {
    let complaints = check(&[
        "node -> pipeline",
        "node -> policy",
        "node -> types",
        "pipeline -> openflow",
        "pipeline -> rustc-hash",
        "pipeline -> proptest (dev)",
        "pipeline -> rand (dev)",
        "pipeline -> testkit (dev)",
        "openflow -> testkit (dev)",
        "ovs -> openflow",
        "ovs -> ovsdb",
        "ovs -> tokio",
        "ovs -> testkit (dev)",
        "ovs -> delta (dev)",
        "openflow -> openflow (dev)",
        "benches -> ovs",
        "benches -> delta",
        "benches -> testkit",
        "k8s -> kube",
        "k8s -> apiserver (dev)",
        "testkit -> nix",
        "compat -> testkit",
        "apiserver -> compat (dev)",
        "antrea-agent -> node",
        "antrea-agent -> ovs",
        "antrea-agent -> testkit (dev)",
        "antrea-agent -> apiserver (dev)",
        "antrea-lab -> apiserver",
        "antrea-lab -> testkit",
        "antrea-lab -> oracle (dev)",
        "benches -> apiserver",
        "antrea-cni -> api",
        "antrea-cni -> tokio",
        "api -> kube-core (optional)",
    ]);
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn leaves_depend_on_no_crate_here() {
    let rule = "types, openflow, ovsdb and config depend on no crate here";
    for edge in ["types -> openflow", "openflow -> types", "ovsdb -> delta", "types -> ovs", "openflow -> types (dev)"]
    {
        assert_bad(edge, rule);
    }
}

#[test]
fn pure_crates_do_not_depend_on_the_rim() {
    for edge in ["pipeline -> host", "node -> ovs", "policy -> k8s", "proxy -> antctl", "simulator -> ovs (dev)"] {
        assert_bad(edge, "pure crates depend on pure crates");
    }
    assert_bad("policy -> apiserver (dev)", "pure crates depend on pure crates");
}

#[test]
fn rim_crates_depend_neither_on_each_other_nor_on_pure_crates() {
    for edge in ["ovs -> host", "k8s -> policy", "k8s -> apiserver", "telemetry -> antctl", "ovs -> host (dev)"] {
        assert_bad(edge, "rim crates depend on types, openflow and ovsdb only");
    }
}

#[test]
fn testkit_is_a_dev_dependency_and_depends_on_no_crate_here() {
    for edge in [
        "ovs -> testkit",
        "apiserver -> compat",
        "testkit -> compat (dev)",
        "node -> testkit (build)",
        "antrea-agent -> testkit",
    ] {
        assert_bad(edge, "testkit is a dev-dependency only");
    }
    for edge in ["testkit -> types", "testkit -> ovs", "testkit -> openflow (dev)"] {
        assert_bad(edge, "testkit depends on no crate here");
    }
}

#[test]
fn the_lab_is_not_shipped_and_links_no_program() {
    assert_bad("antrea-agent -> apiserver", "linked by the lab and by tests only");
    assert_bad("antctl -> antrea-lab", "linked by the lab and by tests only");
    assert_bad("antrea-lab -> antrea-agent", "the lab depends on crates and on testkit, not on programs");
    assert_bad("benches -> antrea-agent", "benches measure crates, not programs");
}

#[test]
fn pure_crates_have_no_io_no_clock_and_no_randomness() {
    for edge in ["node -> tokio", "node -> tokio-util", "policy -> nix", "openflow -> libc", "types -> kube-core"] {
        assert_bad(edge, "does no I/O");
    }
    for edge in ["node -> chrono", "delta -> time"] {
        assert_bad(edge, "has no clock");
    }
    for edge in ["proxy -> rand", "selector -> uuid", "proxy -> rand (build)"] {
        assert_bad(edge, "is deterministic");
    }
    assert_eq!(check(&["delta -> timely", "delta -> randomly"]), [""; 0], "only whole words are banned");
}

#[test]
fn the_cni_plugin_does_not_link_kube() {
    for edges in [&["antrea-cni -> k8s"][..], &["antrea-cni -> kube"], &["antrea-cni -> api", "api -> kube-core"]] {
        let complaints = check(edges);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("antrea-cni does not link kube"), "{complaints:?}");
    }
    assert!(check(&["antrea-cni -> api", "api -> kube-core"])[0].starts_with("antrea-cni -> api -> kube-core: "));
}

#[test]
fn a_crate_without_a_class_is_a_complaint() {
    let complaints = check(&["antrea-agent -> newcomer", "newcomer -> tokio"]);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("crate newcomer is in no class"), "{complaints:?}");
    assert!(complaints[0].contains("add it to the class it belongs to in `CRATES`"), "{complaints:?}");
}
