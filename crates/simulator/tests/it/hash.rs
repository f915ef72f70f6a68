//! A hash of a packet is computed by the datapath: what comes behind it is read when all before it has been done.

use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};

use crate::compare::Twins;
use crate::conversation::SYN;

#[test]
fn a_flow_learned_after_a_hash_does_not_apply_to_earlier_recirculations() {
    let mut twins = Twins::new(&[1, 2, 3, 4]).unwrap();
    let learn = "learn(table=7,hard_timeout=600,priority=100,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[],\
        output:NXM_OF_IN_PORT[])";
    let flows = [
        format!("table=0,tcp actions=ct(table=3,zone=5),resubmit(,1),{learn}"),
        "table=1 actions=group:1".to_owned(),
        "table=3 actions=output:3,resubmit(,7)".to_owned(),
    ];
    let flows: Vec<Flow> = flows.iter().map(|flow| flow.parse().unwrap()).collect();
    let group = "group_id=1,type=select,selection_method=dp_hash,bucket=bucket_id:0,weight:1,actions=output:4";
    let group: Group = group.parse().unwrap();
    twins.install(&flows, &[group]).unwrap();
    let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let syn = Segment::Tcp(TcpSegment { src: 1000, dst: 80, flags: SYN, ..TcpSegment::default() });
    let outputs = [1, 2, 2].map(|port| {
        let packet = Packet::ip([2; 6], [4; 6], from, to, 64, &syn);
        let trace = twins.run(&Arrival::new(Port(port), packet)).unwrap().unwrap();
        trace.outputs().map(|(port, _)| port.0).collect::<Vec<_>>()
    });
    // The second is sent where the first came from, which is what was known then. The third goes nowhere by that: back to where
    // it comes from.
    assert_eq!(outputs, [vec![3, 4], vec![3, 1, 4], vec![3, 4]]);
}
