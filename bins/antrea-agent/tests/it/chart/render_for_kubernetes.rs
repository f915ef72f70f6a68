//! What Helm renders from the chart.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::Scratch;

use super::repository;
use super::values::{self, ChartValue, Program};

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

fn helm(command: &str, arguments: &[&str]) -> Result<String, String> {
    let home = Scratch::new().unwrap();
    let mut helm = Command::new(testkit::kubernetes::helm().unwrap());
    helm.arg(command);
    if command == "template" {
        helm.args(["antrea", "--include-crds"]);
    }
    helm.arg(repository("deploy/charts/antrea-rs")).args(["--namespace", "kube-system"]).args(arguments);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, home.path());
    }
    let output = helm.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn objects(yaml: &str) -> Objects {
    let all = serde_saphyr::from_multiple::<Value>(yaml).unwrap();
    let key = |object: &Value| {
        ["/kind", "/metadata/name"].map(|path| object.pointer(path).unwrap().as_str().unwrap().to_owned())
    };
    all.into_iter().filter(|object| !object.is_null()).map(|object| (key(&object).into(), object)).collect()
}

fn render(values: &Value) -> Objects {
    let dir = Scratch::new().unwrap();
    let file = dir.path().join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    objects(&helm("template", &["--values", file.to_str().unwrap()]).unwrap())
}

fn manifests(names: &[&str]) -> Objects {
    let read = |name: &&str| fs::read_to_string(repository("deploy/kubernetes").join(name)).unwrap();
    names.iter().flat_map(|name| objects(&read(name))).collect()
}

fn plain() -> Objects {
    manifests(&["antrea-agent.yml", "antrea-ovs.yml", "antrea-controller.yml", "antrea-crds.yml"])
}

fn assert_same(rendered: &Objects, expected: &Objects) {
    for (name, object) in expected {
        let found = rendered.get(name).unwrap_or_else(|| panic!("the chart has no {name:?}"));
        assert_eq!(found, object, "{name:?}");
    }
    let more: Vec<_> = rendered.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert_eq!(more, Vec::<&(String, String)>::new(), "only in the chart");
}

/// A part of a rendered object.
fn part<'a>(objects: &'a Objects, kind: &str, name: &str, pointer: &str) -> &'a Value {
    objects[&(kind.to_owned(), name.to_owned())].pointer(pointer).unwrap_or(&Value::Null)
}

/// A configuration file in a ConfigMap.
fn file(objects: &Objects, map: &str, name: &str) -> Value {
    serde_saphyr::from_str(part(objects, "ConfigMap", map, &format!("/data/{name}")).as_str().unwrap()).unwrap()
}

fn set(values: &mut Value, path: &str, value: Value) {
    let at = path.split('.').fold(values, |at, part| &mut at[part]);
    *at = value;
}

#[test]
#[ignore = "needs make kubernetes"]
fn the_default_render_is_the_plain_yaml() {
    assert_same(&objects(&helm("template", &[]).unwrap()), &plain());
}

#[test]
#[ignore = "needs make kubernetes"]
fn the_chart_passes_lint() {
    helm("lint", &["--strict", "--quiet"]).unwrap();
    let error = helm("template", &["--namespace", "default"]).unwrap_err();
    assert!(error.contains("add `--namespace kube-system`"), "{error}");
}

