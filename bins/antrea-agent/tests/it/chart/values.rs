//! The values of the Helm chart: one for every key of the configuration files, and those of the deployment.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value, json};

use super::repository;

/// A value of the chart.
pub(super) struct ChartValue {
    /// Path of the value; dots separate sections.
    pub(super) path: String,
    pub(super) default: Value,
    about: String,
    /// The keys of the configuration files that it sets, by program.
    pub(super) keys: BTreeMap<&'static str, String>,
}

/// Key of the agent, and the value that Antrea's chart has for it. All others have equal names.
const AGENT_NAMES: [(&str, &str); 9] = [
    ("ovsBridge", "ovs.bridgeName"),
    ("ovsDatapathType", "ovs.datapathType"),
    ("ovsRunDir", "ovs.runDir"),
    ("cniSocket", "cni.socket"),
    ("ipamDir", "cni.ipamDir"),
    ("apiPort", "agent.apiPort"),
    ("enablePrometheusMetrics", "agent.enablePrometheusMetrics"),
    ("clientConnection.kubeconfig", "agent.clientConnection.kubeconfig"),
    ("antreaClientConnection.kubeconfig", "agent.antreaClientConnection.kubeconfig"),
];

/// The same for the controller.
const CONTROLLER_NAMES: [(&str, &str); 8] = [
    ("apiPort", "controller.apiPort"),
    ("apiAddress", "controller.apiAddress"),
    ("enablePrometheusMetrics", "controller.enablePrometheusMetrics"),
    ("selfSignedCert", "controller.selfSignedCert"),
    ("clientConnection.kubeconfig", "controller.clientConnection.kubeconfig"),
    ("nodeIPAM.enableNodeIPAM", "nodeIPAM.enable"),
    ("ipsecCSRSigner.selfSignedCA", "ipsec.csrSigner.selfSignedCA"),
    ("ipsecCSRSigner.autoApprove", "ipsec.csrSigner.autoApprove"),
];

/// Values of the deployment: path, default and meaning.
const DEPLOYMENT: &[(&str, &str, &str)] = &[
    ("image.repository", "antrea-rs", "image of all components"),
    ("image.tag", "", "tag of the image; the version of the chart's application if not set"),
    ("image.pullPolicy", "IfNotPresent", "`Always`, `IfNotPresent` or `Never`"),
    ("imagePullSecrets", "[]", "Secrets for the registry of the image, as `[{name: NAME}]`"),
    ("extraLabels", "{}", "labels of all objects and Pods"),
    (
        "logLevel",
        "",
        "log filter of agents and controllers: `error`, `warn`, `info`, `debug` or `trace`; `info` if not set",
    ),
    ("logVerbosity", "0", "verbosity as a number, as in Antrea: 0 is `info`, 1 to 3 `debug`, 4 and more `trace`"),
    (
        "featureGates",
        "{}",
        "features to turn on or off; the tables of docs/configuration.md and docs/controller.md have their names",
    ),
    ("cni.hostBinPath", "/opt/cni/bin", "CNI plugin directory of the container runtime"),
    ("cni.hostConfPath", "/etc/cni/net.d", "CNI configuration directory of the container runtime"),
    (
        "agent.readPods",
        "false",
        "whether agents may read Pods while no controller is available; docs/policies.md says what that costs",
    ),
    ("agent.dontLoadKernelModules", "false", "whether the module openvswitch is used only if it is loaded already"),
    ("agent.podAnnotations", "{}", "annotations of the Pods of antrea-agent and antrea-ovs"),
    ("agent.podLabels", "{}", "labels of the Pods of antrea-agent and antrea-ovs"),
    (
        "agent.tolerations",
        "[{operator: Exists}]",
        "a Node has no Pod network without these Pods, so they tolerate every taint",
    ),
    ("agent.nodeSelector", "{kubernetes.io/os: linux}", "Nodes with Pods of antrea-agent and antrea-ovs"),
    ("agent.affinity", "{}", "affinity of the Pods of antrea-agent and antrea-ovs"),
    ("agent.priorityClassName", "system-node-critical", "priority of the Pods of antrea-agent and antrea-ovs"),
    ("agent.dnsPolicy", "ClusterFirstWithHostNet", "DNS policy of the Pods of antrea-agent"),
    ("agent.updateStrategy", "{type: RollingUpdate}", "update strategy of the DaemonSet antrea-agent"),
    ("agent.extraVolumes", "[]", "more volumes of the Pods of antrea-agent"),
    ("agent.installCNI.resources", "{}", "resources of the init container install-cni"),
    ("agent.antreaAgent.resources", "{requests: {cpu: 100m, memory: 40Mi}}", "resources of the container antrea-agent"),
    ("agent.antreaAgent.extraEnv", "{}", "more environment variables of the container antrea-agent, by name"),
    ("agent.antreaAgent.extraArgs", "[]", "more arguments of antrea-agent"),
    ("agent.antreaAgent.extraVolumeMounts", "[]", "more volume mounts of the container antrea-agent"),
    ("agent.antreaOVS.resources", "{requests: {cpu: 200m, memory: 60Mi}}", "resources of the container antrea-ovs"),
    ("agent.antreaOVS.extraArgs", "[]", "more arguments of antrea-ovs"),
    (
        "agent.antreaOVS.updateStrategy",
        "{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "update strategy of the DaemonSet antrea-ovs; with these, the switch is away for a fraction of a second",
    ),
    ("controller.replicas", "2", "number of controllers"),
    (
        "controller.updateStrategy",
        "{type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
        "update strategy of the Deployment antrea-controller; the default needs no Node without a controller",
    ),
    (
        "controller.podDisruptionBudget.minAvailable",
        "1",
        "controllers that an eviction leaves; with several replicas only",
    ),
    ("controller.podAnnotations", "{}", "annotations of the Pods of antrea-controller"),
    ("controller.podLabels", "{}", "labels of the Pods of antrea-controller"),
    (
        "controller.tolerations",
        "[{key: CriticalAddonsOnly, operator: Exists}, \
         {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}, \
         {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}]",
        "taints that the Pods of antrea-controller tolerate",
    ),
    ("controller.nodeSelector", "{kubernetes.io/os: linux}", "Nodes with Pods of antrea-controller"),
    (
        "controller.affinity",
        "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: \
         {app: antrea, component: antrea-controller}}, topologyKey: kubernetes.io/hostname}]}}",
        "affinity of the Pods of antrea-controller: replicas share their host's ports, so each needs a Node of its own",
    ),
    ("controller.priorityClassName", "system-cluster-critical", "priority of the Pods of antrea-controller"),
    (
        "controller.antreaController.resources",
        "{requests: {cpu: 100m, memory: 100Mi}}",
        "resources of antrea-controller",
    ),
    ("controller.antreaController.extraEnv", "{}", "more environment variables of antrea-controller, by name"),
    ("controller.antreaController.extraArgs", "[]", "more arguments of antrea-controller"),
];

