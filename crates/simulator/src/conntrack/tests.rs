use super::*;
use crate::packet::{Arrival, Segment, TcpSegment};

const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 16;
const FIN: u16 = 1;

struct Lab {
    ct: Conntrack,
    now: Time,
}

impl Lab {
    fn new() -> Self {
        Self { ct: Conntrack::new(), now: Time::ZERO }
    }

    fn track(&mut self, packet: &mut Packet, request: &Request) -> CtFields {
        let mut md = Remembered::default();
        self.ct.track(self.now, packet, &mut md, request);
        md.fields
    }

    /// The state of a packet that is committed.
    fn commit(&mut self, mut packet: Packet) -> CtState {
        self.track(&mut packet, &Request { commit: true, ..Request::default() }).state
    }
}

fn packet(text: &str) -> Packet {
    text.parse::<Arrival>().unwrap().packet
}

fn tcp(reply: bool, flags: u16, seq: u32, ack: u32, payload: usize) -> Packet {
    let (a, b) = (([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80));
    let (from, to) = if reply { (b, a) } else { (a, b) };
    let segment =
        TcpSegment { src: from.1, dst: to.1, seq, ack, flags, payload: vec![0; payload], ..TcpSegment::default() };
    Packet::ip([0; 6], [0; 6], from.0.into(), to.0.into(), 64, &Segment::Tcp(segment))
}

const UDP: &str = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=53";
const UDP_BACK: &str = "udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=53,tp_dst=1000";

const NEW: CtState = CtState::NEW.union(CtState::TRACKED);
const EST: CtState = CtState::ESTABLISHED.union(CtState::TRACKED);
const EST_REPLY: CtState = EST.union(CtState::REPLY);
const INVALID: CtState = CtState::INVALID.union(CtState::TRACKED);

#[test]
fn a_connection_is_new_until_the_first_reply() {
    let mut lab = Lab::new();
    assert_eq!(lab.commit(packet(UDP)), NEW);
    assert_eq!(lab.commit(packet(UDP)), NEW);
    assert_eq!(lab.commit(packet(UDP_BACK)), EST_REPLY);
    assert_eq!(lab.commit(packet(UDP)), EST);
    lab.now = Time::from_secs(30);
    assert_eq!(lab.commit(packet(UDP_BACK)), NEW, "forgotten, and opened from the other side");
}

#[test]
fn connections_need_a_commit_and_belong_to_one_zone() {
    let mut lab = Lab::new();
    assert_eq!(lab.track(&mut packet(UDP), &Request::default()).state, NEW);
    assert_eq!(lab.commit(packet(UDP_BACK)), NEW);
    let other = Request { zone: 7, ..Request::default() };
    assert_eq!(lab.track(&mut packet(UDP), &other).state, NEW);
    assert_eq!(lab.track(&mut packet(UDP), &Request::default()).state, EST_REPLY);
}

#[test]
fn a_tcp_connection_opens_closes_and_opens_again() {
    let mut lab = Lab::new();
    assert_eq!(lab.commit(tcp(false, SYN, 100, 0, 0)), NEW);
    assert_eq!(lab.commit(tcp(false, SYN, 100, 0, 0)), NEW);
    assert_eq!(lab.commit(tcp(true, SYN | ACK, 500, 101, 0)), EST_REPLY);
    assert_eq!(lab.commit(tcp(false, ACK, 101, 501, 0)), EST);
    assert_eq!(lab.commit(tcp(false, ACK, 101, 501, 100)), EST);
    assert_eq!(lab.commit(tcp(true, ACK | FIN, 501, 201, 0)), EST_REPLY);
    assert_eq!(lab.commit(tcp(false, ACK | FIN, 201, 502, 0)), EST);
    assert_eq!(lab.commit(tcp(true, ACK, 502, 202, 0)), EST_REPLY);
    assert_eq!(lab.commit(tcp(false, SYN, 9000, 0, 0)), NEW);
    assert_eq!(lab.ct.connections(lab.now).count(), 1);
}

#[test]
fn segments_outside_the_window_are_invalid() {
    let mut lab = Lab::new();
    assert_eq!(lab.commit(tcp(true, SYN | ACK, 500, 101, 0)), INVALID, "an answer to nothing");
    assert_eq!(lab.commit(tcp(false, SYN | FIN, 100, 0, 0)), INVALID);
    assert_eq!(lab.commit(tcp(false, 0, 100, 0, 0)), INVALID);
    lab.commit(tcp(false, SYN, 100, 0, 0));
    lab.commit(tcp(true, SYN | ACK, 500, 101, 0));
    lab.commit(tcp(false, ACK, 101, 501, 0));
    assert_eq!(lab.commit(tcp(false, ACK, 101 + 1_000_000, 501, 10)), INVALID, "far outside the window");
    assert_eq!(lab.commit(tcp(true, RST | ACK, 400_000, 101, 0)), INVALID, "a blind reset");
    assert_eq!(lab.commit(tcp(true, ACK, 501, 101, 10)), EST_REPLY);
    let mut wrong = tcp(false, ACK, 101, 511, 0).as_bytes().to_vec();
    wrong[52] ^= 1;
    assert_eq!(lab.commit(Packet::from_bytes(wrong)), INVALID, "a wrong checksum");
}

#[test]
fn an_icmp_echo_and_its_reply_are_one_connection() {
    let mut lab = Lab::new();
    let echo = packet("icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2,icmp_type=8");
    let answer = packet("icmp,nw_src=10.0.0.2,nw_dst=10.0.0.1,icmp_type=0");
    assert_eq!(lab.commit(answer.clone()), INVALID);
    assert_eq!(lab.commit(echo.clone()), NEW);
    assert_eq!(lab.commit(answer), EST_REPLY);
    assert_eq!(lab.commit(echo), EST);
    assert_eq!(lab.commit(packet("icmp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,icmpv6_type=135")), INVALID);
}

#[test]
fn an_error_belongs_to_the_connection_it_quotes() {
    let mut lab = Lab::new();
    let original = packet(UDP);
    let error = original.icmp_error("10.0.0.77".parse().unwrap(), 3, 1).unwrap();
    assert_eq!(lab.commit(error.clone()), INVALID);
    lab.commit(original);
    assert_eq!(lab.commit(error), CtState::RELATED | CtState::REPLY | CtState::TRACKED);
}

#[test]
fn a_forced_commit_reverses_the_connection() {
    let mut lab = Lab::new();
    lab.commit(packet(UDP));
    let force = Request { commit: true, force: true, ..Request::default() };
    assert_eq!(lab.track(&mut packet(UDP_BACK), &force).state, NEW);
    assert_eq!(lab.commit(packet(UDP)), EST_REPLY);
}

#[test]
fn mark_and_label_are_written_bit_by_bit() {
    let mut lab = Lab::new();
    let write = |mark, label| Request { commit: true, mark: Some(mark), label: Some(label), ..Request::default() };
    lab.track(&mut packet(UDP), &write((0x21, 0xff), (1 << 127, 1 << 127)));
    let fields = lab.track(&mut packet(UDP_BACK), &write((0x100, 0x100), (5, 0xf)));
    assert_eq!((fields.mark, fields.label), (0x121, 1 << 127 | 5));
    let original = fields.original.unwrap();
    assert_eq!((original.src_port, original.dst_port, original.proto), (1000, 53, 17));
}

#[test]
fn a_source_port_changes_only_if_it_is_in_use() {
    let mut lab = Lab::new();
    let snat =
        |address: &str| Nat { side: Some(NatSide::Src), address: Some(address.parse().unwrap()), ..Nat::default() };
    let request = Request { commit: true, nat: Some(snat("10.9.9.9")), ..Request::default() };
    let mut first = packet(UDP);
    let state = lab.track(&mut first, &request).state;
    assert_eq!((state, first.ports()), (NEW | CtState::SNAT, Some((1000, 53))));
    let mut second = packet(&UDP.replace("10.0.0.1", "10.0.0.7"));
    lab.track(&mut second, &request);
    assert_eq!((second.src().unwrap().to_string(), second.ports()), ("10.9.9.9".to_owned(), Some((1001, 53))));
    let mut back = packet("udp,nw_src=10.0.0.2,nw_dst=10.9.9.9,tp_src=53,tp_dst=1001");
    let nat = Request { nat: Some(Nat::default()), ..Request::default() };
    assert_eq!(lab.track(&mut back, &nat).state, EST_REPLY | CtState::DNAT);
    assert_eq!((back.dst().unwrap().to_string(), back.ports()), ("10.0.0.7".to_owned(), Some((53, 1000))));
    assert_eq!(lab.ct.flush(|conn| conn.original.src.to_string() == "10.0.0.7"), 1);
}

#[test]
fn an_icmpv6_error_about_a_translated_tcp_connection_loses_the_source_it_quotes() {
    let mut lab = Lab::new();
    let nat = Nat { side: Some(NatSide::Dst), address: Some("fd00::9".parse().unwrap()), ..Nat::default() };
    let request = Request { commit: true, nat: Some(nat), ..Request::default() };
    let text = |proto: &str| format!("{proto},ipv6_src=fd00::1,ipv6_dst=fd00::2,tp_src=1000,tp_dst=80");
    let quoted_source = |text: &str, lab: &mut Lab| {
        let mut first = packet(text);
        lab.track(&mut first, &request);
        let mut error = first.icmp_error(first.dst().unwrap(), 1, 0).unwrap();
        let undo = Request { nat: Some(Nat::default()), ..Request::default() };
        assert!(lab.track(&mut error, &undo).state.contains(CtState::RELATED | CtState::SNAT));
        assert!(error.checksums_hold());
        assert_eq!(error.src().unwrap().to_string(), "fd00::2");
        let quoted = error.quoted().unwrap();
        assert_eq!(error.quoted_address(&quoted, 1).unwrap().to_string(), "fd00::2");
        error.quoted_address(&quoted, 0).unwrap().to_string()
    };
    // As the switch does it. Of TCP it takes the beginning of the quoted source for the checksum.
    assert_eq!(quoted_source(&(text("tcp6") + ",tcp_flags=syn"), &mut lab), "fd07::1");
    assert_eq!(quoted_source(&text("udp6"), &mut lab), "fd00::1");
}
