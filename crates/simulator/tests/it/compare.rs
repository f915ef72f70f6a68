//! A switch and its simulation: both get every packet, and every output frame must be the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::matching::ip_proto;
use openflow::port::Port;
use simulator::conntrack::{Connection, Tuple};
use simulator::trace::{Did, Entry, Reason};
use simulator::{Arrival, Outcome, Packet, Sent, Simulator, Time, Trace, Verdict};
use testkit::Ovs;
use testkit::wait::{TIMEOUT, until};

use crate::client::Client;

/// Frames of this type are not seen by the flows under test: one follows every packet, and when it has come out, so has
/// all that came of the packet.
const SENTINEL: u16 = 0x88b5;
/// The port where sentinels come out.
const WATCH: u32 = 999;
pub(crate) const BRIDGE: &str = "br0";

/// A switch, and the simulator that knows the same flows.
pub(crate) struct Twins {
    ovs: Ovs,
    client: Client,
    ports: Vec<Capture>,
    /// Possible states of the switch, given its output: the bucket of a packet that was dropped later is visible only in the
    /// result of the next packet.
    simulators: Vec<Simulator>,
    start: Instant,
    /// The flows and groups, as they were sent to the switch.
    installed: String,
    pub(crate) packets: usize,
    /// Packets that were not sent, since the simulator predicts an abort or an endless loop of the switch.
    pub(crate) spared: usize,
    history: Vec<String>,
}

/// An output of the switch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Done {
    /// A frame, sent to a port.
    Output(u32, Vec<u8>),
    /// A packet-in for the controller.
    PacketIn { table: u8, cookie: u64, userdata: Vec<u8>, packet: Vec<u8> },
}

struct Capture {
    number: u32,
    name: String,
    file: File,
    rest: Vec<u8>,
}

impl Capture {
    /// Output since the last call.
    fn frames(&mut self) -> Result<Vec<Vec<u8>>> {
        self.file.read_to_end(&mut self.rest)?;
        let mut frames = Vec::new();
        while let Some(length) = self.rest.get(8..12).and_then(|l| l.first_chunk()) {
            let length = u32::from_le_bytes(*length) as usize;
            let Some(frame) = self.rest.get(16..16 + length) else { break };
            frames.push(frame.to_vec());
            self.rest.drain(..16 + length);
        }
        Ok(frames)
    }
}

impl Twins {
    /// A switch with ports of these numbers and no flows.
    pub(crate) fn new(ports: &[u32]) -> Result<Self> {
        let ovs = Ovs::start()?;
        ovs.add_bridge(BRIDGE)?;
        let mut captures = Vec::new();
        for number in ports.iter().chain([&WATCH]) {
            let name = format!("p{number}");
            ovs.add_port(BRIDGE, &name, u16::try_from(*number)?)?;
            let mut file = File::open(ovs.dir().join(format!("{name}.tx.pcap")))?;
            file.seek(SeekFrom::Start(24))?;
            captures.push(Capture { number: *number, name, file, rest: Vec::new() });
        }
        // No flow of the datapath is kept: each packet is looked up in the tables as they are.
        ovs.vsctl(["set", "Open_vSwitch", ".", "other_config:flow-limit=0"])?;
        ovs.appctl(["upcall/set-flow-limit", "0"])?;
        let client = Client::connect(&ovs, BRIDGE);
        Ok(Self {
            ovs,
            client,
            ports: captures,
            simulators: vec![Simulator::default()],
            start: Instant::now(),
            installed: String::new(),
            packets: 0,
            spared: 0,
            history: Vec::new(),
        })
    }

    /// Gives both these flows and groups and no others, all at once, and forgets all connections.
    pub(crate) fn install(&mut self, flows: &[Flow], groups: &[Group]) -> Result<()> {
        let mut bundle = String::from("flow delete\ngroup delete group_id=all\n");
        for group in groups {
            writeln!(bundle, "group add {group}")?;
        }
        for flow in flows {
            writeln!(bundle, "flow add {flow}")?;
        }
        let sentinel = format!("flow add priority=65535,dl_type={SENTINEL:#x} actions=output:{WATCH}\n");
        self.ovs.ofctl_stdin(["bundle", BRIDGE, "-"], &(bundle.clone() + &sentinel)).with_context(|| bundle.clone())?;
        self.ovs.control("dpctl/flush-conntrack", &[])?;
        self.ovs.control("fdb/flush", &[BRIDGE])?;
        self.ovs.settle()?;
        let ports = self.ports.iter().map(|port| Port(port.number)).chain([Port::LOCAL]);
        self.simulators = vec![Simulator::new(flows.iter().cloned(), groups.iter().cloned()).with_ports(ports)];
        self.installed = bundle;
        self.history.clear();
        Ok(())
    }