/// Keys and features of a program, read from the tables that `make codegen` writes into its documentation.
pub(super) struct Program {
    name: &'static str,
    /// Key, default and meaning.
    keys: Vec<[String; 3]>,
    features: BTreeMap<String, bool>,
}

impl Program {
    pub(super) fn agent() -> Self {
        Self::read("agent", "docs/configuration.md")
    }

    pub(super) fn controller() -> Self {
        Self::read("controller", "docs/controller.md")
    }

    fn read(name: &'static str, document: &str) -> Self {
        let text = fs::read_to_string(repository(document)).unwrap();
        let (_, tables) = text.split_once("<!-- From here on written by `make codegen`. -->").unwrap();
        let (mut keys, mut features) = (Vec::new(), BTreeMap::new());
        for line in tables.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
            let plain = |cell: &str| cell.trim().trim_matches('`').to_owned();
            match cells.as_slice() {
                [key, default, effect, about] => {
                    let note = if *effect == "yes" { "" } else { "; not implemented yet" };
                    keys.push([plain(key), plain(default), format!("{}{note}", about.trim())]);
                }
                [feature, default, _] => _ = features.insert(plain(feature), plain(default) == "true"),
                _ => panic!("{document}: cannot read `{line}`"),
            }
        }
        assert!(!keys.is_empty() && !features.is_empty(), "{document}");
        Self { name, keys, features }
    }
}

/// All values of the chart.
pub(super) fn all(programs: &[Program; 2]) -> Vec<ChartValue> {
    let mut values: Vec<ChartValue> = DEPLOYMENT
        .iter()
        .map(|(path, default, about)| ChartValue {
            path: (*path).to_owned(),
            default: parse(default),
            about: (*about).to_owned(),
            keys: BTreeMap::new(),
        })
        .collect();
    for (program, names) in programs.iter().zip([&AGENT_NAMES[..], &CONTROLLER_NAMES[..]]) {
        for [key, default, about] in &program.keys {
            let path = names.iter().find(|(name, _)| name == key).map_or(key.as_str(), |(_, path)| path);
            let default = parse(default);
            match values.iter_mut().find(|value| value.path == path) {
                Some(shared) => {
                    assert_eq!(
                        shared.default, default,
                        "{path}: the programs have different defaults; give it two values"
                    );
                    shared.keys.insert(program.name, key.clone());
                }
                None => values.push(ChartValue {
                    path: path.to_owned(),
                    default,
                    about: about.clone(),
                    keys: BTreeMap::from([(program.name, key.clone())]),
                }),
            }
        }
    }
    values
}

fn parse(default: &str) -> Value {
    if default.is_empty() { json!("") } else { serde_saphyr::from_str(default).unwrap() }
}

/// `files/keys.json`: which value sets which key, for the templates.
pub(super) fn keys(values: &[ChartValue], programs: &[Program; 2]) -> String {
    let keys: Vec<Value> = values
        .iter()
        .filter(|value| !value.keys.is_empty())
        .map(|value| {
            let mut entry = json!({"value": value.path, "default": value.default});
            for (program, key) in &value.keys {
                entry[*program] = json!(key);
            }
            entry
        })
        .collect();
    let features: Map<String, Value> =
        programs.iter().map(|program| (program.name.to_owned(), json!(program.features))).collect();
    // One key per line, for readable differences.
    let lines: Vec<String> = keys.iter().map(|key| format!("    {key}")).collect();
    format!("{{\n  \"keys\": [\n{}\n  ],\n  \"features\": {}\n}}\n", lines.join(",\n"), Value::Object(features))
}

