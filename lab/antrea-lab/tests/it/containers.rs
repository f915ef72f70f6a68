//! Volumes, environment and network of the containers of a Pod.

use serde_json::json;

use crate::lab::{Lab, script, server};

#[test]
fn init_containers_run_first_and_all_containers_share_volumes_and_the_network() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let mut spec = server("node-1");
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    spec["initContainers"] = json!([
        {"name": "one", "image": "x", "command": ["sh", "-c", "echo one >> /shared/log"], "volumeMounts": mount},
        {"name": "two", "image": "x", "command": ["sh", "-c", "echo two >> /shared/log"], "volumeMounts": mount},
    ]);
    let side = json!({"name": "side", "image": "x", "command": ["sleep", "1000"], "volumeMounts": mount});
    spec["containers"].as_array_mut().unwrap().push(side);
    api.pod("several", spec);
    api.until_ready("several");
    let side = |command: &[&str]| {
        crate::lab::output(&lab.run("exec", [&["several", "-c", "side", "--"], command].concat())).unwrap()
    };
    assert_eq!(side(&["cat", "/shared/log"]), "one\ntwo\n");
    assert_eq!(side(&["curl", "-sS", "--max-time", "5", "http://127.0.0.1/hostname"]), "several");
}

#[test]
fn config_maps_and_the_account_are_files_and_variables() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.apply("v1", "ConfigMap", "settings", json!({"data": {"colour": "blue"}}));
    let mut spec = script("node-3", "exec sleep 1000");
    spec["volumes"] = json!([{"name": "settings", "configMap": {"name": "settings"}}]);
    let container = &mut spec["containers"][0];
    container["volumeMounts"] = json!([{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}]);
    container["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    container["args"] = json!(["$(colour)"]);
    api.pod("configured", spec);
    api.until_ready("configured");
    let exec = |text: &str| lab.exec("configured", &["sh", "-c", text]);
    assert_eq!(exec("cat /etc/settings/colour; echo -$colour").unwrap(), "blue-blue\n");
    assert!(exec("echo x > /etc/settings/colour").is_err());
    // The token of a Pod is valid, but allows only a SelfSubjectReview.
    let ask = "curl -sS --max-time 5 --cacert $A/ca.crt -H \"Authorization: Bearer $(cat $A/token)\" \
               https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default/pods";
    let answer = exec(&format!("A=/var/run/secrets/kubernetes.io/serviceaccount; {ask}")).unwrap();
    assert!(answer.contains("system:serviceaccount:default:default"), "{answer}");
}

#[test]
fn a_pod_on_the_nodes_network_has_its_addresses() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let mut spec = script("node-2", "exec sleep 1000");
    spec["hostNetwork"] = json!(true);
    api.pod("on-node", spec);
    let addresses = api.until_ready("on-node");
    assert_eq!(addresses, ["192.168.1.12", "fd00:192:168:1::c"]);
    assert!(lab.exec("on-node", &["ip", "-br", "addr"]).unwrap().contains("192.168.1.12"));
}

#[test]
fn a_pod_without_a_network_waits_and_its_status_says_why() {
    let lab = Lab::start("no-network", 1);
    let api = lab.api();
    let mv = |from: &str, to: &str| lab.node("node-1", &["mv", from, to]).unwrap();
    let conflist = "/etc/cni/net.d/10-bridge.conflist";
    mv(conflist, "/etc/cni/away");
    api.pod("late", server("node-1"));
    let message =
        |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].clone();
    let waits =
        |pod: &serde_json::Value| message(pod).as_str().is_some_and(|text| text.contains("no CNI configuration"));
    api.until("late", "waiting for the network", waits);
    mv("/etc/cni/away", conflist);
    api.until_ready("late");
}