    /// Runs a packet on both and compares; if select groups allow several results, one must match.
    ///
    /// `None` if the real switch would not survive the packet; then it is not sent.
    pub(crate) fn run(&mut self, arrival: &Arrival) -> Result<Option<Trace>> {
        self.packets += 1;
        let now = self.now();
        let explore = |simulators: &[Simulator]| -> Vec<Outcome> {
            simulators.iter().flat_map(|simulator| simulator.explore(now, arrival)).collect()
        };
        let mut expected = explore(&self.simulators);
        if expected.iter().any(|outcome| outcome.after.conntrack().has_aborted() || may_never_end(&outcome.trace)) {
            self.spared += 1;
            return Ok(None);
        }
        let real = match self.real(arrival) {
            Err(error) if !self.alive() => {
                let log = self.ovs.log_tail();
                bail!("the switch has died: {error:#}\n{log}\n{}", self.difference(arrival, &expected, &[]));
            }
            real => real?,
        };
        let fits = |outcome: &Outcome| done(&outcome.trace) == real;
        if !expected.iter().any(fits) {
            // The switch may have swept its connections a moment ago.
            let mut swept = self.simulators.clone();
            swept.iter_mut().for_each(|simulator| simulator.conntrack_mut().sweep(now));
            expected.extend(explore(&swept));
        }
        let trace = match expected.iter().find(|outcome| fits(outcome)) {
            Some(outcome) => outcome.trace.clone(),
            None => bail!("{}", self.difference(arrival, &expected, &real)),
        };
        self.simulators = expected.into_iter().filter(fits).map(|outcome| outcome.after).collect();
        if self.simulators.len() > 1 {
            self.decide(now)?;
        }
        self.history.push(trace.to_string());
        Ok(Some(trace))
    }

    /// Of those that the switch may be, leaves the ones that have its connections.
    fn decide(&mut self, now: Time) -> Result<()> {
        let real = self.ovs.control("dpctl/dump-conntrack", &[])?;
        let has_all = |simulator: &Simulator| {
            simulator.conntrack().connections(now).all(|Connection { zone, reply, .. }| {
                let Tuple { src, dst, proto, src_port, dst_port } = reply;
                let text = format!("reply=(src={src},dst={dst},sport={src_port},dport={dst_port}),zone={zone}");
                matches!(proto, ip_proto::ICMP | ip_proto::ICMPV6) || real.contains(&text)
            })
        };
        if self.simulators.iter().any(has_all) {
            self.simulators.retain(has_all);
        }
        Ok(())
    }

    /// Gives a packet to the real switch alone.
    pub(crate) fn inject(&self, arrival: &Arrival) -> Result<()> {
        self.ovs.inject(&format!("p{}", arrival.in_port), arrival.packet.as_bytes())
    }

    /// Whether the switch still answers.
    pub(crate) fn alive(&self) -> bool {
        self.ovs.appctl(["version"]).is_ok()
    }

    pub(crate) fn now(&self) -> Time {
        self.start.elapsed()
    }

    /// What the switch does with a packet, in order of the ports.
    fn real(&mut self, arrival: &Arrival) -> Result<Vec<Done>> {
        let port =
            self.ports.iter().find(|port| port.number == arrival.in_port.0).context("no such port")?.name.clone();
        self.ovs.inject(&port, arrival.packet.as_bytes())?;
        let mut sentinel = [[0xff; 6], [2; 6]].concat();
        sentinel.extend(SENTINEL.to_be_bytes());
        sentinel.resize(60, 0);
        // By the same port, which keeps the order.
        self.ovs.inject(&port, &sentinel)?;
        // While the switch answers this it has mostly come to the packets too: that is quicker than to wait for them.
        let mut packet_ins = self.client.packet_ins();
        let mut all = Vec::new();
        let ports = &mut self.ports;
        let mut look = || -> Result<bool> {
            let mut seen = false;
            for port in ports.iter_mut() {
                for frame in port.frames()? {
                    if frame == sentinel { seen = true } else { all.push(Done::Output(port.number, frame)) }
                }
            }
            Ok(seen)
        };
        // A failure to look ends the wait as well.
        let seen = until("the sentinel frame", TIMEOUT, || match look() {
            Ok(false) => None,
            seen => Some(seen),
        });
        seen.with_context(|| format!("the switch is silent\n{}", self.ovs.log_tail()))??;
        for port in &mut self.ports {
            all.extend(port.frames()?.into_iter().map(|frame| Done::Output(port.number, frame)));
        }
        // Before it came to the sentinel the switch has queued what is for the controller, and answers come after that.
        packet_ins.extend(self.client.packet_ins());
        all.extend(packet_ins.into_iter().map(|packet_in| Done::PacketIn {
            table: packet_in.table.unwrap_or_default(),
            cookie: packet_in.cookie.unwrap_or_default(),
            userdata: packet_in.userdata,
            packet: packet_in.packet,
        }));
        all.sort();
        Ok(all)
    }

