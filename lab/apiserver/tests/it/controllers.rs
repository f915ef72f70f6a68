use std::time::Duration;

use apiserver::{Local, Options, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::client::start;

/// Waits until a resource is as expected.
async fn until(local: &Local, (version, plural): (&str, &str), what: &str, good: impl Fn(&[Value]) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (objects, revision) = local.list(version, plural, "", "").unwrap();
        if good(&objects) {
            return;
        }
        let changed = timeout_at(end, local.changed(version, plural, revision)).await;
        assert!(changed.is_ok(), "{what}: {}", json!(objects));
    }
}

fn live<'a>(pods: &'a [Value], app: &'a str) -> impl Iterator<Item = &'a Value> {
    pods.iter()
        .filter(move |pod| pod["metadata"]["labels"]["app"] == app && pod["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_has_its_pods_and_a_service_selects_them() {
    let (server, _) = start(Options::default()).await;
    let local = server.local();
    // There is no scheduler.
    let spec = |image: &str| json!({"nodeName": "n1", "containers": [{"name": "c", "image": image}]});
    let template = |image: &str| json!({"metadata": {"labels": {"app": "web"}}, "spec": spec(image)});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("a:1")},
    });
    local.create("apps/v1", "deployments", "default", deployment).unwrap();
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    local.create("v1", "services", "default", service).unwrap();
    until(&local, ("v1", "pods"), "three Pods", |pods| live(pods, "web").count() == 3).await;
    let (pods, _) = local.list("v1", "pods", "default", "app=web").unwrap();
    for (index, pod) in pods.iter().enumerate() {
        let status = json!({"status": {"podIP": format!("10.0.0.{index}"), "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        local
            .patch("v1", "pods", "default", pod["metadata"]["name"].as_str().unwrap(), "status", Patch::Merge, &status)
            .unwrap();
    }
    let addresses = |slices: &[Value]| -> usize {
        let of = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web";
        slices
            .iter()
            .filter(of)
            .filter_map(|slice| slice["endpoints"].as_array())
            .flatten()
            .filter(|endpoint| endpoint["conditions"]["ready"] == true)
            .count()
    };
    // A Service has no endpoints on Nodes that do not exist.
    local.create("v1", "nodes", "", json!({"metadata": {"name": "n1"}})).unwrap();
    until(&local, ("discovery.k8s.io/v1", "endpointslices"), "three endpoints", |slices| addresses(slices) == 3).await;
    until(&local, ("apps/v1", "deployments"), "available", |all| all[0]["status"]["availableReplicas"] == 3).await;
    let change = json!({"spec": {"replicas": 2, "template": template("a:2")}});
    local.patch("apps/v1", "deployments", "default", "web", "", Patch::Merge, &change).unwrap();
    until(&local, ("v1", "pods"), "two new Pods", |pods| {
        live(pods, "web").count() == 2 && live(pods, "web").all(|pod| pod["spec"]["containers"][0]["image"] == "a:2")
    })
    .await;
    local.delete("apps/v1", "deployments", "default", "web", None).unwrap();
    until(&local, ("v1", "pods"), "no Pods", |pods| live(pods, "web").count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_a_service_with_a_traffic_distribution_have_the_hints_of_kubernetes() {
    let (server, _) = start(Options::default()).await;
    let local = server.local();
    let zone = json!({"topology.kubernetes.io/zone": "a"});
    local.create("v1", "nodes", "", json!({"metadata": {"name": "in-a", "labels": zone}})).unwrap();
    local.create("v1", "nodes", "", json!({"metadata": {"name": "nowhere"}})).unwrap();
    for (pod, node, address, ready) in
        [("p1", "in-a", "10.0.0.1", "True"), ("p2", "nowhere", "10.0.0.2", "True"), ("p3", "in-a", "10.0.0.3", "False")]
    {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "a:1"}]});
        let metadata = json!({"name": pod, "labels": {"app": "web"}});
        local.create("v1", "pods", "default", json!({"metadata": metadata, "spec": spec})).unwrap();
        let status = json!({"podIP": address, "phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        local.patch("v1", "pods", "default", pod, "status", Patch::Merge, &json!({"status": status})).unwrap();
    }
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    local.create("v1", "services", "default", json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    let (in_a, on_node) = (json!([{"name": "a"}]), |node: &str| json!([{"name": node}]));
    for (distribution, expected) in [
        (Value::Null, [Value::Null, Value::Null]),
        (json!("PreferSameZone"), [json!({"forZones": in_a}), Value::Null]),
        (
            json!("PreferSameNode"),
            [json!({"forZones": in_a, "forNodes": on_node("in-a")}), json!({"forNodes": on_node("nowhere")})],
        ),
        (json!("PreferClose"), [json!({"forZones": in_a}), Value::Null]),
        (Value::Null, [Value::Null, Value::Null]),
    ] {
        let patch = json!({"spec": {"trafficDistribution": distribution}});
        local.patch("v1", "services", "default", "web", "", Patch::Merge, &patch).unwrap();
        let what = format!("hints of {distribution}");
        until(&local, ("discovery.k8s.io/v1", "endpointslices"), &what, |slices| {
            let of = |address: &str| {
                let endpoints = slices.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
                endpoints.filter(|endpoint| endpoint["addresses"][0] == address).map(|e| e["hints"].clone()).next()
            };
            // Endpoints that are not ready have no hints.
            [of("10.0.0.1"), of("10.0.0.2"), of("10.0.0.3")]
                == [Some(expected[0].clone()), Some(expected[1].clone()), Some(Value::Null)]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_has_a_pod_on_every_node() {
    let (server, _) = start(Options::default()).await;
    let local = server.local();
    for name in ["n1", "n2"] {
        local.create("v1", "nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }
    let template =
        json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}});
    let set =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}});
    local.create("apps/v1", "daemonsets", "default", set).unwrap();
    until(&local, ("v1", "pods"), "two Pods", |pods| live(pods, "d").count() == 2).await;
    local.create("v1", "nodes", "", json!({"metadata": {"name": "n3"}})).unwrap();
    until(&local, ("v1", "pods"), "three Pods", |pods| live(pods, "d").any(|pod| pod["spec"]["nodeName"] == "n3"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_with_its_contents() {
    let (server, _) = start(Options::default()).await;
    let local = server.local();
    local.create("v1", "namespaces", "", json!({"metadata": {"name": "x"}})).unwrap();
    local.create("v1", "configmaps", "x", json!({"metadata": {"name": "a"}})).unwrap();
    local.delete("v1", "namespaces", "", "x", None).unwrap();
    until(&local, ("v1", "namespaces"), "gone", |all| all.iter().all(|namespace| namespace["metadata"]["name"] != "x"))
        .await;
    assert!(local.get("v1", "configmaps", "x", "a").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_ranges_lose_their_taint_and_are_deleted_with_their_pods() {
    let pod_cidrs = vec!["10.10.0.0/16".parse().unwrap(), "fd00:10::/48".parse().unwrap()];
    let (server, _) = start(Options { pod_cidrs, ..Options::default() }).await;
    let local = server.local();
    for name in ["n1", "n2"] {
        local.create("v1", "nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    local.patch("v1", "nodes", "", "n2", "status", Patch::Merge, &ready).unwrap();
    until(&local, ("v1", "nodes"), "ranges, and no taint", |nodes| {
        let [one, two] = nodes else { return false };
        one["spec"]["podCIDRs"] == json!(["10.10.0.0/24", "fd00:10::/64"])
            && two["spec"]["podCIDRs"] == json!(["10.10.1.0/24", "fd00:10:0:1::/64"])
            && two["spec"]["taints"].is_null()
    })
    .await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "a:1"}]}});
    local.create("v1", "pods", "default", pod).unwrap();
    local.delete("v1", "nodes", "", "n1", None).unwrap();
    until(&local, ("v1", "pods"), "no Pod", <[Value]>::is_empty).await;
}
