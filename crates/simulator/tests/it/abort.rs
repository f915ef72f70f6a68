//! The switch aborts where the simulator predicts it.

use openflow::flow::Flow;
use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};
use testkit::wait::{TIMEOUT, until};

use crate::compare::Twins;

const FIN: u16 = 1;
const SYN: u16 = 2;
const ACK: u16 = 16;

/// From the client at port 1, or from the server at port 2.
fn tcp(client: bool, flags: u16, seq: u32, ack: u32) -> Arrival {
    let (a, b) = (([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80));
    let (from, to) = if client { (a, b) } else { (b, a) };
    let segment = Segment::Tcp(TcpSegment { src: from.1, dst: to.1, flags, seq, ack, ..TcpSegment::default() });
    let packet = Packet::ip([2; 6], [4; 6], from.0.into(), to.0.into(), 64, &segment);
    Arrival::new(Port(if client { 1 } else { 2 }), packet)
}

#[test]
fn reusing_a_port_after_nat_to_the_same_address_aborts_the_switch() {
    // As when a host with the address of the gateway is translated to the address of the gateway.
    reusing_a_port_aborts_the_switch("nat(src=10.0.0.1)");
}

#[test]
fn reusing_a_port_after_nat_without_an_address_aborts_the_switch() {
    // If this fails, Open vSwitch is newer, and `Node::all_zero_snat` can be used in userspace (docs/decisions, 40).
    reusing_a_port_aborts_the_switch("nat(src)");
}

fn reusing_a_port_aborts_the_switch(nat: &str) {
    let flows = [
        &format!("table=0,in_port=1,tcp actions=ct(commit,table=1,zone=5,{nat})"),
        "table=0,in_port=2,tcp actions=ct(table=1,zone=5,nat)",
        "table=1,in_port=1 actions=output:2",
        "table=1,in_port=2 actions=output:1",
    ];
    let flows: Vec<Flow> = flows.iter().map(|flow| flow.parse().unwrap()).collect();
    let mut twins = Twins::new(&[1, 2]).unwrap();
    twins.install(&flows, &[]).unwrap();
    let conversation = [
        tcp(true, SYN, 100, 0),
        tcp(false, SYN | ACK, 500, 101),
        tcp(true, ACK, 101, 501),
        tcp(true, FIN | ACK, 101, 501),
        tcp(false, FIN | ACK, 501, 102),
        tcp(true, ACK, 102, 502),
        tcp(true, SYN, 9000, 0),
    ];
    for packet in &conversation {
        assert!(twins.run(packet).unwrap().is_some());
    }
    let again = tcp(true, SYN, 9000, 0);
    assert!(twins.run(&again).unwrap().is_none(), "the simulator warns");
    // The answer to the control command may be lost together with the switch.
    let _ = twins.inject(&again);
    until("the end of the switch", TIMEOUT, || (!twins.alive()).then_some(())).unwrap();
}
