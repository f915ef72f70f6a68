//! Defaults of built-in kinds.

use serde_json::{Value, json};

use crate::value::{at, at_mut, copy, default_text, default_to, items, items_mut, set, text};

/// For kinds without defaults.
pub(crate) fn none(_: &mut Value) {}

pub(crate) fn namespace(object: &mut Value) {
    let name = text(object, "metadata.name").to_owned();
    let mut labels = at(object, "metadata.labels").clone();
    crate::value::object(&mut labels).insert("kubernetes.io/metadata.name".into(), name.into());
    set(object, "metadata.labels", labels);
}

pub(crate) fn secret(object: &mut Value) {
    use base64::Engine as _;
    if let Some(Value::Object(texts)) = crate::value::remove(object, "stringData") {
        for (key, text) in texts {
            let bytes = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            crate::value::object(crate::value::object(object).entry("data").or_insert(Value::Null))
                .insert(key, bytes.into());
        }
    }
    default_text(object, "type", "Opaque");
}

pub(crate) fn pod(object: &mut Value) {
    let address = at(object, "status.podIP").clone();
    match items(object, "status.podIPs").first().map(|first| at(first, "ip").clone()) {
        // If both are given, `podIP` wins.
        first if !text(object, "status.podIP").is_empty() && first.as_ref() != Some(&address) => {
            set(object, "status.podIPs", json!([{"ip": address}]));
        }
        Some(first) => set(object, "status.podIP", first),
        None => {}
    }
    if let Some(spec) = at_mut(object, "spec") {
        default_to(spec, "enableServiceLinks", true);
        pod_spec(spec);
        for list in ["containers", "initContainers"] {
            for container in items_mut(spec, list) {
                requests_from_limits(container);
            }
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    for (name, amount) in at(container, "resources.limits").as_object().cloned().unwrap_or_default() {
        if at(container, "resources.requests").get(&name).is_none() {
            let resources = crate::value::object(container).entry("resources").or_insert(Value::Null);
            let requests = crate::value::object(resources).entry("requests").or_insert(Value::Null);
            crate::value::object(requests).insert(name, amount);
        }
    }
}

/// Defaults of Pods and of Pod templates.
pub(crate) fn pod_spec(spec: &mut Value) {
    default_text(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "securityContext", json!({}));
    default_text(spec, "schedulerName", "default-scheduler");
    match (text(spec, "serviceAccountName").to_owned(), text(spec, "serviceAccount").to_owned()) {
        (name, _) if !name.is_empty() => set(spec, "serviceAccount", name),
        (_, name) if !name.is_empty() => set(spec, "serviceAccountName", name),
        _ => {}
    }
    let host = at(spec, "hostNetwork") == true;
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            container_defaults(container, host);
        }
    }
    for volume in items_mut(spec, "volumes") {
        volume_defaults(volume);
    }
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        default_text(constraint, "whenUnsatisfiable", "DoNotSchedule");
    }
}

