use std::sync::OnceLock;
use std::{env, fs};

use compat::kubectl::{self, Kubectl};
use compat::{Credential, Server, areas, check, record, run};
use testkit::ControlPlane;
use testkit::kubernetes::{Options, program};

/// Controllers that change Nodes and Pods by time would make two runs differ.
const CONTROLLERS: [&str; 6] = [
    "*",
    "-node-lifecycle-controller",
    "-node-ipam-controller",
    "-taint-eviction-controller",
    "-pod-garbage-collector-controller",
    "-ttl-controller",
];

/// Leases are read from etcd, so that the server has no older revisions than etcd.
const FLAG: &str = "--watch-cache-sizes=leases.coordination.k8s.io#0";

fn options() -> Options {
    let (controllers, apiserver_flags) = (CONTROLLERS.map(str::to_owned).into(), vec![FLAG.into()]);
    Options { controllers, apiserver_flags, pod_cidrs: String::new(), ..Options::default() }
}

fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| ControlPlane::start(options()).unwrap())
}

/// A control plane for the dual-stack area.
fn dual_stack() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    let service_cidrs = "10.96.0.0/16,fd00:96::/112".to_owned();
    PLANE.get_or_init(|| ControlPlane::start(Options { service_cidrs, ..options() }).unwrap())
}

fn server(plane: &'static ControlPlane) -> Server {
    let (certificate, key) = plane.admin().unwrap();
    let admin = Credential::Certificate { certificate, key };
    let server = Server::new(&plane.url(), &plane.ca().unwrap(), admin).unwrap();
    server.compacted_by(|| plane.compact())
}

/// Whether to record the answers instead of comparing them.
fn recording() -> bool {
    env::var_os("RECORD").is_some()
}

/// Whether to run an area: all, or those that `AREAS` names.
fn wanted(name: &str) -> bool {
    env::var("AREAS").map_or(true, |areas| areas.split(',').any(|area| area == name))
}

#[test]
#[ignore = "needs make kubernetes"]
fn it_answers_every_request_as_recorded() {
    let mut reports = String::new();
    for area in areas().unwrap().iter().filter(|area| wanted(&area.name)) {
        let server = server(if area.name == "dualstack" { dual_stack() } else { plane() });
        if recording() {
            record(area, &run(area, &server)).unwrap();
        } else {
            reports += &check(area, &server, &[]).unwrap().to_string();
        }
    }
    assert!(reports.is_empty(), "{reports}");
}

#[test]
#[ignore = "needs make kubernetes"]
fn kubectl_prints_the_recorded_output() {
    let home = plane().dir().join("home");
    fs::create_dir(&home).unwrap();
    let kubectl = Kubectl { program: program("kubectl"), kubeconfig: plane().kubeconfig(), home };
    let mut reports = String::new();
    for session in kubectl::sessions().unwrap().iter().filter(|session| wanted(&session.name)) {
        if recording() {
            kubectl::record(session, &kubectl::run(session, &kubectl).unwrap()).unwrap();
        } else {
            reports += &kubectl::check(session, &kubectl, &[]).unwrap().to_string();
        }
    }
    assert!(reports.is_empty(), "{reports}");
}
