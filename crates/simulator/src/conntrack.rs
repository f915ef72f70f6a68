//! Connection tracking with address translation, as the userspace datapath of Open vSwitch does it.
//!
//! A connection is new until the other side has answered (`+new` again and again for packets of the same side before
//! that), then established. TCP follows sequence numbers and windows. An ICMP error belongs (`+rel`) to the connection of
//! the packet it quotes. Wrong checksums, port 0, replies to nothing (an echo reply, a SYN+ACK) and segments outside the
//! window are invalid.
//!
//! Open vSwitch 3.1 damages ICMPv6 errors about translated TCP and UDP connections, and so does this: it corrects the
//! checksum of the error where TCP or UDP would have theirs. That is the beginning of the source that a TCP error quotes,
//! so its receiver cannot find the connection, and the MTU in a UDP error.
//!
//! Where the switch uses a hash or a random number (an address or port out of a range, a port after 128 collisions), the
//! first free one is taken here. Not modelled: reassembly of fragments (they are invalid here),
//! helpers for FTP and TFTP, limits of zones, timeout policies other than the default one.

mod key;
mod nat;
mod tcp;

use std::collections::BTreeMap;
use std::net::IpAddr;

use bitflags::bitflags;
use openflow::action::{Nat, NatSide};
use openflow::matching::ip_proto;

use crate::fields::CtFields;
use crate::packet::Packet;
use crate::tables::Time;
use key::{Extracted, Key};

bitflags! {
    /// The state of a packet, as `ct_state` shows it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CtState: u8 {
        /// It opens a connection, or belongs to one without a reply so far.
        const NEW = 0x01;
        /// It belongs to a connection with a reply.
        const ESTABLISHED = 0x02;
        /// An ICMP error about a connection.
        const RELATED = 0x04;
        /// It is in the reply direction.
        const REPLY = 0x08;
        /// It cannot be tracked.
        const INVALID = 0x10;
        /// It has been tracked.
        const TRACKED = 0x20;
        /// Its source was translated.
        const SNAT = 0x40;
        /// Its destination was translated.
        const DNAT = 0x80;
    }
}

impl CtState {
    const NAT: CtState = CtState::SNAT.union(CtState::DNAT);
}

/// The addresses and ports of a packet; for ICMP the ports are type and code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tuple {
    /// Source address of the packet.
    pub src: IpAddr,
    /// Destination address of the packet.
    pub dst: IpAddr,
    /// IP protocol number of the packet.
    pub proto: u8,
    /// Source port, or ICMP type.
    pub src_port: u16,
    /// Destination port, or ICMP code.
    pub dst_port: u16,
}

/// A connection, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Conntrack zone of the connection.
    pub zone: u16,
    /// The tuple of the packet that opened it.
    pub original: Tuple,
    /// The tuple of replies, before NAT is reverted.
    pub reply: Tuple,
    /// `ct_mark` of the connection.
    pub mark: u32,
    /// `ct_label` of the connection.
    pub label: u128,
    /// Time at which the connection expires.
    pub expires: Time,
}

/// The arguments of a `ct` action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Conntrack zone of the lookup.
    pub zone: u16,
    /// Whether a new connection is committed.
    pub commit: bool,
    /// Whether a connection of the opposite direction is replaced.
    pub force: bool,
    /// The `nat` argument of the action.
    pub nat: Option<Nat>,
    /// Value and mask to write to `ct_mark`.
    pub mark: Option<(u32, u32)>,
    /// Value and mask to write to `ct_label`.
    pub label: Option<(u128, u128)>,
}

/// State of a packet that the datapath keeps between two `ct` actions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) fields: CtFields,
    /// The connection of the last lookup, until an address or port changes.
    pub(crate) conn: Option<Cached>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cached {
    id: u64,
    reply: bool,
    related: bool,
}

/// All connections of a switch.
#[derive(Clone, Debug, Default)]
pub struct Conntrack {
    conns: BTreeMap<u64, Conn>,
    /// By the two ends of a tuple, in either direction; the youngest last.
    index: BTreeMap<Key, Vec<Node>>,
    next: u64,
    /// Time of the last sweep of expired connections.
    swept: Time,
    aborted: bool,
}

