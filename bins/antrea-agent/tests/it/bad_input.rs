//! Invalid input and missing components are reported, and leave nothing behind.

use api::cni::Code;
use api::cni::request::Command;
use serde_json::json;
use testkit::Netns;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, PROGRAM, SUBNETS, call};

#[test]
fn a_node_without_a_pod_subnet_is_waited_for() {
    let mut node = Node::without_agent("", &[]);
    node.start_agent();
    node.wait_log("Node n1: spec.podCIDR: is missing");
    assert_eq!(node.cni(&Command::Status).unwrap_err().code, Code::NotAvailable);
    let subnet = json!({"spec": {"podCIDR": "10.10.1.0/24", "podCIDRs": ["10.10.1.0/24"]}});
    node.api.local().patch("v1", "nodes", "", "n1", "", apiserver::Patch::Merge, &subnet).unwrap();
    node.wait_ready();
    node.add("web");
}

#[test]
fn a_switch_that_is_not_there_is_waited_for() {
    let mut node = Node::without_agent("", &SUBNETS);
    node.ovs.kill_vswitchd().unwrap();
    node.start_agent();
    node.wait_log("waiting for Open vSwitch");
    node.ovs.start_vswitchd().unwrap();
    node.wait_ready();
}

#[test]
fn an_agent_that_starts_before_open_vswitch_waits_and_is_alive() {
    let mut node = Node::without_agent("", &SUBNETS);
    let socket = node.ovs.dir().join("db.sock");
    let elsewhere = socket.with_file_name("elsewhere.sock");
    std::fs::rename(&socket, &elsewhere).unwrap();
    node.start_agent();
    node.wait_log("waiting for Open vSwitch");
    assert!(node.log().contains(&socket.display().to_string()), "{}", node.log());
    assert_eq!(node.ask("/readyz"), (503, "waiting for Open vSwitch\n".to_owned()));
    assert_eq!(node.ask("/livez"), (200, "ok\n".to_owned()));
    std::fs::rename(&elsewhere, &socket).unwrap();
    node.wait_ready();
}

#[test]
fn an_api_that_does_not_answer_is_named_with_the_key_for_clusters_without_kube_proxy() {
    let mut node = Node::without_agent("kubeAPIServerOverride: https://127.0.0.9:6443", &SUBNETS);
    node.start_agent();
    node.wait_log("watch failed; retrying until the Kubernetes API answers");
    assert!(node.log().contains("Connection refused"), "{}", node.log());
    let waits = "waiting for the Kubernetes API at 127.0.0.9; without kube-proxy, kubeAPIServerOverride must be set";
    node.wait_log(waits);
    assert_eq!(node.ask("/readyz"), (503, format!("{waits}\n")));
    assert_eq!(node.ask("/livez"), (200, "ok\n".to_owned()));
}

/// As in a container: `/proc/sys` is read-only. The Node's may be mounted elsewhere.
#[test]
fn read_only_sysctls_are_reported_until_those_of_the_node_are_mounted() {
    let mut node = Node::without_agent("", &SUBNETS);
    let elsewhere = node.ovs.dir().join("host");
    std::fs::create_dir_all(elsewhere.join("proc/sys/net")).unwrap();
    let mounts = format!(
        "mount --bind /proc/sys/net {}/proc/sys/net && mount --bind /proc/sys /proc/sys && \
         mount -o remount,bind,ro /proc/sys && exec {PROGRAM} \"$@\"",
        elsewhere.display()
    );
    let in_container = |node: &Node| {
        let mut command = node.netns.command("unshare");
        command.args(["--mount", "sh", "-c", &mounts, "sh"]);
        command
    };
    node.start_agent_by(in_container(&node));
    node.wait_log("cannot set sysctl");
    until("the agent is not ready, and says why", TIMEOUT, || {
        let (code, body) = node.ask("/readyz");
        (code == 503 && body.contains("cannot set sysctl") && body.contains("Read-only file system")).then_some(())
    })
    .unwrap();

    node.kill_agent();
    node.configure(&format!("hostProcPathPrefix: {}", elsewhere.display()));
    node.start_agent_by(in_container(&node));
    node.wait_ready();
}

#[test]
fn an_agent_that_may_not_touch_the_kernel_says_so_and_leaves_nothing() {
    let mut node = Node::without_agent("", &SUBNETS);
    let mut command = node.netns.command("setpriv");
    let without = "-net_admin,-sys_admin";
    command.arg(format!("--bounding-set={without}")).arg(format!("--inh-caps={without}")).arg(PROGRAM);
    node.start_agent_by(command);
    node.wait_log("waiting for nftables rules; no Pod is attached before");
    let (code, body) = node.ask("/readyz");
    assert!(code == 503 && body.contains("needs root, or the capabilities NET_ADMIN and SYS_ADMIN"), "{code}: {body}");
    let (netns, before) = (Netns::new().unwrap(), node.traces());
    let error = node.cni(&Command::Add(call("web", &netns.path()))).unwrap_err();
    assert_eq!(error.code, Code::TryAgainLater, "{error}");
    assert_eq!(node.traces(), before);
}

#[test]
fn a_full_subnet_says_so_and_has_room_again_when_a_pod_goes() {
    let node = Node::start_with("", &["10.10.1.0/29"]);
    let pods: Vec<_> = (0..4).map(|n| node.add(&format!("p{n}"))).collect();
    let netns = Netns::new().unwrap();
    let one_more = || node.cni(&Command::Add(call("one-more", &netns.path())));
    let traces = node.traces();
    let error = one_more().unwrap_err();
    assert_eq!(error.code, Code::Ipam);
    assert!(error.message.starts_with("all 4 addresses of "), "{error}");
    assert_eq!(node.traces(), traces);
    node.del(&pods[2]);
    let made = one_more().unwrap().unwrap();
    assert_eq!(made.ips[0].address.addr(), pods[2].v4);
}

#[test]
fn two_nodes_with_one_subnet_are_reported_and_the_first_keeps_it() {
    let node = Node::start("");
    let add = |name: &str, cidr: &str, ip: &str| {
        let peer = json!({"metadata": {"name": name}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
        node.api.local().create("v1", "nodes", "", peer).unwrap();
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
        node.api.local().patch("v1", "nodes", "", name, "status", apiserver::Patch::Merge, &status).unwrap();
    };
    add("n2", "10.10.2.0/24", "192.168.77.2");
    add("n3", "10.10.2.0/25", "192.168.77.3");
    let expected = "Node n3: spec.podCIDRs: 10.10.2.0/25 overlaps 10.10.2.0/24 of Node n2, which keeps it; \
                    its Pods are unreachable until the Node is recreated with another podCIDR";
    let reported = || (node.ask_json("/v1/agentinfo")["problems"] == json!([expected])).then_some(());
    until("the agent reports it", TIMEOUT, reported).unwrap();
    node.wait_log(expected);
}

#[test]
fn a_tunnel_that_the_datapath_cannot_make_is_refused() {
    let mut node = Node::without_agent("tunnelType: stt", &SUBNETS);
    node.start_agent();
    node.wait_ended();
    node.wait_log("tunnelType: stt needs the kernel datapath");
}

#[test]
fn a_node_whose_address_no_device_has_is_refused() {
    let mut node = Node::without_agent("", &SUBNETS);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.99.9"}]}});
    node.api.local().patch("v1", "nodes", "", "n1", "status", apiserver::Patch::Merge, &status).unwrap();
    node.start_agent();
    node.wait_ended();
    node.wait_log("Node n1: no device of this host has its InternalIP 192.168.99.9; is NODE_NAME right?");
}
