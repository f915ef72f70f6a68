//! Three namespaces with three Pods each, one on every Node, and the expected connectivity.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use oracle::{Cluster, End};
use serde_json::{Value, json};
use testkit::Netns;
use types::meta::Protocol;
use types::pod::Pod;

use super::probes::{Server, Target, reached};
use crate::agent::network;
use crate::lab::{Kube, Lab, TIMEOUT};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PODS: [(&str, &str); 3] = [("a", "node-1"), ("b", "node-2"), ("c", "node-3")];
const PORTS: [u16; 2] = [80, 81];
/// How often it is tried until everything is as it should be.
const TRIES: usize = 8;

const ANTREA: &str = "crd.antrea.io/v1beta1";

fn antrea_kind(namespace: &str) -> &'static str {
    if namespace.is_empty() { "ClusterNetworkPolicy" } else { "NetworkPolicy" }
}

type Name = (&'static str, &'static str);

pub(crate) struct World {
    lab: Lab,
    api: Kube,
    netns: BTreeMap<Name, Netns>,
    pods: BTreeMap<Name, Pod>,
    cluster: Cluster,
    /// A Service in front of one Pod, by its address.
    service: (IpAddr, Name),
    /// Kept for their end.
    _servers: Vec<Server>,
}

impl World {
    pub(crate) fn start(lab: &'static str) -> Self {
        let (lab, api) = network(lab, 3, &[]);
        for namespace in NAMESPACES {
            api.put("", "v1", "Namespace", namespace, json!({"metadata": {"labels": {"ns": namespace}}}));
            for (name, node) in PODS {
                // The name of the port means another number to `b`.
                let web = if name == "b" { 81 } else { 80 };
                let container =
                    json!({"name": "c", "image": "pause", "ports": [{"name": "web", "containerPort": web}]});
                let spec = json!({"nodeName": node, "containers": [container]});
                api.put(namespace, "v1", "Pod", name, json!({"metadata": {"labels": {"pod": name}}, "spec": spec}));
            }
        }
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        api.put("y", "v1", "Service", "to-b", json!({"spec": {"selector": {"pod": "b"}, "ports": ports}}));
        let address = api.object("y", "v1", "Service", "to-b").unwrap()["spec"]["clusterIP"].as_str().unwrap().parse();
        let mut world = Self {
            lab,
            api,
            netns: BTreeMap::new(),
            pods: BTreeMap::new(),
            cluster: Cluster::default(),
            service: (address.unwrap(), ("y", "b")),
            _servers: Vec::new(),
        };
        for namespace in NAMESPACES {
            for (name, node) in PODS {
                let ready = || {
                    let pod = world.api.object(namespace, "v1", "Pod", name)?;
                    crate::lab::is_ready(&pod).then(|| serde_json::from_value::<Pod>(pod).unwrap())
                };
                let pod = testkit::wait::until(format!("Pod {namespace}/{name}"), TIMEOUT, ready).unwrap();
                let netns = world.lab.netns_of(node, namespace, name);
                world._servers.push(Server::start(&netns, &PORTS));
                world.netns.insert((namespace, name), netns);
                world.pods.insert((namespace, name), pod);
            }
            let labels = [("ns".to_owned(), namespace.to_owned())].into();
            world.cluster.namespaces.insert(namespace.to_owned(), labels);
        }
        world
    }

    pub(crate) fn policy(&mut self, namespace: &str, name: &str, spec: &Value) {
        self.api.put(namespace, "networking.k8s.io/v1", "NetworkPolicy", name, json!({"spec": spec}));
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
        self.forget(namespace, name);
        self.cluster.policies.push(serde_json::from_value(object).unwrap());
    }

    pub(crate) fn policy_gone(&mut self, namespace: &str, name: &str) {
        self.api.remove(namespace, "networking.k8s.io/v1", "NetworkPolicy", name);
        self.forget(namespace, name);
    }

