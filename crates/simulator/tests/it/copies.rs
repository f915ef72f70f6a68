//! A copy of a packet is tracked, translated and sent, and the packet itself is not changed by it.

use openflow::flow::Flow;
use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};

use crate::compare::Twins;
use crate::conversation::SYN;

#[test]
fn actions_on_a_copy_leave_the_packet_as_it_was() {
    let mut twins = Twins::new(&[1, 2, 3, 4]).unwrap();
    let flows = [
        "table=0,tcp actions=dec_ttl,clone(set_field:10.0.0.9->ip_src,output:2,ct(commit,zone=5,nat(dst=10.0.0.7:81),\
         exec(set_field:7->ct_mark),table=2)),output:3,ct(zone=5,table=1)",
        "table=1,ct_state=+new,ct_mark=0 actions=output:3",
        "table=2,ct_mark=7 actions=output:4",
    ];
    let flows: Vec<Flow> = flows.iter().map(|flow| flow.parse().unwrap()).collect();
    twins.install(&flows, &[]).unwrap();
    let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let syn = Segment::Tcp(TcpSegment { src: 1000, dst: 80, flags: SYN, ..TcpSegment::default() });
    let packet = Packet::ip([2; 6], [4; 6], from, to, 64, &syn);
    // The twins compare the packets too.
    let trace = twins.run(&Arrival::new(Port(1), packet)).unwrap().unwrap();
    let mut outputs: Vec<u32> = trace.outputs().map(|(port, _)| port.0).collect();
    outputs.sort_unstable();
    assert_eq!(outputs, [2, 3, 3, 4]);
}
