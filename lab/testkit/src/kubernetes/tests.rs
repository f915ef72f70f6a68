use std::path::Path;
use std::thread;

use super::*;
use crate::wait::until;

#[test]
fn without_the_programs_the_error_says_what_to_run() {
    if !ControlPlane::installed() {
        let error = ControlPlane::start(Options::default()).unwrap_err();
        assert!(error.to_string().ends_with("run `make kubernetes`"), "{error}");
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn a_control_plane_is_of_the_pinned_version_schedules_and_ends_with_its_owner() {
    let plane = ControlPlane::start(Options { scheduler: true, ..Options::default() }).unwrap();
    let version: serde_json::Value = plane.kubectl(["version", "-o", "json"]).unwrap().parse().unwrap();
    for side in ["clientVersion", "serverVersion"] {
        assert_eq!(version[side]["gitVersion"], programs::version(), "{version}");
    }
    let memory = plane.memory().unwrap();
    println!("started in {:.1} s, holds {memory:?}", plane.started_in().as_secs_f64());
    assert_eq!(
        memory.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    );
    let manifests = r#"
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
         "status": {"allocatable": {"pods": "10"}, "capacity": {"pods": "10"}}}
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"},
         "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}]}}"#;
    plane.kubectl_stdin(["create", "-f", "-"], manifests).unwrap();
    plane.kubectl(["wait", "pod/p1", "--for=jsonpath={.spec.nodeName}=n1", "--timeout=60s"]).unwrap();

    let (dir, address) = (plane.dir().to_owned(), plane.address);
    drop(plane);
    assert!(!dir.exists() && !Network(None).is_listening(address));
}

#[test]
#[ignore = "needs make kubernetes"]
fn controllers_give_nodes_their_pod_cidrs_and_services_their_slices() {
    let plane = ControlPlane::shared().unwrap();
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}"#;
    plane.kubectl_stdin(["create", "-f", "-"], node).unwrap();
    plane.kubectl(["create", "service", "clusterip", "web", "--tcp=80"]).unwrap();
    until("a Pod CIDR", START_TIMEOUT, || {
        let cidr = plane.kubectl(["get", "node", "n1", "-o", "jsonpath={.spec.podCIDR}"]).unwrap();
        (cidr == "10.244.0.0/24").then_some(())
    })
    .unwrap();
    until("an EndpointSlice", START_TIMEOUT, || {
        let slices = plane.kubectl(["get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "name"]);
        slices.unwrap().starts_with("endpointslice").then_some(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs make kubernetes"]
fn rights_are_checked_and_service_accounts_have_tokens() {
    let plane = ControlPlane::shared().unwrap();
    let can = |whom: &[&str]| {
        let output = plane.kubectl_command().args(["auth", "can-i", "create", "pods"]).args(whom).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(can(&["--as=system:serviceaccount:default:default"]), "no\n");
    assert_eq!(can(&["--as=jane", "--as-group=system:masters"]), "yes\n");
    let token = plane.kubectl(["create", "token", "default"]).unwrap();
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

#[test]
#[ignore = "needs make kubernetes"]
fn two_control_planes_do_not_meet() {
    let start = || ControlPlane::start(Options { controllers: Vec::new(), ..Options::default() }).unwrap();
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(start);
        (start(), one.join().unwrap())
    });
    one.kubectl(["create", "namespace", "mine"]).unwrap();
    one.compact().unwrap();
    assert!(!other.kubectl(["get", "namespaces"]).unwrap().contains("mine"));
    assert!(Path::new(&program("kube-proxy")).is_file());
}