#[test]
#[ignore = "needs make kubernetes"]
fn every_key_reaches_the_configuration_file_of_its_program() {
    let programs = [Program::agent(), Program::controller()];
    let (mut input, mut expected) = (json!({}), [json!({}), json!({})]);
    for ChartValue { path, default, keys, .. } in values::all(&programs).iter().filter(|value| !value.keys.is_empty()) {
        let other = match (path.as_str(), default) {
            ("trafficEncapMode", _) => json!("noEncap"),
            ("tunnelType", _) => json!("gre"),
            ("ovs.datapathType", _) => json!("netdev"),
            ("trafficEncryptionMode" | "multicluster.trafficEncryptionMode", _) => json!("wireGuard"),
            ("ipsec.authenticationMode", _) => json!("cert"),
            ("antreaProxy.defaultLoadBalancerMode", _) => json!("dsr"),
            ("hostNetworkMode", _) => json!("nftables"),
            ("egress.snatFullyRandomPorts", _) => json!(true),
            (_, Value::Bool(on)) => json!(!on),
            (_, Value::Number(number)) => json!(number.as_u64().unwrap() + 1),
            (_, Value::Array(_)) => json!(["10.7.0.0/16"]),
            _ => json!("/other"),
        };
        set(&mut input, path, other.clone());
        for (program, key) in keys {
            set(&mut expected[usize::from(*program == "controller")], key, other.clone());
        }
    }
    // Known to both programs, to the agent, and to the agent with its default.
    input["featureGates"] = json!({"AntreaPolicy": false, "AntreaProxy": false, "Traceflow": true});
    expected[0]["featureGates"] = json!({"AntreaPolicy": false, "AntreaProxy": false});
    expected[1]["featureGates"] = json!({"AntreaPolicy": false});
    let objects = render(&input);
    assert_eq!(file(&objects, "antrea-config", "antrea-agent.conf"), expected[0]);
    assert_eq!(file(&objects, "antrea-controller-config", "antrea-controller.conf"), expected[1]);
    // The ports are also in probes and in the Service.
    let probe = "/spec/template/spec/containers/0/readinessProbe/httpGet/port";
    assert_eq!(*part(&objects, "DaemonSet", "antrea-agent", probe), json!(10351));
    assert_eq!(*part(&objects, "Service", "antrea", "/spec/ports/0/targetPort"), json!(10350));
    // A changed configuration restarts the Pods, and no configuration is left out.
    for (kind, name) in [("DaemonSet", "antrea-agent"), ("Deployment", "antrea-controller")] {
        let checksum = part(&objects, kind, name, "/spec/template/metadata/annotations/checksum~1config");
        assert!(checksum.is_string(), "{name}");
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn values_that_need_a_role_add_it() {
    for (values, role) in [
        (json!({"agent": {"readPods": true}}), "read-pods.yml"),
        (json!({"nodeIPAM": {"enable": true, "clusterCIDRs": ["10.0.0.0/8"]}}), "node-ipam.yml"),
        (json!({"transportInterface": "eth1"}), "transport-interface.yml"),
        (json!({"transportInterfaceCIDRs": ["192.0.2.0/24"]}), "transport-interface.yml"),
    ] {
        let expected = manifests(&[&format!("optional/{role}")]);
        let mut rendered = render(&values);
        rendered.retain(|name, _| !plain().contains_key(name));
        assert_same(&rendered, &expected);
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn an_unknown_or_wrong_value_is_an_error_with_its_name() {
    for (value, name, problem) in [
        ("agent.apiPrt=1", "agent", "apiPrt"),
        ("tunelType=gre", "tunelType", "not allowed"),
        ("agent.apiPort=many", "agent/apiPort", "got string, want integer"),
        ("controller.apiPort=70000", "controller/apiPort", "65"),
        ("trafficEncapMode=none", "trafficEncapMode", "noEncap"),
        ("antreaProxy.proxyAll=1", "antreaProxy/proxyAll", "want boolean"),
        ("featureGates.AntreaProxi=true", "featureGates", "AntreaProxi"),
        ("antreaProxy.skipServices=x", "antreaProxy/skipServices", "want array"),
    ] {
        let error = helm("template", &["--set", value]).unwrap_err();
        assert!(error.contains(name) && error.contains(problem), "{value}: {error}");
    }
}

#[test]
#[ignore = "needs make kubernetes"]
fn values_of_the_deployment_reach_the_objects() {
    let objects = render(&json!({
        "image": {"repository": "registry.example/antrea", "tag": "v9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "extraLabels": {"team": "net", "app": "not-the-selector"},
        "logVerbosity": 2,
        "cni": {"hostBinPath": "/usr/libexec/cni", "hostConfPath": "/etc/cni/other"},
        "agent": {
            "dontLoadKernelModules": true,
            "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "antreaAgent": {"resources": {"limits": {"memory": "1Gi"}}, "extraEnv": {"RUST_BACKTRACE": "1"},
                "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]},
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
        },
        "controller": {"replicas": 1, "antreaController": {"extraArgs": ["--x"]}},
    }));
    for (kind, name) in
        [("DaemonSet", "antrea-agent"), ("DaemonSet", "antrea-ovs"), ("Deployment", "antrea-controller")]
    {
        let at = |pointer: &str| part(&objects, kind, name, pointer).clone();
        assert_eq!(at("/spec/template/spec/containers/0/image"), "registry.example/antrea:v9", "{name}");
        assert_eq!(at("/spec/template/spec/containers/0/imagePullPolicy"), "Always");
        assert_eq!(at("/spec/template/spec/imagePullSecrets"), json!([{"name": "registry"}]));
        assert_eq!(at("/metadata/labels/team"), "net");
        assert_eq!(at("/spec/template/metadata/labels/team"), "net");
        assert_eq!(at("/spec/template/metadata/labels/app"), "antrea");
        assert_eq!(at("/spec/selector/matchLabels"), json!({"app": "antrea", "component": name}));
    }
    let agent =
        |pointer: &str| part(&objects, "DaemonSet", "antrea-agent", &format!("/spec/template{pointer}")).clone();
    assert_eq!(agent("/metadata/annotations"), json!({"a": "b"}));
    assert_eq!(agent("/metadata/labels/c"), "d");
    assert_eq!(agent("/spec/tolerations"), json!([{"key": "x", "operator": "Exists"}]));
    assert_eq!(agent("/spec/containers/0/resources/limits/memory"), "1Gi");
    let env = agent("/spec/containers/0/env");
    for expected in [json!({"name": "RUST_LOG", "value": "debug"}), json!({"name": "RUST_BACKTRACE", "value": "1"})] {
        assert!(env.as_array().unwrap().contains(&expected), "{env}");
    }
    let volumes = agent("/spec/volumes").to_string();
    for expected in ["/usr/libexec/cni", "/etc/cni/other", r#""name":"more""#] {
        assert!(volumes.contains(expected), "{volumes}");
    }
    let install = agent("/spec/initContainers/0").to_string();
    assert!(
        !volumes.contains("/lib/modules") && !install.contains("load-module") && !install.contains("SYS_MODULE"),
        "{install}"
    );
    let controller = |pointer: &str| part(&objects, "Deployment", "antrea-controller", pointer).clone();
    assert_eq!(controller("/spec/replicas"), json!(1));
    assert_eq!(controller("/spec/template/spec/containers/0/args"), json!(["--x"]));
    // A budget of one of one replica would block every eviction.
    assert!(!objects.contains_key(&("PodDisruptionBudget".to_owned(), "antrea-controller".to_owned())));
}