    /// Sets a policy of Antrea; without a namespace it is a ClusterNetworkPolicy.
    pub(crate) fn antrea_policy(&mut self, namespace: &str, name: &str, spec: &Value) {
        self.api.put(namespace, ANTREA, antrea_kind(namespace), name, json!({"spec": spec}));
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
        self.forget_antrea(namespace, name);
        self.cluster.antrea_policies.push(serde_json::from_value(object).unwrap());
    }

    pub(crate) fn antrea_policy_gone(&mut self, namespace: &str, name: &str) {
        self.api.remove(namespace, ANTREA, antrea_kind(namespace), name);
        self.forget_antrea(namespace, name);
    }

    fn forget_antrea(&mut self, namespace: &str, name: &str) {
        let is_it = |meta: &types::meta::Metadata| meta.namespace == namespace && meta.name == name;
        self.cluster.antrea_policies.retain(|policy| !is_it(&policy.metadata));
    }

    /// Waits for the Tiers that the controller creates.
    pub(crate) fn wait_for_tiers(&mut self) {
        for (name, priority) in [("emergency", 50), ("securityops", 100), ("application", 250), ("baseline", 253)] {
            let found = || self.api.object("", ANTREA, "Tier", name).map(|tier| tier["spec"]["priority"].clone());
            let found = testkit::wait::until(format!("Tier {name}"), TIMEOUT, found).unwrap();
            assert_eq!(found, json!(priority), "{name}");
            self.cluster.tiers.insert(name.to_owned(), priority);
        }
    }

    fn forget(&mut self, namespace: &str, name: &str) {
        let is_it = |meta: &types::meta::Metadata| meta.namespace == namespace && meta.name == name;
        self.cluster.policies.retain(|policy| !is_it(&policy.metadata));
    }

    pub(crate) fn pod_label(&mut self, namespace: &'static str, name: &'static str, key: &str, value: Option<&str>) {
        self.api.label(namespace, "Pod", name, key, value);
        set(&mut self.pods.get_mut(&(namespace, name)).unwrap().metadata.labels, key, value);
    }

    pub(crate) fn namespace_label(&mut self, namespace: &str, key: &str, value: Option<&str>) {
        self.api.label("", "Namespace", namespace, key, value);
        set(self.cluster.namespaces.get_mut(namespace).unwrap(), key, value);
    }

