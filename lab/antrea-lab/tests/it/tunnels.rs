//! Tunnels between the Nodes' switches: no loss while routes change, and recovery after a restart of the switch.

use std::time::Duration;

use testkit::wait::until;

use crate::lab::{Lab, TIMEOUT};

/// Connects a bridge on each of two Nodes by a tunnel, as a network would.
fn connect(lab: &Lab, kind: &str, number: u8, nodes: [(&str, &str); 2]) {
    let [(a, a_ip), (b, b_ip)] = nodes;
    for (node, peer, host) in [(a, b_ip, 1), (b, a_ip, 2)] {
        let commands = format!(
            "ovs-vsctl add-br br-{kind} -- set bridge br-{kind} datapath_type=netdev -- add-port br-{kind} tun-{kind} \
             -- set interface tun-{kind} type={kind} options:remote_ip={peer} options:key={number} && \
             ip addr add 10.99.{number}.{host}/24 dev br-{kind} && ip link set br-{kind} mtu 1400 up && \
             ethtool -K br-{kind} tx off >/dev/null"
        );
        lab.node(node, &["sh", "-c", &commands]).unwrap();
    }
}

#[test]
fn tunnels_of_every_protocol_work_and_recover_after_a_restart_of_the_switch() {
    let lab = &Lab::start("tunnels", 3);
    // Two in a subnet, and one behind the router.
    let [first, near, far] = [("node-1", "192.168.1.11"), ("node-2", "192.168.1.12"), ("node-3", "192.168.2.13")];
    connect(lab, "geneve", 1, [first, far]);
    connect(lab, "vxlan", 2, [first, near]);
    connect(lab, "gre", 3, [near, far]);
    let ping = |from: &str, number: u8| {
        let to = format!("10.99.{number}.2");
        lab.node(from, &["ping", "-n", "-c", "1", "-W", "1", &to]).ok()
    };
    let all = [("node-1", 1), ("node-1", 2), ("node-2", 3)];
    for (from, number) in all {
        until(format_args!("an answer through tunnel {number}"), TIMEOUT, || ping(from, number)).unwrap();
    }
    // On the wire it is encapsulated, and the kernel of the other Node does not complain to the sender.
    let seen = std::thread::scope(|scope| {
        let capture = ["timeout", "10", "tcpdump", "-lni", "br-a", "-c", "6", "udp port 6081 or icmp"];
        let wire = scope.spawn(move || lab.node("fabric", &capture).unwrap());
        until("six packets on the wire", TIMEOUT, || {
            ping("node-1", 1);
            wire.is_finished().then_some(())
        })
        .unwrap();
        wire.join().unwrap()
    });
    assert!(seen.contains(".6081: Geneve") && !seen.contains("unreachable"), "{seen}");

    // Routes that come and go, as those of Nodes that join do, are no reason to lose a packet.
    let answers = std::thread::scope(|scope| {
        let changes = "for i in $(seq 200); do ip route add 10.98.0.0/24 dev eth0; ip route del 10.98.0.0/24; done";
        let changes = scope.spawn(move || lab.node("node-1", &["sh", "-c", changes]).unwrap());
        let ping = ["ping", "-nq", "-i", "0.01", "-c", "200", "10.99.1.2"];
        let answers = lab.node("node-1", &ping).unwrap();
        changes.join().unwrap();
        answers
    });
    assert!(answers.contains("200 received"), "{answers}");

    let before = lab.node("node-1", &["pidof", "ovs-vswitchd"]).unwrap();
    lab.node("node-1", &["kill", "-KILL", before.trim()]).unwrap();
    let restarted = || lab.node("node-1", &["pidof", "ovs-vswitchd"]).ok().filter(|now| *now != before);
    until("a new ovs-vswitchd", TIMEOUT, restarted).unwrap();
    for (from, number) in all {
        let back =
            until(format_args!("tunnel {number} after the restart"), Duration::from_secs(20), || ping(from, number));
        back.unwrap();
    }
}
