//! A bridge with the ports of a Node. Tests reuse bridges one after the other, since creating ports is slow.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::thread;

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::message::Message;
use openflow::port::Port;
use testkit::Ovs;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};

use super::frame::{self, Frame, NO_MAC};
use crate::client::{Client, add};

pub(super) const BRIDGE: &str = "br-int";

/// The ports of the bridge: a tunnel, the gateway, Pods, output ports of tunnelled packets by destination, and the output
/// port of marker frames, which arrive after all frames before them.
pub(super) const PORTS: [(&str, u16); 9] = [
    ("tun", 1),
    ("gw", 2),
    ("pod-a", 3),
    ("pod-b", 4),
    ("pod-c", 5),
    ("to-node-2", 12),
    ("to-node-3", 13),
    ("tun-4", 14),
    ("done", 99),
];
/// Ports to which ARP is not flooded.
const NO_FLOOD: [&str; 5] = ["tun", "to-node-2", "to-node-3", "tun-4", "done"];
/// EtherType for local experiments (IEEE 802).
const PROBE: u16 = 0x88b5;

/// A bridge, reserved for one test.
pub(super) struct Switch(Option<Bridge>);

pub(super) struct Bridge {
    pub(super) ovs: Ovs,
    pub(super) client: Client,
    /// The number of frames read from each port.
    seen: BTreeMap<&'static str, usize>,
}

static IDLE: Mutex<Vec<Bridge>> = Mutex::new(Vec::new());

impl Switch {
    /// A bridge without flows.
    pub(super) fn take() -> Self {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bridge = idle.unwrap_or_else(Bridge::new);
        bridge.reset();
        Switch(Some(bridge))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // A bridge of a failed test is not reused.
        if !thread::panicking() {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
        }
    }
}

impl Deref for Switch {
    type Target = Bridge;

    fn deref(&self) -> &Bridge {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Switch {
    fn deref_mut(&mut self) -> &mut Bridge {
        self.0.as_mut().unwrap()
    }
}

impl Bridge {
    fn new() -> Self {
        let ovs = Ovs::start().unwrap();
        ovs.add_bridge(BRIDGE).unwrap();
        ovs.add_ports(BRIDGE, &PORTS).unwrap();
        for port in NO_FLOOD {
            // Later versions of OpenFlow have no such setting.
            let args = ["-O", "OpenFlow10", "mod-port", BRIDGE, port, "no-flood"];
            run(ovs.command("ovs-ofctl").args(args), None).unwrap();
        }
        let client = Client::connect(&ovs, BRIDGE);
        Bridge { ovs, client, seen: PORTS.map(|(name, _)| (name, 0)).into() }
    }

    fn reset(&mut self) {
        self.client.clear();
        self.client.packet_ins();
        self.ovs.control("dpctl/flush-conntrack", &[]).unwrap();
        self.ovs.control("fdb/flush", &[BRIDGE]).unwrap();
        let out = Port(u32::from(PORTS[8].1));
        let probe = Match::any().with(Field::EthType, PROBE);
        self.client.done(&[add(&Flow::at(0, u16::MAX).when(probe).then(Action::Output(out)))]);
        self.settle();
        for (port, seen) in &mut self.seen {
            *seen = self.ovs.captured(port).unwrap().len();
        }
    }

    /// Sends messages that change flows or groups, and waits until they apply to all packets.
    pub(super) fn change(&mut self, messages: &[Message]) {
        self.client.done(messages);
        self.settle();
    }

    /// Waits until the last change of flows applies to all packets.
    pub(super) fn settle(&self) {
        self.ovs.settle().unwrap();
    }

    /// Sends a frame into a port, and returns all frames that the switch outputs.
    pub(super) fn send(&mut self, port: &str, frame: &[u8]) -> Vec<(&'static str, Frame)> {
        self.arrive(port, frame);
        self.came()
    }

    /// The same with a malformed frame: returns the number of output frames.
    pub(super) fn send_unread(&mut self, port: &str, frame: &[u8]) -> usize {
        self.arrive(port, frame);
        self.new_frames().len()
    }

    /// The same with several raw frames in order, which may be fragments: returns the raw output.
    pub(super) fn send_parts(&mut self, port: &str, frames: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
        frames.iter().for_each(|frame| self.arrive(port, frame));
        self.new_frames()
    }

    /// The same with many frames that are let in together: gives what came out of any of them.
    pub(super) fn send_batch(&mut self, port: &str, frames: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
        frames.iter().for_each(|frame| self.ovs.inject(port, frame).unwrap());
        self.pass(port);
        self.new_frames()
    }

    /// The number of recirculations so far.
    pub(super) fn recirculations(&self) -> usize {
        let stats = self.ovs.control("dpif-netdev/pmd-stats-show", &[]).unwrap();
        let counts = stats.lines().filter_map(|line| line.trim().strip_prefix("packet recirculations: "));
        counts.map(|count| count.parse::<usize>().unwrap()).sum()
    }

    /// All frames that the switch has sent since the last call.
    pub(super) fn came(&mut self) -> Vec<(&'static str, Frame)> {
        self.new_frames().into_iter().map(|(port, bytes)| (port, Frame::read(&bytes))).collect()
    }

    fn arrive(&mut self, port: &str, frame: &[u8]) {
        self.ovs.inject(port, frame).unwrap();
        self.pass(port);
    }

    /// Waits until all that was let in at a port is through.
    fn pass(&mut self, port: &str) {
        self.ovs.inject(port, &frame::frame(NO_MAC, NO_MAC, PROBE, vec![0; 46])).unwrap();
        let probes = self.seen["done"] + 1;
        let through = || (self.ovs.captured("done").unwrap().len() >= probes).then_some(());
        until("the frame behind", TIMEOUT, through).unwrap();
        self.seen.insert("done", probes);
    }

    fn new_frames(&mut self) -> Vec<(&'static str, Vec<u8>)> {
        self.ovs.until_idle().unwrap();
        let mut out = Vec::new();
        for (port, seen) in self.seen.iter_mut().filter(|(port, _)| **port != "done") {
            let frames = self.ovs.captured(port).unwrap();
            let total = frames.len();
            out.extend(frames.into_iter().skip(*seen).map(|bytes| (*port, bytes)));
            *seen = total;
        }
        out
    }

    /// Connections and flows of the switch, for the message of a failed test.
    pub(super) fn story(&self) -> String {
        let told = ["dpctl/dump-conntrack", "dpctl/dump-flows"];
        told.map(|command| self.ovs.control(command, &[]).unwrap_or_else(|error| error.to_string())).join("\n")
    }
}
