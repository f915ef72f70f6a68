//! The kinds of Antrea-native policies on the real kube-apiserver: every case of `e2e/compat/policies.yaml`, transition rules and the
//! columns of kubectl.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::ControlPlane;
use testkit::kubernetes::{Options, program};

const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    kind: String,
    spec: Value,
    /// A part of the message, if the object is refused.
    refused: Option<String>,
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A control plane with the definitions.
fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| {
        let plane = ControlPlane::start(Options { controllers: Vec::new(), ..Options::default() }).unwrap();
        let file = repository("deploy/kubernetes/antrea-crds.yml");
        run(&plane, &["apply", "-f", file.to_str().unwrap()], "").unwrap();
        run(&plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").unwrap();
        // Established definitions are served a moment later.
        let served = || run(&plane, &["get", "tr,acnp,annp,cg,grp,ee"], "").ok();
        testkit::wait::until("the kinds are served", TIMEOUT, served).unwrap();
        plane
    })
}

fn run(plane: &ControlPlane, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut kubectl = Command::new(program("kubectl"));
    kubectl.arg("--kubeconfig").arg(plane.kubeconfig()).args(arguments);
    kubectl.env("HOME", plane.dir()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kubectl.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn object(kind: &str, name: &str, spec: &Value) -> String {
    let version = if kind == "ExternalEntity" { "v1alpha2" } else { "v1beta1" };
    json!({"apiVersion": format!("crd.antrea.io/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
        .to_string()
}

#[test]
#[ignore = "needs make kubernetes"]
fn every_policy_is_accepted_or_refused_as_listed() {
    let text = fs::read_to_string(repository("e2e/compat/policies.yaml")).unwrap();
    let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
    let mut wrong = String::new();
    for Case { case, kind, spec, refused } in &cases {
        let found = run(plane(), &["create", "--dry-run=server", "-f", "-"], &object(kind, "case", spec));
        match (refused, found) {
            (None, Ok(_)) => {}
            (Some(part), Err(message)) if message.contains(part) => {}
            (_, found) => wrong += &format!("{case}: expected {refused:?}, found {found:?}\n"),
        }
    }
    assert!(wrong.is_empty(), "of {} cases, these differ:\n{wrong}", cases.len());
}

#[test]
#[ignore = "needs make kubernetes"]
fn the_priority_of_a_tier_cannot_be_changed() {
    let apply = |spec: Value| run(plane(), &["apply", "-f", "-"], &object("Tier", "fixed", &spec));
    apply(json!({"priority": 30})).unwrap();
    apply(json!({"priority": 30, "description": "other"})).unwrap();
    let error = apply(json!({"priority": 31})).unwrap_err();
    assert!(error.contains("create another Tier"), "{error}");
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_prints_the_columns_of_antrea() {
    let policy = json!({"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": [{"action": "Drop"}]});
    run(plane(), &["create", "-f", "-"], &object("ClusterNetworkPolicy", "columns", &policy)).unwrap();
    let status = r#"{"status": {"desiredNodesRealized": 3, "currentNodesRealized": 2}}"#;
    let patch = ["patch", "acnp", "columns", "--subresource=status", "--type=merge", "-p", status];
    run(plane(), &patch, "").unwrap();
    let lines = |arguments: &[&str]| {
        let text = run(plane(), arguments, "").unwrap();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let policies = lines(&["get", "acnp", "columns"]);
    assert_eq!(policies[0], "NAME TIER PRIORITY DESIRED NODES CURRENT NODES AGE");
    assert!(policies[1].starts_with("columns application 5 3 2 "), "{policies:?}");
    run(plane(), &["create", "-f", "-"], &object("Tier", "columns", &json!({"priority": 40}))).unwrap();
    let tiers = lines(&["get", "tr", "columns"]);
    assert_eq!(tiers[0], "NAME PRIORITY AGE");
    assert!(tiers[1].starts_with("columns 40 "), "{tiers:?}");
}
