//! Services of every kind in a lab, with packets from every kind of client.

mod churn;
mod conformance;
mod life;
pub(crate) mod matrix;
pub(crate) mod oracle;
mod probe;
mod world;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::Netns;

use crate::lab::{Kube, Lab};

/// Where servers listen, with TCP and UDP.
pub(crate) const TARGET: u16 = 8080;

/// The spec of a Pod on a Node that tells clients their address, by TCP and UDP. On a host, which has many addresses, it answers
/// datagrams at these only, as otherwise it would answer from another one than was asked.
pub(crate) fn teller(node: &str, on_host: Option<[IpAddr; 2]>) -> Value {
    let mut arguments = vec!["netexec".to_owned(), format!("--http-port={TARGET}"), format!("--udp-port={TARGET}")];
    arguments.extend(on_host.map(|[v4, v6]| format!("--udp-listen-addresses={v4},{v6}")));
    let on_host = on_host.is_some();
    json!({
        "nodeName": node, "hostNetwork": on_host, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "agnhost", "args": arguments}],
    })
}

/// Makes a Pod with a label.
pub(crate) fn labelled_pod(api: &Kube, name: &str, label: &str, spec: &Value) {
    api.apply("v1", "Pod", name, json!({"metadata": {"labels": {"app": label}}, "spec": spec}));
}

/// The network namespace of a Node or of the underlay.
pub(crate) fn place(lab: &Lab, name: &str) -> Netns {
    if name.starts_with("node-") {
        let root = lab.root(name);
        return Netns::open(&root.with_file_name("ns").join("net")).unwrap();
    }
    lab.underlay(name)
}

/// Sets the load balancer addresses of a Service.
pub(crate) fn set_ingress(api: &Kube, name: &str, addresses: &[IpAddr]) {
    let services: Api<Service> = Api::namespaced(api.client.clone(), "default");
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    api.wait(services.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))).unwrap();
}

/// A Service, as the API has it.
pub(crate) fn service(api: &Kube, name: &str) -> Value {
    let services: Api<Service> = Api::namespaced(api.client.clone(), "default");
    serde_json::to_value(api.wait(services.get(name)).unwrap()).unwrap()
}
