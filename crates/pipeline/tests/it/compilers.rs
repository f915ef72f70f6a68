//! Flows that no reference document shows.

use std::net::IpAddr;

use openflow::flow::Flow;
use openflow::port::Port;
use pipeline::Pipeline;
use pipeline::model::{
    Address, Affinity, Applied, Datapath, Direction, Families, Features, Frontend, FrontendKind, Gateway, Mac, Mode,
    Node, Protocol, Rule, RuleAction, RuleKind, ServiceFrontend, Uplink,
};
use pipeline::tables::Table;

fn address(node: &str, gateway: &str, snat: &str, virtual_service: IpAddr, hairpin: IpAddr, pods: &str) -> Address {
    Address {
        node: node.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
        snat: snat.parse().unwrap(),
        virtual_service,
        hairpin,
        pod_cidr: pods.parse().unwrap(),
    }
}

/// A Node with both families.
fn node() -> Node {
    let v4 = (Address::VIRTUAL_SERVICE.into(), Address::HAIRPIN.into());
    let v6 = (Address::VIRTUAL_SERVICE6.into(), Address::HAIRPIN6.into());
    Node {
        mode: Mode::Encap,
        features: Features::default(),
        datapath: Datapath::System,
        gateway: Gateway { port: Port(2), mac: Mac([10, 0, 0, 0, 0, 1]) },
        uplink: None,
        tunnels: vec![Port(1)],
        tunnel_port: None,
        addresses: Families {
            v4: Some(address("192.168.77.100", "10.10.0.1", "10.10.0.254", v4.0, v4.1, "10.10.0.0/24")),
            v6: Some(address("fd00:77::100", "fd00:10::1", "fd00:10::fffe", v6.0, v6.1, "fd00:10::/64")),
        },
        node_port_addresses: Vec::new(),
        service_cidrs: Vec::new(),
        all_zero_snat: false,
        host_balances: false,
    }
}

/// The flows of a table, as text.
fn in_table(table: Table, flows: Vec<Flow>) -> Vec<String> {
    flows.iter().filter(|flow| flow.table == table.id()).map(ToString::to_string).collect()
}

#[track_caller]
fn assert_has(flows: &[String], wanted: &str) {
    assert!(flows.iter().any(|flow| flow == wanted), "no\n{wanted}\nin\n{}", flows.join("\n"));
}

#[test]
fn the_hosts_neighbour_solicitations_reach_the_responder() {
    let flows = in_table(Table::SpoofGuard, Pipeline::new(node()).base());
    assert_has(
        &flows,
        "table=10, priority=210,icmp6,in_port=2,dl_src=0a:00:00:00:00:01,ipv6_src=fd00:10::1,icmp_type=135,\
         icmp_code=0,nd_sll=0a:00:00:00:00:01 actions=resubmit(,21)",
    );
}

#[test]
fn snat_applies_to_every_tunnel_port() {
    let pipeline = Pipeline::new(Node { tunnels: vec![Port(1), Port(7)], ..node() });
    let flows = in_table(Table::ServiceConntrackCommit, pipeline.base());
    for port in ["0x1", "0x7"] {
        let matches = format!("table=106, priority=205,ct_state=+new+trk,ip,reg1={port} ");
        let flow = flows.iter().find(|flow| flow.starts_with(&matches)).unwrap();
        assert!(flow.ends_with(",ct(commit,table=108,zone=65521,nat(src=10.10.0.254))"), "{flow}");
    }
}

#[test]
fn a_service_without_local_endpoints_rejects_external_clients_only() {
    let kind = FrontendKind::NodePort { ipv6: false };
    let frontend = ServiceFrontend {
        frontend: Frontend { kind, port: 30001, local_only: true, clients: None },
        protocol: Protocol::Tcp,
        group: None,
        in_cluster_group: Some(9),
        drops: false,
        affinity: Some(Affinity { seconds: 300 }),
    };
    let flows = Pipeline::new(node()).frontend(&frontend, 0);
    let kinds: Vec<(u16, String)> =
        flows.iter().map(|flow| (flow.priority, flow.actions.last().unwrap().to_string())).collect();
    assert_eq!(kinds[0].0, 200);
    assert!(kinds[0].1.starts_with("controller("), "{kinds:?}");
    assert!(kinds[1..4].iter().all(|kind| *kind == (210, "group:9".to_owned())), "{kinds:?}");
    assert_eq!(kinds[4..], [(190, "resubmit(,42)".to_owned())]);
}

#[test]
fn pass_in_the_baseline_allows() {
    let pod = Applied { port: Port(3), addresses: vec!["10.10.0.2".parse().unwrap()] };
    let rule = Rule {
        id: 5,
        direction: Direction::Egress,
        kind: RuleKind::Baseline { priority: 100, action: RuleAction::Pass },
        applied_to: [pod].into(),
        peers: None,
        ports: None,
    };
    let flows = in_table(Table::EgressDefault, Pipeline::new(node()).rule(&rule));
    assert_has(&flows, "table=60, priority=100,conj_id=5,ip actions=resubmit(,61)");
}

#[test]
fn an_uplink_forwards_to_pods_only_in_modes_without_tunnels() {
    let classifier = |mode, antrea_proxy| {
        let features = Features { antrea_proxy, ..Features::default() };
        let uplink = Some(Uplink { port: Port(4) });
        in_table(Table::Classifier, Pipeline::new(Node { mode, features, uplink, ..node() }).base())
    };
    let to_pods = |flows: &[String]| flows.iter().filter(|flow| flow.contains("priority=210")).count();
    assert_eq!(to_pods(&classifier(Mode::Encap, true)), 0);
    assert_eq!(to_pods(&classifier(Mode::Hybrid, true)), 2);
    assert_has(
        &classifier(Mode::NoEncap, false),
        "table=0, priority=210,ip,in_port=4,nw_dst=10.10.0.0/24 \
         actions=set_field:0x4/0xf->reg0,set_field:aa:bb:cc:dd:ee:ff->eth_dst,resubmit(,30)",
    );
    assert_has(&classifier(Mode::Encap, true), "table=0, priority=200,in_port=LOCAL actions=output:4");
    assert_has(&classifier(Mode::Encap, true), "table=0, priority=200,in_port=4 actions=LOCAL");
}

#[test]
fn the_transport_bridge_passes_tunnel_packets_and_arp_of_the_switch_and_nothing_else() {
    let flows = |tunnel| {
        let bridge = pipeline::TransportBridge { uplink: Port(1), address: "192.168.77.100".parse().unwrap(), tunnel };
        bridge.flows().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        flows(types::network::TunnelPackets::Udp(6081)),
        [
            "table=0, priority=100,udp,in_port=1,nw_src=192.168.77.100 actions=IN_PORT",
            "table=0, priority=100,arp,in_port=1,arp_spa=192.168.77.100,arp_op=1 actions=IN_PORT",
            "table=0, priority=90,arp,in_port=1,arp_tpa=192.168.77.100,arp_op=2 actions=LOCAL",
            "table=0, priority=90,udp,in_port=1,nw_dst=192.168.77.100,tp_dst=6081 actions=LOCAL",
            "table=0, priority=0 actions=drop",
        ]
    );
    let gre = flows(types::network::TunnelPackets::Gre);
    assert_eq!(gre[0], "table=0, priority=100,ip,in_port=1,nw_src=192.168.77.100,nw_proto=47 actions=IN_PORT");
    assert_eq!(gre[3], "table=0, priority=90,ip,in_port=1,nw_dst=192.168.77.100,nw_proto=47 actions=LOCAL");
}