    fn end(&self, name: Name, ipv6: bool) -> End<'_> {
        let pod = &self.pods[&name];
        let ips = pod.addresses().map(|ip| ip.parse::<IpAddr>().unwrap());
        End { pod: Some(pod), ip: ips.into_iter().find(|ip| ip.is_ipv6() == ipv6).unwrap() }
    }

    /// Every target with whether the documentation lets a Pod reach it.
    fn expected(&self, from: Name) -> BTreeMap<Target, bool> {
        let mut expected = BTreeMap::new();
        for ipv6 in [false, true] {
            let source = self.end(from, ipv6);
            for to in self.pods.keys().filter(|to| **to != from) {
                let target = self.end(*to, ipv6);
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    for port in PORTS {
                        let allowed = oracle::connects(&self.cluster, source, target, protocol, port);
                        expected.insert((target.ip, protocol, port), allowed);
                    }
                }
            }
        }
        // Policies apply to the endpoint of a Service, and never to traffic of a Pod to itself.
        let (address, endpoint) = self.service;
        let (source, target) = (self.end(from, false), self.end(endpoint, false));
        let allowed = from == endpoint || oracle::connects(&self.cluster, source, target, Protocol::Tcp, 80);
        expected.insert((address, Protocol::Tcp, 80), allowed);
        expected
    }

    /// Tests all connections until they match the documentation. Returns the numbers of allowed and of all connections. A Node
    /// always reaches its own Pods.
    pub(crate) fn agrees(&self, what: &str) -> (usize, usize) {
        let expected: BTreeMap<Name, BTreeMap<Target, bool>> =
            self.pods.keys().map(|from| (*from, self.expected(*from))).collect();
        let mut differences = Vec::new();
        for _ in 0..TRIES {
            differences = thread::scope(|scope| {
                let trials: Vec<_> = expected
                    .iter()
                    .map(|(from, targets)| scope.spawn(move || self.differences(*from, targets)))
                    .collect();
                trials.into_iter().flat_map(|trial| trial.join().unwrap()).collect::<Vec<_>>()
            });
            differences.extend(self.unprobed());
            if differences.is_empty() {
                let all = expected.values().flat_map(BTreeMap::values);
                return all.fold((0, 0), |(allowed, all), is| (allowed + usize::from(*is), all + 1));
            }
        }
        panic!("{what}: not as documented:\n{}", differences.join("\n"));
    }

    fn differences(&self, from: Name, expected: &BTreeMap<Target, bool>) -> Vec<String> {
        let targets: Vec<Target> = expected.keys().copied().collect();
        let reached: BTreeSet<Target> = reached(&self.netns[&from], &targets);
        let wrong = expected.iter().filter(|(target, allowed)| reached.contains(*target) != **allowed);
        wrong
            .map(|((ip, protocol, port), allowed)| {
                let word = if *allowed { "is not reached" } else { "is reached" };
                format!("{}/{} to {ip} {protocol:?} {port} {word}", from.0, from.1)
            })
            .collect()
    }

    /// Pods that their Node cannot look after.
    fn unprobed(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, node) in PODS {
            let mut netns = std::path::PathBuf::from("/proc");
            netns.push(self.lab.node_init(node).to_string());
            let node_netns = Netns::open(&netns.join("ns/net")).unwrap();
            let targets: Vec<Target> =
                NAMESPACES.map(|namespace| (self.end((namespace, name), false).ip, Protocol::Tcp, 80)).to_vec();
            let reached = reached(&node_netns, &targets);
            let missed = targets.iter().filter(|target| !reached.contains(*target));
            wrong.extend(missed.map(|target| format!("{node} does not reach its own Pod {}", target.0)));
        }
        wrong
    }
}

fn set(labels: &mut BTreeMap<String, String>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
        None => drop(labels.remove(key)),
    }
}

impl Kube {
    fn dynamic(&self, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// Creates or replaces an object of any kind.
    pub(crate) fn put(&self, namespace: &str, version: &str, kind: &str, name: &str, object: Value) {
        self.try_put(namespace, version, kind, name, object).unwrap();
    }

    /// The same with one that the API may refuse.
    pub(crate) fn try_put(
        &self,
        namespace: &str,
        version: &str,
        kind: &str,
        name: &str,
        mut object: Value,
    ) -> kube::Result<()> {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let api = self.dynamic(namespace, version, kind);
        self.wait(api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))).map(drop)
    }

    /// Sets the status of an object without a namespace.
    pub(crate) fn put_status(&self, version: &str, kind: &str, name: &str, status: Value) {
        let api = self.dynamic("", version, kind);
        self.wait(api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))).unwrap();
    }

    pub(crate) fn object(&self, namespace: &str, version: &str, kind: &str, name: &str) -> Option<Value> {
        let found = self.wait(self.dynamic(namespace, version, kind).get_opt(name)).unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    /// Deletes an object of any kind.
    pub(crate) fn remove(&self, namespace: &str, version: &str, kind: &str, name: &str) {
        self.wait(self.dynamic(namespace, version, kind).delete(name, &Default::default())).unwrap();
    }

    /// Deletes any object, if there is one.
    pub(crate) fn try_remove(&self, namespace: &str, version: &str, kind: &str, name: &str) {
        let _ = self.wait(self.dynamic(namespace, version, kind).delete(name, &Default::default()));
    }

    fn label(&self, namespace: &str, kind: &str, name: &str, key: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"labels": {key: value}}});
        let api = self.dynamic(namespace, "v1", kind);
        self.wait(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).unwrap();
    }
}