/// An entry of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    id: u64,
    /// The entry for replies to a translated connection. It stays until the connection is swept, even after the connection
    /// expired: until then its tuple is in use, and packets with it are invalid.
    answers: bool,
}

/// Result of the lookup of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hit {
    node: Node,
    /// The tuple is the second one of the entry.
    reversed: bool,
}

/// Interval at which the switch sweeps expired connections.
const SWEEP: Time = Time::from_secs(20);

#[derive(Clone, Debug)]
struct Conn {
    key: Key,
    reply_key: Key,
    /// The side that is translated.
    nat: Option<NatSide>,
    mark: u32,
    label: u128,
    expires: Time,
    protocol: Protocol,
}

#[derive(Clone, Debug)]
enum Protocol {
    Tcp(tcp::Tcp),
    Icmp { answered: bool },
    Other { answered: bool },
}

/// Effect of a packet on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Update {
    /// It belongs to a connection with a reply.
    Valid,
    /// It belongs to a connection without a reply so far.
    ValidNew,
    /// It reopens a closed connection.
    Reopen,
    /// It cannot belong to it.
    Invalid,
}

impl Conntrack {
    /// A tracker without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// All connections that are alive, the oldest first.
    pub fn connections(&self, now: Time) -> impl Iterator<Item = Connection> {
        let alive = move |conn: &&Conn| now < conn.expires;
        self.conns.values().filter(alive).map(Conn::describe)
    }

