//! An OpenFlow controller that waits for each reply.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use openflow::control::{Hello, SwitchConfig};
use openflow::error::ErrorMessage;
use openflow::flow::{Flow, FlowMod};
use openflow::framer::Framer;
use openflow::group::{ALL_GROUPS, Group, GroupMod};
use openflow::message::Message;
use openflow::packet::{PacketIn2, PacketInFormat};
use testkit::Ovs;
use testkit::wait::TIMEOUT;

pub(crate) struct Client {
    stream: UnixStream,
    framer: Framer,
    last_xid: u32,
    packet_ins: Vec<PacketIn2>,
}

impl Client {
    /// Connects, and enables packet-in messages.
    pub(crate) fn connect(ovs: &Ovs, bridge: &str) -> Self {
        let stream = UnixStream::connect(ovs.mgmt_socket(bridge)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Client { stream, framer: Framer::new(), last_xid: 0, packet_ins: Vec::new() };
        let listen = [
            Message::Hello(Hello::of15()),
            Message::SetConfig(SwitchConfig::WHOLE_PACKETS),
            Message::SetPacketInFormat(PacketInFormat::Nxt2),
        ];
        client.done(&listen);
        client
    }

    /// Sends messages that have no reply, and panics if one failed.
    pub(crate) fn done<'a>(&mut self, messages: impl IntoIterator<Item = &'a Message>) {
        let messages: Vec<_> = messages.into_iter().collect();
        let errors = self.send(messages.iter().copied());
        let failed: Vec<_> = errors.iter().map(|(i, error)| format!("{error}: {}", messages[*i])).collect();
        assert!(failed.is_empty(), "the switch refused:\n{}", failed.join("\n"));
    }

    /// Sends messages that have no reply; returns the errors by position.
    pub(crate) fn send<'a>(
        &mut self,
        messages: impl IntoIterator<Item = &'a Message>,
    ) -> BTreeMap<usize, ErrorMessage> {
        let first = self.last_xid + 1;
        let mut bytes = Vec::new();
        for message in messages.into_iter().chain([&Message::BarrierRequest]) {
            self.last_xid += 1;
            message.encode(self.last_xid, &mut bytes).unwrap();
        }
        // Reads while writing, or both sides could wait for the other to read.
        let mut writer = self.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&bytes).unwrap());
            let mut errors = BTreeMap::new();
            loop {
                match self.receive() {
                    (xid, Message::BarrierReply) if xid == self.last_xid => return errors,
                    (xid, Message::Error(error)) => {
                        errors.insert(usize::try_from(xid - first).unwrap(), error);
                    }
                    (_, Message::PacketIn2(packet)) => self.packet_ins.push(*packet),
                    _ => {}
                }
            }
        })
    }

    /// Removes all flows and groups.
    pub(crate) fn clear(&mut self) {
        let groups = Message::GroupMod(GroupMod::Delete(ALL_GROUPS));
        self.done(&[Message::FlowMod(Box::new(FlowMod::delete_all())), groups]);
    }

    /// Packet-in messages since the last call.
    pub(crate) fn packet_ins(&mut self) -> Vec<PacketIn2> {
        self.done([]);
        std::mem::take(&mut self.packet_ins)
    }

    fn receive(&mut self) -> (u32, Message) {
        loop {
            if let Some(bytes) = self.framer.next_message().unwrap() {
                return Message::decode(bytes).unwrap();
            }
            let mut bytes = [0; 4096];
            let n = self.stream.read(&mut bytes).unwrap();
            assert!(n > 0, "the switch hung up");
            self.framer.feed(&bytes[..n]);
        }
    }
}

pub(crate) fn add(flow: &Flow) -> Message {
    Message::FlowMod(Box::new(FlowMod::add(flow.clone())))
}

/// Matches the flow strictly, with its priority.
pub(crate) fn remove(flow: &Flow) -> Message {
    Message::FlowMod(Box::new(FlowMod::delete_strict(flow)))
}

/// Adds a group, or replaces the one with its id.
pub(crate) fn put_group(group: &Group) -> Message {
    Message::GroupMod(GroupMod::AddOrModify(group.clone()))
}

pub(crate) fn remove_group(id: u32) -> Message {
    Message::GroupMod(GroupMod::Delete(id))
}