/// `values.yaml`: every value with its default, its meaning, and the key that it sets.
pub(super) fn yaml(values: &[ChartValue]) -> String {
    let mut text = String::from(
        "# All values of the chart with their defaults; values.schema.json has their types. Written by `make codegen`.\n\
         # Values that set keys of antrea-agent.conf and antrea-controller.conf are written to these files only if they\n\
         # are not the default.\n",
    );
    write_section(&mut text, &values.iter().collect::<Vec<_>>(), 0);
    text
}

fn write_section(text: &mut String, values: &[&ChartValue], depth: usize) {
    let indent = "  ".repeat(depth);
    let name = |value: &ChartValue| value.path.split('.').nth(depth).unwrap().to_owned();
    let mut written = Vec::new();
    for value in values {
        let name = name(value);
        if written.contains(&name) {
            continue;
        }
        written.push(name.clone());
        if value.path.split('.').count() == depth + 1 {
            let keys: Vec<String> = value
                .keys
                .iter()
                .filter(|(_, key)| **key != value.path)
                .map(|(program, key)| format!("{program}: {key}"))
                .collect();
            let keys = if keys.is_empty() { String::new() } else { format!(" ({})", keys.join(", ")) };
            let about = format!("{}{keys}", value.about);
            for line in wrap(&about, 116 - indent.len()) {
                *text += &format!("{indent}# {line}\n");
            }
            *text += &format!("{indent}{name}: {}\n", value.default);
        } else {
            let inside: Vec<&ChartValue> = values
                .iter()
                .copied()
                .filter(|value| value.path.split('.').nth(depth) == Some(name.as_str()))
                .collect();
            *text += &format!("{}{indent}{name}:\n", if depth == 0 { "\n" } else { "" });
            write_section(text, &inside, depth + 1);
        }
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines
}

/// `values.schema.json`: types, allowed values, and no other values.
pub(super) fn schema(values: &[ChartValue], programs: &[Program; 2]) -> String {
    let mut root = section();
    for value in values {
        let mut at = &mut root;
        let parts: Vec<&str> = value.path.split('.').collect();
        let (last, sections) = parts.split_last().unwrap();
        for part in sections {
            at = at["properties"].as_object_mut().unwrap().entry(*part).or_insert_with(section);
        }
        let mut schema = value_schema(value);
        if value.path == "featureGates" {
            let names = programs.iter().flat_map(|program| program.features.keys());
            let properties: Map<String, Value> = names.map(|name| (name.clone(), json!({"type": "boolean"}))).collect();
            schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
        }
        schema["description"] = json!(value.about);
        at["properties"][*last] = schema;
    }
    root["$schema"] = json!("https://json-schema.org/draft-07/schema#");
    // Values that Helm itself adds.
    root["properties"]["global"] = json!({"type": "object"});
    format!("{root:#}\n")
}

fn section() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

fn value_schema(value: &ChartValue) -> Value {
    let choices = |names: &[&str]| json!({"enum": names});
    match (value.path.as_str(), &value.default) {
        ("image.pullPolicy", _) => choices(&["Always", "IfNotPresent", "Never"]),
        ("trafficEncapMode", _) => choices(&["encap", "noEncap", "hybrid", "networkPolicyOnly"]),
        ("tunnelType", _) => choices(&["geneve", "vxlan", "gre", "stt"]),
        ("trafficEncryptionMode", _) => choices(&["none", "ipsec", "wireGuard"]),
        ("multicluster.trafficEncryptionMode", _) => choices(&["none", "wireGuard"]),
        ("ovs.datapathType", _) => choices(&["", "system", "netdev"]),
        ("ipsec.authenticationMode", _) => choices(&["psk", "cert"]),
        ("antreaProxy.defaultLoadBalancerMode", _) => choices(&["nat", "dsr"]),
        ("hostNetworkMode", _) => choices(&["iptables", "nftables"]),
        ("egress.snatFullyRandomPorts", _) => choices_of_optional_boolean(),
        ("controller.replicas", _) => json!({"type": "integer", "minimum": 1}),
        ("controller.podDisruptionBudget.minAvailable", _) => json!({"type": ["integer", "string"]}),
        (path, Value::Number(_)) if path.to_lowercase().ends_with("port") => {
            json!({"type": "integer", "minimum": 0, "maximum": 65535})
        }
        (_, Value::Number(_)) => json!({"type": "integer", "minimum": 0}),
        (_, Value::Bool(_)) => json!({"type": "boolean"}),
        (_, Value::Array(_)) => json!({"type": "array"}),
        (_, Value::Object(_)) => json!({"type": "object"}),
        (_, Value::String(_) | Value::Null) => json!({"type": "string"}),
    }
}

fn choices_of_optional_boolean() -> Value {
    json!({"enum": ["", true, false]})
}