fn container_defaults(container: &mut Value, host: bool) {
    default_text(container, "terminationMessagePath", "/dev/termination-log");
    default_text(container, "terminationMessagePolicy", "File");
    let image = text(container, "image");
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let latest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
    default_text(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    for port in items_mut(container, "ports") {
        default_text(port, "protocol", "TCP");
        if host {
            let number = at(port, "containerPort").clone();
            default_to(port, "hostPort", number);
        }
    }
    for env in items_mut(container, "env") {
        if at(env, "valueFrom.fieldRef").is_object() {
            default_text(env, "valueFrom.fieldRef.apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = at_mut(container, name).filter(|probe| probe.is_object()) else { continue };
        for (key, number) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            if at(probe, key).as_i64().unwrap_or(0) == 0 {
                set(probe, key, number);
            }
        }
        http_get(probe);
        if at(probe, "grpc").is_object() {
            default_to(probe, "grpc.service", "");
        }
    }
    for name in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(handler) = at_mut(container, name) {
            http_get(handler);
        }
    }
}

fn http_get(handler: &mut Value) {
    if at(handler, "httpGet").is_object() {
        default_text(handler, "httpGet.path", "/");
        default_text(handler, "httpGet.scheme", "HTTP");
    }
}

fn volume_defaults(volume: &mut Value) {
    if volume.as_object().is_some_and(|volume| volume.keys().all(|key| key == "name")) {
        set(volume, "emptyDir", json!({}));
    }
    for kind in ["secret", "configMap", "projected", "downwardAPI"] {
        if at(volume, kind).is_object() {
            default_to(volume, &format!("{kind}.defaultMode"), 420);
        }
    }
    for source in items_mut(volume, "projected.sources") {
        if at(source, "serviceAccountToken").is_object() {
            default_to(source, "serviceAccountToken.expirationSeconds", 3600);
        }
        for item in items_mut(source, "downwardAPI.items") {
            if at(item, "fieldRef").is_object() {
                default_text(item, "fieldRef.apiVersion", "v1");
            }
        }
    }
    if at(volume, "hostPath").is_object() {
        default_to(volume, "hostPath.type", "");
    }
}

pub(crate) fn deployment(object: &mut Value) {
    default_to(object, "spec.replicas", 1);
    default_text(object, "spec.strategy.type", "RollingUpdate");
    if text(object, "spec.strategy.type") == "RollingUpdate" {
        default_to(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        default_to(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
    default_to(object, "spec.revisionHistoryLimit", 10);
    default_to(object, "spec.progressDeadlineSeconds", 600);
    template(object);
}

pub(crate) fn replica_set(object: &mut Value) {
    default_to(object, "spec.replicas", 1);
    template(object);
}

pub(crate) fn daemon_set(object: &mut Value) {
    default_text(object, "spec.updateStrategy.type", "RollingUpdate");
    if text(object, "spec.updateStrategy.type") == "RollingUpdate" {
        default_to(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        default_to(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    default_to(object, "spec.revisionHistoryLimit", 10);
    template(object);
}

fn template(object: &mut Value) {
    if let Some(spec) = at_mut(object, "spec.template.spec") {
        pod_spec(spec);
    }
}

pub(crate) fn service(object: &mut Value) {
    default_text(object, "spec.sessionAffinity", "None");
    match text(object, "spec.sessionAffinity") {
        "ClientIP" => default_to(object, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800),
        "None" => drop(crate::value::remove(object, "spec.sessionAffinityConfig")),
        _ => {}
    }
    default_text(object, "spec.type", "ClusterIP");
    for port in items_mut(object, "spec.ports") {
        default_text(port, "protocol", "TCP");
        let target = at(port, "targetPort");
        if target.is_null() || target == 0 || target == "" {
            copy(&json!({"targetPort": at(port, "port")}), port, "targetPort");
        }
    }
    let kind = text(object, "spec.type").to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !items(object, "spec.externalIPs").is_empty())
    {
        default_text(object, "spec.externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default_text(object, "spec.internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default_to(object, "spec.allocateLoadBalancerNodePorts", true);
        for entry in items_mut(object, "status.loadBalancer.ingress") {
            if !text(entry, "ip").is_empty() {
                default_text(entry, "ipMode", "VIP");
            }
        }
    }
}

pub(crate) fn network_policy(object: &mut Value) {
    if items(object, "spec.policyTypes").is_empty() {
        let egress = !items(object, "spec.egress").is_empty();
        set(object, "spec.policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
    for list in ["spec.ingress", "spec.egress"] {
        for rule in items_mut(object, list) {
            for port in items_mut(rule, "ports") {
                default_text(port, "protocol", "TCP");
            }
        }
    }
}

pub(crate) fn endpoint_slice(object: &mut Value) {
    for port in items_mut(object, "ports") {
        default_to(port, "name", "");
        default_text(port, "protocol", "TCP");
    }
}

pub(crate) fn node(object: &mut Value) {
    let range = at(object, "spec.podCIDR").clone();
    match items(object, "spec.podCIDRs").first().cloned() {
        // If both are given, `podCIDR` wins.
        first if !range.is_null() && first.as_ref() != Some(&range) => set(object, "spec.podCIDRs", json!([range])),
        Some(first) => set(object, "spec.podCIDR", first),
        None => {}
    }
    let capacity = at(object, "status.capacity").as_object().cloned().unwrap_or_default();
    if !capacity.is_empty() && at(object, "status.allocatable").is_null() {
        set(object, "status.allocatable", capacity);
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) fn binding(object: &mut Value) {
    default_text(object, "roleRef.apiGroup", RBAC);
    for subject in items_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_text(subject, "apiGroup", RBAC);
        }
    }
}

pub(crate) fn custom_definition(object: &mut Value) {
    let kind = text(object, "spec.names.kind").to_owned();
    default_text(object, "spec.names.singular", &kind.to_lowercase());
    default_text(object, "spec.names.listKind", &format!("{kind}List"));
    default_text(object, "spec.conversion.strategy", "None");
}

pub(crate) fn api_service(object: &mut Value) {
    if at(object, "spec.service").is_object() {
        default_to(object, "spec.service.port", 443);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_gets_its_defaults() {
        let mut service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"}});
        super::service(&mut service);
        let expected = json!({"spec": {
            "type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
        }});
        assert_eq!(service, expected);
    }

    #[test]
    fn the_pull_policy_depends_on_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("r:5000/nginx", "Always"),
            ("n@sha256:1", "IfNotPresent"),
        ] {
            let mut container = json!({"image": image});
            container_defaults(&mut container, false);
            assert_eq!(container["imagePullPolicy"], policy, "{image}");
        }
    }

    #[test]
    fn a_policy_with_egress_rules_is_for_egress_too() {
        let mut policy = json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}});
        network_policy(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    }
}
