use openflow::field::Field;

use super::*;
use crate::packet::Packet;

fn switch(flows: &str, groups: &[&str]) -> Simulator {
    let flows = flows.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| line.parse().unwrap());
    Simulator::new(flows, groups.iter().map(|group| group.parse().unwrap()))
}

fn run(switch: &mut Simulator, packet: &str) -> Trace {
    switch.run(Time::ZERO, &packet.parse().unwrap())
}

fn ports(trace: &Trace) -> Vec<u32> {
    trace.outputs().map(|(port, _)| port.0).collect()
}

fn reason(trace: &Trace) -> &Reason {
    match &trace.verdict {
        Verdict::Dropped(reason) => reason,
        Verdict::Sent(_) => panic!("not dropped\n{trace}"),
    }
}

const WEB: &str = "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80,tcp_flags=syn";

#[test]
fn a_trace_has_every_table_and_effect() {
    let mut switch = switch(
        "table=0,cookie=0x7,in_port=1 actions=set_field:0x2/0xf->reg0,resubmit(,5),resubmit(,6)
         table=5,priority=3,tcp actions=dec_ttl,move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]
         table=6,reg1=0x20 actions=output:2,output:1",
        &[],
    );
    let trace = run(&mut switch, WEB);
    assert_eq!(
        trace.explain(|flow| (flow.cookie == 7).then(|| "Pod default/web".to_owned())).to_string(),
        "in_port 1: tcp 10.0.0.1:1000 > 10.0.0.2:80 syn ttl 64 (00:00:00:00:00:00 > 00:00:00:00:00:00)
  0 32768 in_port=1 [Pod default/web]: reg0=0x2
   5     3 tcp: nw_ttl=63, reg1=0x20
   6 32768 reg1=0x20: output 2, output to port 1, by which it came in
=> port 2: tcp 10.0.0.1:1000 > 10.0.0.2:80 syn ttl 63 (00:00:00:00:00:00 > 00:00:00:00:00:00)
"
    );
}

#[test]
fn every_drop_has_its_reason() {
    let drop = |flows: &str, packet: &str| reason(&run(&mut switch(flows, &[]), packet)).clone();
    assert_eq!(drop("in_port=2 actions=output:1", WEB), Reason::NoFlow(0));
    assert_eq!(drop("actions=resubmit(,9)\ntable=9,ip actions=drop", WEB), Reason::FlowDrops(9));
    assert_eq!(drop("actions=set_field:1->reg0", WEB), Reason::NoOutput);
    assert_eq!(drop("actions=output:1", WEB), Reason::OutputToInPort(Port(1)));
    assert_eq!(drop("actions=group:3", WEB), Reason::NoGroup(3));
    assert_eq!(drop("ip actions=dec_ttl,output:2", &format!("{WEB},nw_ttl=1")), Reason::TtlExpired);
    assert_eq!(drop("actions=output:2,resubmit(,0)", WEB), Reason::TooDeep);
    let twice = "actions=resubmit(,1),resubmit(,1)";
    let many: String =
        (0..20).map(|t| format!("table={t} {}\n", twice.replace("(,1)", &format!("(,{})", t + 1)))).collect();
    assert_eq!(drop(&format!("{many}table=20 actions=output:2"), WEB), Reason::TooManyResubmits);
    assert_eq!(drop("ip actions=ct(table=0)", WEB), Reason::TooManyRecirculations);
    let with_ports = switch("actions=output:7", &[]).with_ports([Port(1), Port(2)]);
    assert_eq!(*reason(&run(&mut with_ports.clone(), WEB)), Reason::NoPort(Port(7)));
}

#[test]
fn a_dead_group_drops() {
    let mut switch = switch("actions=group:1", &["group_id=1,type=select,bucket=weight:0,actions=output:2"]);
    assert_eq!(*reason(&run(&mut switch, WEB)), Reason::NoBucket(1));
}

