//! The lifecycle of Pods: probes, restarts, init containers, deletion.

use serde_json::{Value, json};
use testkit::wait::until;

use crate::lab::{Lab, TIMEOUT, is_ready, output, script, server};

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[test]
fn a_command_runs_in_its_own_namespaces_and_exec_returns_its_exit_code() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let mut spec = script("node-1", "echo hello from $POD_NAME at $POD_IP; exec sleep 1000");
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    spec["containers"][0]["env"] = json!([field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP")]);
    api.pod("exec", spec);
    let address = api.until_ready("exec").remove(0);
    let exec = |text: &str| lab.exec("exec", &["sh", "-c", text]);
    assert_eq!(exec("hostname").unwrap(), "exec\n");
    assert_eq!(exec("echo $POD_NAME").unwrap(), "exec\n");
    assert!(exec("cat /proc/1/cmdline").unwrap().contains("antrea-lab"));
    let marker = format!("/usr/antrea-lab-test-{}", std::process::id());
    exec(&format!("echo x > {marker} && cat {marker}")).unwrap();
    assert!(!std::path::Path::new(&marker).exists(), "the host's files are its own");
    assert!(exec("exit 7").unwrap_err().starts_with("Some(7)"));
    let log = output(&lab.run("logs", ["exec"])).unwrap();
    assert_eq!(log, format!("hello from exec at {address}\n"));
    assert!(lab.exec("missing", &["true"]).unwrap_err().contains("there is no Pod missing"));
}

#[test]
fn readiness_probes_decide_readiness_and_liveness_probes_restart() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let mut spec = script("node-2", "touch /tmp/alive; exec sleep 1000");
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 2, "initialDelaySeconds": 1});
    api.pod("probed", spec);
    let running = |pod: &Value| container(pod)["state"]["running"].is_object();
    let pod = api.until("probed", "running", running);
    assert!(!is_ready(&pod));
    lab.exec("probed", &["touch", "/tmp/ready"]).unwrap();
    api.until("probed", "ready", is_ready);
    lab.exec("probed", &["rm", "/tmp/ready"]).unwrap();
    api.until("probed", "unready", |pod| !is_ready(pod));
    lab.exec("probed", &["rm", "/tmp/alive"]).unwrap();
    // After the restart the file system is fresh, so it is alive again.
    let pod = api.until("probed", "restarted", |pod| container(pod)["restartCount"] == 1 && running(pod));
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 143);
}

#[test]
fn tcp_and_http_probes_connect_from_the_node() {
    let api = Lab::shared().api();
    let mut spec = server("node-3");
    spec["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 80}]);
    spec["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": "web"}, "periodSeconds": 1});
    spec["containers"][0]["readinessProbe"] = json!({"httpGet": {"port": 80, "path": "/healthz"}, "periodSeconds": 1});
    api.pod("probed-web", spec);
    api.until_ready("probed-web");
    let mut wrong = server("node-3");
    wrong["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 80, "path": "/nothing"}, "periodSeconds": 1, "failureThreshold": 1});
    api.pod("probed-wrong", wrong);
    api.until("probed-wrong", "running", |pod| container(pod)["started"] == true);
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(api.client.clone(), "default");
    let has_event = || {
        let list = api.wait(events.list(&kube::api::ListParams::default())).unwrap();
        let mut of_pod = list.iter().filter(|event| event.involved_object.name.as_deref() == Some("probed-wrong"));
        of_pod.any(|event| event.message.as_ref().is_some_and(|text| text.contains("status 404"))).then_some(())
    };
    until("an event about the probe", TIMEOUT, has_event).unwrap();
    assert!(!is_ready(&api.get("probed-wrong").unwrap()));
}

#[test]
fn a_failed_container_is_restarted_and_its_log_is_kept() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    api.pod("crash", script("node-1", "echo run; exit 3"));
    let pod = api.until("crash", "restarted", |pod| container(pod)["restartCount"].as_u64() >= Some(1));
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(output(&lab.run("logs", ["crash", "--previous"])).unwrap(), "run\n");
    for (code, phase) in [(0, "Succeeded"), (1, "Failed")] {
        let name = format!("once-{code}");
        let mut spec = script("node-1", &format!("exit {code}"));
        spec["restartPolicy"] = json!("Never");
        api.pod(&name, spec);
        let pod = api.until(&name, phase, |pod| pod["status"]["phase"] == phase);
        assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], code);
    }
}

#[test]
fn a_missing_command_and_an_unknown_image_have_a_status_that_says_what_to_do() {
    let api = Lab::shared().api();
    let pod = |name: &str, container: Value| {
        api.pod(name, json!({"nodeName": "node-1", "containers": [container]}));
    };
    pod("no-image", json!({"name": "c", "image": "postgres:16"}));
    let message = |pod: &Value| container(pod)["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
    let found =
        api.until("no-image", "waiting", |pod| container(pod)["state"]["waiting"]["reason"] == "ErrImageNeverPull");
    assert!(message(&found).contains("give the container a `command`"), "{found}");
    pod("no-command", json!({"name": "c", "image": "x", "command": ["/no/such/program"]}));
    let found =
        api.until("no-command", "waiting", |pod| container(pod)["state"]["waiting"]["reason"] == "RunContainerError");
    assert!(message(&found).contains("/no/such/program"), "{found}");
    pod("no-map", json!({"name": "c", "image": "nginx", "envFrom": [{"configMapRef": {"name": "nowhere"}}]}));
    let found = api
        .until("no-map", "waiting", |pod| container(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError");
    assert_eq!(message(&found), "configmap \"nowhere\" not found");
}

#[test]
fn a_deleted_pod_gets_its_grace_period_and_leaves_no_namespace_and_no_address() {
    let (lab, api) = (Lab::shared(), Lab::shared().api());
    let marker = lab.home.node("node-2").join("said-goodbye");
    // The Node's files under the lab's directory are the same inside.
    let mut spec = script("node-2", "trap 'echo bye > /out/said-goodbye; exit 0' TERM; while :; do sleep 0.1; done");
    spec["volumes"] = json!([{"name": "out", "hostPath": {"path": marker.parent()}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "out", "mountPath": "/out"}]);
    api.pod("ending", spec);
    let address = api.until_ready("ending").remove(0);
    let namespaces = || lab.node("node-2", &["ls", "/run/netns"]).unwrap();
    let addresses = || lab.node("node-2", &["ls", "/var/lib/cni/networks/lab"]).unwrap();
    let (here, held) = (namespaces(), addresses());
    assert!(held.contains(&address), "{address} in {held}");
    // The IPAM file of the address contains the container id, which is part of the path of the namespace.
    let holder = lab.node("node-2", &["head", "-n1", &format!("/var/lib/cni/networks/lab/{address}")]).unwrap();
    let holder = holder.trim().to_owned();
    assert!(here.contains(&holder), "{holder} in {here}");
    api.delete("ending");
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "bye\n");
    assert!(!namespaces().contains(&holder) && !addresses().contains(&address));
    assert!(!lab.home.pod("node-2", "default", "ending").exists());
}
