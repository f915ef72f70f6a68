//! Every recorded request: compares the answers with those of the real server.

use std::fs;
use std::path::Path;

use apiserver::{ApiServer, Options};
use base64::Engine as _;
use compat::{Allowance, Credential, Report, Server, allowances, areas, check};

/// Checks an area against a server of its own. Differences must be listed in `tests/accepted/<area>.yaml`, with a
/// reason.
async fn area(name: &'static str) {
    // Like the real server when it was recorded: without the controllers of Nodes.
    let families = ["10.96.0.0/16", "fd00:96::/112"].into_iter().take(if name == "dualstack" { 2 } else { 1 });
    let service_cidrs = families.map(|range| range.parse().unwrap()).collect();
    let options = Options { service_cidrs, ready_nodes: false, ..Options::default() };
    let api = ApiServer::start(options).await.unwrap();
    let (report, accepted) = tokio::task::spawn_blocking(move || {
        let admin = certificate(&api.kubeconfig("admin", Some("system:masters")).unwrap());
        let (url, ca) = (api.url(), api.ca_pem().to_owned());
        let server = Server::new(&url, &ca, admin).unwrap().compacted_by(move || {
            api.compact();
            Ok(())
        });
        let area = areas().unwrap().into_iter().find(|area| area.name == name).unwrap();
        let accepted = accepted(name);
        (check(&area, &server, &accepted).unwrap(), accepted)
    })
    .await
    .unwrap();
    verdict(name, &report, &accepted);
}

/// Fails for a difference that is not accepted, and for an accepted one that no longer exists.
pub(crate) fn verdict(list: &str, report: &Report, accepted: &[Allowance]) {
    assert!(report.differences.is_empty(), "of {} steps, these differ (real | embedded):\n{report}", report.steps);
    let unused: Vec<_> = report.unused(accepted).iter().map(|one| format!("{} {}\n", one.steps, one.field)).collect();
    assert!(unused.is_empty(), "no longer different, remove it from tests/accepted/{list}.yaml:\n{}", unused.concat());
}

/// The accepted differences of an area or a session.
pub(crate) fn accepted(area: &str) -> Vec<Allowance> {
    let file = directory().join(format!("{area}.yaml"));
    if file.exists() { allowances(&file).unwrap() } else { Vec::new() }
}

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/accepted"))
}

/// The credential in a kubeconfig.
fn certificate(kubeconfig: &str) -> Credential {
    let field = |name: &str| {
        let value = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(value.trim()).unwrap()).unwrap()
    };
    Credential::Certificate { certificate: field("client-certificate-data:"), key: field("client-key-data:") }
}

macro_rules! areas {
    ($($name:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            area(stringify!($name)).await;
        })*

        #[test]
        fn every_area_and_every_list_is_tested() {
            let tested = [$(stringify!($name)),*];
            let all: Vec<_> = areas().unwrap().into_iter().map(|area| area.name).collect();
            assert_eq!(all, tested);
            for list in fs::read_dir(directory()).unwrap() {
                let list = list.unwrap().path();
                let area = list.file_stem().unwrap().to_str().unwrap();
                let session = area.strip_prefix("kubectl-");
                assert!(tested.contains(&area) || session.is_some(), "{} is about no area", list.display());
            }
        }
    };
}

areas!(apply auth crds deletion discovery dualstack endpointslices errors expiry lists namespaces networkpolicies nodes objects patch
    pods services smaller tables watch workloads);