#[test]
fn buckets_get_copies_and_all_combinations_can_be_explored() {
    let groups = [
        "group_id=1,type=all,bucket=actions=set_field:1->reg0,resubmit(,1),bucket=actions=resubmit(,1)",
        "group_id=2,type=select,selection_method=dp_hash,bucket=bucket_id:5,actions=output:5,bucket=bucket_id:6,actions=resubmit(,2)",
        "group_id=3,type=select,selection_method=dp_hash,bucket=bucket_id:7,actions=output:7,bucket=bucket_id:8,actions=output:8",
    ];
    let flows = "table=0,in_port=1 actions=group:1,resubmit(,1)\ntable=0,in_port=2 actions=group:2
        table=1,reg0=1 actions=output:3\ntable=1,reg0=0 actions=output:4\ntable=2 actions=group:3";
    let mut all = switch(flows, &groups);
    assert_eq!(ports(&run(&mut all, WEB)), [3, 4, 4]);
    let arrival = WEB.replace("in_port=1", "in_port=2").parse().unwrap();
    let ways: Vec<_> = all.explore(Time::ZERO, &arrival).iter().map(|way| ports(&way.trace)).collect();
    assert_eq!(ways, [[5], [7], [8]]);
    let mut picked = all.with_choice(Choice::Picks([(2, 6), (3, 8)].into()));
    assert_eq!(ports(&picked.run(Time::ZERO, &arrival)), [8]);
}

#[test]
fn a_conversation_is_tracked_and_translated() {
    let mut switch = switch(
        "table=0,ip actions=ct(table=1,zone=5,nat)
         table=1,ct_state=+new+trk,ip,in_port=1 actions=ct(commit,table=2,zone=5,nat(dst=10.0.0.9:8080),exec(set_field:0x21->ct_mark))
         table=1,ct_state=-new+est+trk,ct_mark=0x21,ip actions=resubmit(,2)
         table=1,ct_state=+rel+trk,ct_mark=0x21,ip actions=resubmit(,2)
         table=2,in_port=1 actions=output:2
         table=2,in_port=2 actions=output:1",
        &[],
    );
    let only = |trace: &Trace| -> Packet {
        let outputs: Vec<_> = trace.outputs().collect();
        assert_eq!(outputs.len(), 1, "{trace}");
        outputs[0].1.clone()
    };
    let syn = only(&run(&mut switch, WEB));
    assert_eq!((syn.get(Field::Ipv4Dst), syn.get(Field::TcpDst)), (0x0a00_0009, 8080));
    let back = "in_port=2,tcp,nw_src=10.0.0.9,nw_dst=10.0.0.1,tp_src=8080,tp_dst=1000,tcp_flags=syn|ack";
    let answer = only(&run(&mut switch, back));
    assert_eq!((answer.get(Field::Ipv4Src), answer.get(Field::TcpSrc)), (0x0a00_0002, 80));
    let error = syn.icmp_error("10.0.0.9".parse().unwrap(), 3, 3).unwrap();
    let error = only(&switch.run(Time::ZERO, &Arrival::new(Port(2), error)));
    assert!(error.checksums_hold());
    let quoted = error.quoted().unwrap();
    assert_eq!(error.quoted_address(&quoted, 1).unwrap().to_string(), "10.0.0.2");
    assert_eq!(error.src().unwrap().to_string(), "10.0.0.2");
    let connections: Vec<_> = switch.conntrack().connections(Time::ZERO).collect();
    assert_eq!((connections.len(), connections[0].mark, connections[0].reply.src_port), (1, 0x21, 8080));
    assert_eq!(switch.conntrack_mut().flush_zone(5), 1);
    assert_eq!(*reason(&run(&mut switch, back)), Reason::NoFlow(1));
}

#[test]
fn a_learned_flow_applies_to_the_next_pass() {
    let mut switch = switch(
        "table=0,tcp actions=learn(table=4,hard_timeout=10,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[],load:0x1->NXM_NX_REG1[]),resubmit(,4),resubmit(,5)
         table=5 actions=output:NXM_NX_REG1[]",
        &[],
    );
    let at = |switch: &mut Simulator, seconds| {
        let trace = switch.run(Time::from_secs(seconds), &WEB.replace("in_port=1", "in_port=3").parse().unwrap());
        ports(&trace)
    };
    assert_eq!(at(&mut switch, 0), [0]);
    assert_eq!(at(&mut switch, 1), [1]);
    assert_eq!(switch.tables().len(), 3);
    // The packet before was the last that could refresh it.
    assert_eq!(at(&mut switch, 12), [0]);
}

#[test]
fn the_controller_gets_the_packet_as_changed_so_far() {
    let mut switch = switch("ip actions=dec_ttl,controller(userdata=01.02,pause),output:2", &[]);
    let Verdict::Sent(sent) = run(&mut switch, WEB).verdict else { panic!() };
    let [Sent::Controller { how, packet, .. }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&how.userdata[..], packet.get(Field::IpTtl)), (&[1, 2][..], 63));
}