    /// Removes the connections for which `forget` is true, and returns their number.
    pub fn flush(&mut self, mut forget: impl FnMut(&Connection) -> bool) -> usize {
        let dead: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| forget(&conn.describe())).map(|(id, _)| *id).collect();
        for id in &dead {
            self.remove(*id);
        }
        dead.len()
    }

    /// Removes all connections of a zone.
    pub fn flush_zone(&mut self, zone: u16) -> usize {
        self.flush(|conn| conn.zone == zone)
    }

    /// Removes expired connections. The switch does so every 20 seconds, at times that cannot be predicted.
    pub fn sweep(&mut self, now: Time) {
        self.swept = now;
        let dead: Vec<u64> = self.conns.iter().filter(|(_, conn)| now >= conn.expires).map(|(id, _)| *id).collect();
        for id in dead {
            self.remove(id);
        }
    }

    /// Whether a packet has reached the state in which Open vSwitch 3.1.0 aborts: a connection whose NAT changed nothing, that
    /// has expired (by time, or because its ports were reused), and that was not swept yet.
    pub fn has_aborted(&self) -> bool {
        self.aborted
    }

    /// Tracks a packet: finds or creates its connection, applies NAT, and returns the connection state.
    pub(crate) fn track(&mut self, now: Time, packet: &mut Packet, md: &mut Remembered, request: &Request) {
        let zone = request.zone;
        if now >= self.swept + SWEEP {
            self.sweep(now);
        }
        if let Some(cached) = md.conn.filter(|_| !request.force && !is_alg_control(packet))
            && let Some(conn) = self.conns.get_mut(&cached.id).filter(|conn| conn.key.zone == zone)
        {
            if request.nat.is_some() {
                conn.translate_again(packet, md, zone, cached.reply, cached.related);
                md.conn = None;
            }
            md.fields.zone = zone;
            conn.write(&mut md.fields, request);
            return;
        }
        let Some(found) = Key::of(packet, zone) else {
            let state = CtState::INVALID | CtState::TRACKED;
            md.fields = CtFields { state, zone, mark: 0, label: 0, original: None };
            return;
        };
        self.track_key(now, packet, md, request, found);
    }

    fn track_key(
        &mut self,
        now: Time,
        packet: &mut Packet,
        md: &mut Remembered,
        request: &Request,
        Extracted { key, related }: Extracted,
    ) {
        let zone = request.zone;
        if md.fields.zone != zone {
            md.fields.state = CtState::empty();
        }
        // A packet that was translated before is looked up by the tuple of its reply.
        let again = md.fields.state.intersects(CtState::NAT);
        let (mut key, mut reply) = (key, false);
        let mut found = self.find(now, &if again { key.reversed() } else { key });
        if let Some(hit) = found {
            reply = hit.reversed != again;
            if again && let Some((one, other)) = self.tuples(hit.node) {
                key = if reply { other } else { one };
            }
        }
        if request.force && reply && let Some(hit) = found.take()
            // The switch checks the entry it found, and that for replies never expires.
            && !hit.node.answers
        {
            self.end(hit.node.id);
        }
        if let Some(hit) = found.filter(|hit| hit.node.answers) {
            // The entry for the answers leads to the connection itself.
            let bucket = self.conns.get(&hit.node.id).map_or(key, |conn| conn.key);
            found = self.find_in(now, &bucket, &key);
            reply = found.is_none_or(|hit| hit.reversed);
            self.aborted |= found.is_some_and(|hit| hit.node.answers);
            if found.is_none_or(|hit| hit.node.answers) {
                let state = md.fields.state | CtState::INVALID | CtState::TRACKED;
                md.fields = CtFields { state, zone, mark: 0, label: 0, original: None };
                return;
            }
        }
        let mut conn = found.map(|hit| hit.node.id);
        let mut create = false;
        if let Some(id) = conn {
            create = self.update_state(now, packet, md, id, reply, related);
            if request.nat.is_some()
                && !create
                && let Some(conn) = self.conns.get(&id)
            {
                conn.translate_again(packet, md, zone, reply, related);
            }
        } else if let Some(id) = self.by_original(now, md, request, &key) {
            conn = Some(id);
            create = self.update_state(now, packet, md, id, reply, related);
        } else if related {
            md.fields.state = CtState::INVALID;
        } else {
            create = true;
        }
        if create && self.find(now, &key).is_none() {
            conn = self.open(now, packet, md, request, key);
        }
        md.fields.state |= CtState::TRACKED;
        md.fields.zone = zone;
        md.fields.original = Some(conn.and_then(|id| self.conns.get(&id)).map_or(key, |conn| conn.key).tuple());
        match conn.and_then(|id| self.conns.get_mut(&id)) {
            Some(conn) => conn.write(&mut md.fields, request),
            None => (md.fields.mark, md.fields.label) = (0, 0),
        }
        md.conn = conn.filter(|_| request.nat.is_none()).map(|id| Cached { id, reply, related });
    }

    /// A packet that was translated and then changed is found by the tuple that opened its connection.
    fn by_original(&mut self, now: Time, md: &Remembered, request: &Request, key: &Key) -> Option<u64> {
        let original =
            md.fields.original.filter(|_| md.fields.state.intersects(CtState::NAT) && request.nat.is_none())?;
        let key = Key::from_original(&original, md.fields.zone, key);
        let hit = self.find(now, &key)?;
        self.aborted |= hit.node.answers;
        (!hit.node.answers).then_some(hit.node.id)
    }

    /// Updates a connection and the state of the packet; returns whether the connection must be reopened.
    fn update_state(
        &mut self,
        now: Time,
        packet: &Packet,
        md: &mut Remembered,
        id: u64,
        reply: bool,
        related: bool,
    ) -> bool {
        let state = &mut md.fields.state;
        if related {
            *state |= CtState::RELATED;
            state.set(CtState::REPLY, reply || state.contains(CtState::REPLY));
            return false;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return true };
        match conn.update(now, packet, reply) {
            Update::Valid => {
                *state |= CtState::ESTABLISHED;
                state.remove(CtState::NEW);
                if reply {
                    *state |= CtState::REPLY;
                }
            }
            Update::ValidNew => *state |= CtState::NEW,
            Update::Invalid => *state = CtState::INVALID,
            Update::Reopen => {
                self.end(id);
                return true;
            }
        }
        false
    }

    /// A packet without a connection: new, if it may open one, and committed on request.
    fn open(
        &mut self,
        now: Time,
        packet: &mut Packet,
        md: &mut Remembered,
        request: &Request,
        key: Key,
    ) -> Option<u64> {
        let Some((protocol, timeout)) = Protocol::opened_by(packet, key.proto) else {
            md.fields.state = CtState::INVALID;
            return None;
        };
        md.fields.state = CtState::NEW;
        if !request.commit {
            return None;
        }
        let reply_key = match &request.nat {
            Some(nat) => self.choose(now, &key, nat)?,
            None => key.reversed(),
        };
        let nat = request.nat.as_ref().and_then(|nat| nat.side);
        let translated = request.nat.is_some();
        let conn = Conn { key, reply_key, nat, mark: 0, label: 0, expires: now + timeout, protocol };
        if request.nat.is_some() {
            conn.translate(packet, &mut md.fields.state, false, false);
        }
        let id = self.next;
        self.next += 1;
        if translated {
            self.index.entry(conn.reply_key.bucket()).or_default().push(Node { id, answers: true });
        }
        self.index.entry(conn.key.bucket()).or_default().push(Node { id, answers: false });
        self.conns.insert(id, conn);
        Some(id)
    }

    /// The entry of a tuple.
    fn find(&self, now: Time, key: &Key) -> Option<Hit> {
        self.find_in(now, key, key)
    }

    /// The entry of a tuple among those indexed by another one, the youngest first.
    fn find_in(&self, now: Time, bucket: &Key, key: &Key) -> Option<Hit> {
        self.index.get(&bucket.bucket())?.iter().rev().find_map(|node| {
            let over = self.conns.get(&node.id).is_none_or(|conn| now >= conn.expires);
            let (one, other) = self.tuples(*node).filter(|_| node.answers || !over)?;
            (one == *key || other == *key).then_some(Hit { node: *node, reversed: one != *key })
        })
    }

    /// The tuples of an entry.
    fn tuples(&self, node: Node) -> Option<(Key, Key)> {
        let conn = self.conns.get(&node.id)?;
        Some(if node.answers { (conn.reply_key, conn.key) } else { (conn.key, conn.reply_key) })
    }

    /// Closes a connection, which stays until it is swept.
    fn end(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.expires = Time::ZERO;
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(conn) = self.conns.remove(&id) else { return };
        for key in [conn.key, conn.reply_key] {
            if let Some(nodes) = self.index.get_mut(&key.bucket()) {
                nodes.retain(|node| node.id != id);
                if nodes.is_empty() {
                    self.index.remove(&key.bucket());
                }
            }
        }
    }
}