    fn difference(&self, arrival: &Arrival, expected: &[Outcome], real: &[Done]) -> String {
        let simulated: BTreeSet<String> = expected.iter().map(|outcome| outcome.trace.to_string()).collect();
        let simulated: String = simulated.into_iter().collect();
        let ours: BTreeSet<String> = expected.iter().map(|outcome| described(&done(&outcome.trace))).collect();
        let ours: String = ours.into_iter().collect();
        let mut trace = vec!["ofproto/trace".to_owned(), BRIDGE.to_owned(), format!("in_port={}", arrival.in_port)];
        // `ofproto/trace` does not track packets: the state is an argument.
        let tracked = expected.first().into_iter().flat_map(|outcome| &outcome.trace.steps);
        for step in tracked {
            if let Entry::Tracked(ct) = &step.entry {
                let names = ct.state.iter_names().map(|(name, _)| short(name)).collect::<Vec<_>>().join("|");
                trace.extend(["--ct-next".to_owned(), names]);
            }
        }
        trace.push(hex(arrival.packet.as_bytes()));
        let trace = self.ovs.appctl(trace);
        format!(
            "the switch and the simulator differ; flows and groups are in {}\n--- before\n{}\n--- simulated | switch\n{}\n\
             --- simulated | ofproto/trace (afterwards)\n{}\n--- connections\n{}",
            self.save().unwrap_or_else(|error| error.to_string()),
            self.history.iter().rev().take(6).rev().cloned().collect::<Vec<_>>().join("\n"),
            simulator::trace::side_by_side(&ours, &described(real)),
            simulator::trace::side_by_side(&simulated, &trace.unwrap_or_else(|error| error.to_string())),
            self.ovs.appctl(["dpctl/dump-conntrack"]).unwrap_or_default(),
        )
    }

    /// Writes the flows and groups to a file that outlives the test, for `ovs-ofctl bundle`.
    fn save(&self) -> Result<String> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bundle-{}.txt", std::process::id()));
        std::fs::write(&path, &self.installed)?;
        Ok(path.display().to_string())
    }
}

/// Whether the switch may loop on a packet. When a packet exceeds the depth limit, the switch logs a trace through connection
/// tracking, which never ends, and blocks it, if flows form a cycle.
fn may_never_end(trace: &Trace) -> bool {
    let did = || trace.steps.iter().flat_map(|step| &step.did);
    did().any(|did| matches!(did, Did::Failed(Reason::TooDeep | Reason::TooManyResubmits)))
        && did().any(|did| matches!(did, Did::Ct { table: Some(_), .. }))
}

/// What the simulator says was done, as far as the real switch shows it: the bridge's own port has no capture.
fn done(trace: &Trace) -> Vec<Done> {
    let Verdict::Sent(sent) = &trace.verdict else { return Vec::new() };
    let seen = |sent: &Sent| match sent {
        Sent::Output { port: Port::LOCAL, .. } => None,
        Sent::Output { port, packet, .. } => Some(Done::Output(port.0, packet.as_bytes().to_vec())),
        Sent::Controller { how, packet, table, cookie } => Some(Done::PacketIn {
            table: *table,
            cookie: *cookie,
            userdata: how.userdata.clone(),
            packet: packet.as_bytes().to_vec(),
        }),
    };
    let mut all: Vec<Done> = sent.iter().filter_map(seen).collect();
    all.sort();
    all
}

/// A state of connections as the switch spells it.
fn short(name: &str) -> &'static str {
    let names = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
    let name = if name == "REPLY" { "rpl".to_owned() } else { name.to_lowercase() };
    names.into_iter().find(|short| name.starts_with(&short[..3])).unwrap_or("trk")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn described(all: &[Done]) -> String {
    let line = |done: &Done| {
        let (to, packet) = match done {
            Done::Output(port, packet) => (format!("port {port}"), packet),
            Done::PacketIn { table, cookie, userdata, packet } => {
                (format!("controller from table {table} cookie {cookie:#x} ({})", hex(userdata)), packet)
            }
        };
        format!("=> {to}: {}\n   {}\n", Packet::from_bytes(packet.clone()), hex(packet))
    };
    if all.is_empty() { "=> nothing\n".to_owned() } else { all.iter().map(line).collect() }
}
