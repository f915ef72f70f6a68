//! Pods reach each other, the Nodes and the outside; names are resolved.

use serde_json::json;
use testkit::wait::until;

use crate::lab::{Lab, TIMEOUT, script, server};

#[test]
fn pods_reach_pods_on_every_node_and_the_outside_by_both_families() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("net-client", script("node-1", "exec sleep 1000"));
    let targets = ["node-1", "node-2", "node-3"].map(|node| {
        let name = format!("net-{node}");
        api.pod(&name, server(node));
        (name.clone(), api.until_ready(&name))
    });
    api.until_ready("net-client");
    let own = api.until_ready("net-client");
    for (name, addresses) in &targets {
        for (address, mine) in addresses.iter().zip(&own) {
            let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
            let url = |path: &str| format!("http://{host}{path}");
            let get = |path: &str| lab.exec("net-client", &["curl", "-gsS", "--max-time", "5", &url(path)]).unwrap();
            lab.exec("net-client", &["ping", "-n", "-c", "1", "-w", "5", address]).unwrap();
            assert_eq!(&get("/hostname"), name);
            // There is no NAT between Pods.
            assert!(get("/clientip").contains(mine.as_str()), "{name}");
        }
    }
    // Outside, the Node's address is seen.
    for (outside, node) in [("203.0.113.10", "192.168.1.11"), ("[2001:db8:113::a]", "[fd00:192:168:1::b]")] {
        let url = format!("http://{outside}/clientip");
        let seen = lab.exec("net-client", &["curl", "-gsS", "--max-time", "5", &url]).unwrap();
        assert!(seen.starts_with(node), "{seen}");
    }
    // The Node asks its Pod, and the Pod its Node.
    lab.node("node-1", &["ping", "-n", "-c", "1", "-w", "5", &targets[0].1[0]]).unwrap();
    lab.exec("net-client", &["ping", "-n", "-c", "1", "-w", "5", "192.168.1.11"]).unwrap();
}

#[test]
fn the_dns_server_resolves_services_and_nothing_else() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let dns: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(api.client.clone(), "kube-system");
    let list = kube::api::ListParams::default().labels("k8s-app=kube-dns");
    let address = || api.wait(dns.list(&list)).unwrap().items.first()?.status.as_ref()?.pod_ip.clone();
    let address = until("the address of the DNS", TIMEOUT, address).unwrap();

    api.pod("dns-target", server("node-2"));
    let addresses = api.until_ready("dns-target");
    api.wait(api.pods().patch(
        "dns-target",
        &kube::api::PatchParams::default(),
        &kube::api::Patch::Merge(json!({"metadata": {"labels": {"dns": "target"}}})),
    ))
    .unwrap();
    let service = json!({"spec": {"clusterIP": "None", "selector": {"dns": "target"}, "ports": [{"port": 80}]}});
    api.apply("v1", "Service", "dns-headless", service);
    // Without a Service proxy the ClusterIP of the DNS is unreachable, so this Pod uses the address of the DNS Pod.
    let mut spec = script("node-1", "exec sleep 1000");
    spec["dnsPolicy"] = json!("None");
    let search = ["default.svc.cluster.local"];
    spec["dnsConfig"] =
        json!({"nameservers": [address], "searches": search, "options": [{"name": "ndots", "value": "5"}]});
    api.pod("dns-client", spec);
    api.until_ready("dns-client");
    let resolve = |name: &str| lab.exec("dns-client", &["getent", "ahostsv4", name]);
    let known = || resolve("dns-headless").ok().filter(|text| text.starts_with(&addresses[0]));
    until("the Service's name", TIMEOUT, known).unwrap();
    assert!(resolve("kubernetes.default.svc.cluster.local").unwrap().starts_with("10.96.0.1 "));
    assert!(resolve("example.com").is_err());
}

#[test]
fn check_prints_and_saves_the_connectivity_matrix() {
    let lab = Lab::start("check", 2);
    let api = lab.api();
    api.pod("a", server("node-1"));
    api.pod("b", script("node-2", "exec sleep 1000"));
    api.until_ready("a");
    api.until_ready("b");
    let picture = lab.home.path().join("matrix.svg");
    let output = lab.run("check", ["--svg", picture.to_str().unwrap()]);
    let text = crate::lab::output(&output).unwrap();
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    // Pods a and b are the first columns; there is no proxy, so there are no Services.
    let signs: String = row("default/a ").chars().filter(|sign| "·✓½✗-".contains(*sign)).collect();
    assert!(signs.starts_with("·✓") && signs.ends_with('✓'), "{text}");
    assert!(text.contains("service/kubernetes.default"), "{text}");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg "));
}