impl Conn {
    fn describe(&self) -> Connection {
        Connection {
            zone: self.key.zone,
            original: self.key.tuple(),
            reply: self.reply_key.tuple(),
            mark: self.mark,
            label: self.label,
            expires: self.expires,
        }
    }

    fn update(&mut self, now: Time, packet: &Packet, reply: bool) -> Update {
        let (update, timeout) = match &mut self.protocol {
            Protocol::Tcp(tcp) => tcp.update(packet, reply),
            Protocol::Icmp { answered } | Protocol::Other { answered } => {
                *answered |= reply;
                if *answered { (Update::Valid, Some(30)) } else { (Update::ValidNew, Some(60)) }
            }
        };
        if let Some(timeout) = timeout {
            self.expires = now + Time::from_secs(timeout);
        }
        update
    }

    /// Writes the request's mark and label to the connection, and the connection's to the packet.
    fn write(&mut self, fields: &mut CtFields, request: &Request) {
        if let Some((value, mask)) = request.mark {
            self.mark = value & mask | self.mark & !mask;
        }
        if let Some((value, mask)) = request.label {
            self.label = value & mask | self.label & !mask;
        }
        (fields.mark, fields.label) = (self.mark, self.label);
    }
}

impl Protocol {
    /// The state and timeout of a connection that a packet opens; `None` if it may not open one.
    fn opened_by(packet: &Packet, proto: u8) -> Option<(Protocol, Time)> {
        let kind = packet.segment().and_then(|segment| segment.first().copied());
        let (protocol, timeout) = match proto {
            ip_proto::TCP => (Protocol::Tcp(tcp::Tcp::opened_by(packet)?), 30),
            ip_proto::ICMP if matches!(kind, Some(8 | 13 | 15)) => (Protocol::Icmp { answered: false }, 60),
            ip_proto::ICMPV6 if kind == Some(128) => (Protocol::Icmp { answered: false }, 60),
            ip_proto::ICMP | ip_proto::ICMPV6 => return None,
            _ => (Protocol::Other { answered: false }, 60),
        };
        Some((protocol, Time::from_secs(timeout)))
    }
}

/// FTP control connections and TFTP requests, which bypass the lookup cache.
fn is_alg_control(packet: &Packet) -> bool {
    match (packet.layout().proto, packet.ports()) {
        (ip_proto::TCP, Some((src, dst))) => src == 21 || dst == 21,
        (ip_proto::UDP, Some((_, dst))) => dst == 69,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
