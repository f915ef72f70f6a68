//! Restarts of agents and switches.

use std::process::Stdio;

use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, reaches};

#[test]
fn a_killed_agent_sends_no_flows_at_its_next_start_and_loses_no_packet() {
    let mut node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    assert!(reaches(&one.netns, two.v4));
    let before = node.flows();
    let mut ping = one.netns.command("ping");
    ping.args(["-c", "100", "-i", "0.02", "-W", "2", &two.v4.to_string()]).stdout(Stdio::piped());
    let ping = ping.spawn().unwrap();
    node.kill_agent();
    assert_eq!(node.flows(), before, "the switch works without an agent");
    node.start_agent();
    node.wait_ready();
    let pings = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
    assert!(pings.contains("100 received"), "{pings}");
    assert_eq!(node.flows(), before);
    let sent = |operation: &str| node.metric(&format!("antrea_agent_ovs_flow_ops_count{{operation=\"{operation}\"}}"));
    assert_eq!((sent("add"), sent("delete")), (0, 0));
    assert_eq!(node.metric("antrea_agent_local_pod_count"), 2);
    node.del(&one);
    node.del(&two);
    node.no_traces();
}

#[test]
fn a_switch_that_was_killed_gets_everything_back() {
    let node = Node::start("");
    let gone = node.add("gone");
    let (one, two) = (node.add("one"), node.add("two"));
    assert!(reaches(&one.netns, two.v4));
    // With an unused port number in between.
    node.del(&gone);
    let is_gone = || (!node.flows().iter().any(|flow| flow.contains(&gone.v4.to_string()))).then_some(());
    until("its flows are gone", TIMEOUT, is_gone).unwrap();
    let before = node.flows();
    node.ovs.kill_vswitchd().unwrap();
    node.ovs.start_vswitchd().unwrap();
    until("the flows are back", TIMEOUT, || (node.flows() == before).then_some(())).unwrap();
    assert!(reaches(&one.netns, two.v4) && reaches(&two.netns, one.v6));
    let three = node.add("three");
    assert!(reaches(&three.netns, one.v4));
}

#[test]
fn a_switch_that_waits_for_flows_goes_on_when_it_has_all_of_them() {
    let node = Node::start("");
    let flows = || node.ovs.ofctl(["dump-flows", "br-int"]).unwrap().matches("actions=").count();
    let before = flows();
    node.ovs.kill_vswitchd().unwrap();
    // As the script that starts ovs-vswitchd does.
    let wait = ["--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true"];
    node.ovs.vsctl(wait).unwrap();
    node.ovs.start_vswitchd().unwrap();
    let get = ["--if-exists", "get", "Open_vSwitch", ".", "other_config:flow-restore-wait"];
    until("the removal of flow-restore-wait", TIMEOUT, || node.ovs.vsctl(get).unwrap().trim().is_empty().then_some(()))
        .unwrap();
    assert!(flows() >= before, "{} of {before} flows", flows());
}

#[test]
fn a_pod_that_vanished_while_no_agent_ran_is_cleaned_up_at_the_next_start() {
    let mut node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    node.kill_agent();
    // Deleting the network namespace deletes the veth.
    let name = one.attachment.host().unwrap().name.clone();
    drop(one);
    let gone = || node.netns.ip(["link", "show", "dev", &name]).is_err().then_some(());
    until("the kernel removes the device", TIMEOUT, gone).unwrap();
    node.start_agent();
    node.wait_ready();
    let interfaces = node.ask_json("/v1/podinterfaces");
    assert_eq!(interfaces.as_array().unwrap().len(), 1, "{interfaces}");
    node.del(&two);
    node.no_traces();
}

#[test]
fn what_was_detached_is_gone_when_the_agent_has_stopped() {
    let mut node = Node::start("");
    let pods: Vec<_> = ["one", "two", "three"].map(|name| node.add(name)).into();
    for pod in &pods {
        node.del(pod);
    }
    node.stop_agent();
    assert_eq!(node.traces(), Vec::<String>::new());
}

#[test]
fn a_veth_without_a_port_is_removed_at_the_next_start() {
    let mut node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    node.kill_agent();
    // As if it had been killed between the response to DEL and the removal of the veth.
    let name = one.attachment.host().unwrap().name.clone();
    node.ovs.vsctl(["del-port", "br-int", &name]).unwrap();
    node.start_agent();
    node.wait_ready();
    let links = node.netns.ip(["link"]).unwrap();
    assert!(!links.contains(&name), "{links}");
    assert!(reaches(&two.netns, "10.10.1.1".parse().unwrap()));
    node.del(&two);
    node.no_traces();
}

#[test]
fn probes_metrics_and_views_do_not_wait_for_a_switch_that_hangs() {
    let node = Node::start("");
    let _pod = node.add("one");
    let signal = |name: &str| {
        let pid = node.ovs.vswitchd_pid().unwrap().to_string();
        testkit::process::run(std::process::Command::new("kill").args([name, &pid]), None).unwrap();
    };
    let before = node.flows();
    let count = || node.metric("antrea_agent_ovs_total_flow_count");
    let desired = count();
    signal("-STOP");
    let spec = serde_json::json!({"clusterIP": "10.96.7.7", "ports": [{"port": 80}]});
    let service = serde_json::json!({"metadata": {"name": "late"}, "spec": spec});
    node.api.local().create("v1", "services", "default", service).unwrap();
    // The agent waits for the commit of these flows.
    let is_in_flight = || (count() > desired).then_some(());
    until("flows for the Service", TIMEOUT, is_in_flight).unwrap();
    let started = std::time::Instant::now();
    for path in ["/livez", "/metrics", "/v1/agentinfo", "/v1/podinterfaces", "/v1/ovsflows", "/v1/networkpolicies"] {
        assert_eq!(node.ask(path).0, 200, "{path}");
    }
    // A request to the switch times out after 30 s.
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    signal("-CONT");
    until("the flows are in the switch", TIMEOUT, || (node.flows().len() > before.len()).then_some(())).unwrap();
}

#[test]
fn an_agent_waits_for_an_ovsdb_that_is_not_initialised() {
    let mut node = Node::without_agent("", &crate::fixture::SUBNETS);
    // As between the start of ovsdb-server and `ovs-vsctl init`.
    let root = r#"["Open_vSwitch", {"op": "delete", "table": "Open_vSwitch", "where": []}]"#;
    let socket = format!("unix:{}", node.ovs.db_socket().display());
    let mut client = std::process::Command::new("ovsdb-client");
    testkit::process::run(client.args(["transact", &socket, root]), None).unwrap();
    node.start_agent();
    node.wait_log("waiting for Open vSwitch");
    node.ovs.vsctl(["--no-wait", "init"]).unwrap();
    node.wait_ready();
    let (one, two) = (node.add("one"), node.add("two"));
    assert!(reaches(&one.netns, two.v4));
}
