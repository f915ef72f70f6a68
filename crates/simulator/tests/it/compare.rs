//! One switch, twice: every packet goes into both, and every frame that comes out has to be the same.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use simulator::{Arrival, Outcome, Packet, Simulator, Time, Trace};
use testkit::Ovs;
use testkit::wait::{PATIENCE, until};

/// Frames of this type are not seen by the flows under test: one follows every packet, and when it has come out, so has
/// all that came of the packet.
const SENTINEL: u16 = 0x88b5;
/// The port where sentinels come out.
const WATCH: u32 = 999;
pub(crate) const BRIDGE: &str = "br0";

/// A switch, and the simulator that knows the same flows.
pub(crate) struct Twins {
    ovs: Ovs,
    ports: Vec<Capture>,
    pub(crate) simulator: Simulator,
    start: Instant,
    flows: String,
    pub(crate) packets: usize,
    /// Packets that were not sent, as the simulator said that the switch would abort.
    pub(crate) spared: usize,
    history: Vec<String>,
}

struct Capture {
    number: u32,
    name: String,
    file: File,
    rest: Vec<u8>,
}

impl Capture {
    /// What has come out since the last time.
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
        Ok(Self {
            ovs,
            ports: captures,
            simulator: Simulator::default(),
            start: Instant::now(),
            flows: String::new(),
            packets: 0,
            spared: 0,
            history: Vec::new(),
        })
    }

    /// Gives both these flows and groups and no others, and forgets all connections.
    pub(crate) fn install(&mut self, flows: &[Flow], groups: &[Group]) -> Result<()> {
        self.ovs.ofctl(["del-flows", BRIDGE])?;
        self.ovs.ofctl(["del-groups", BRIDGE])?;
        self.ovs.appctl(["dpctl/flush-conntrack"])?;
        self.ovs.appctl(["fdb/flush", BRIDGE])?;
        let text = |lines: Vec<String>| lines.join("\n") + "\n";
        let groups_text = text(groups.iter().map(ToString::to_string).collect());
        self.ovs.ofctl_stdin(["add-groups", BRIDGE, "-"], &groups_text).with_context(|| groups_text.clone())?;
        let all = text(flows.iter().map(ToString::to_string).collect());
        let sentinel = format!("priority=65535,dl_type={SENTINEL:#x} actions=output:{WATCH}\n");
        self.ovs.ofctl_stdin(["add-flows", BRIDGE, "-"], &(all.clone() + &sentinel)).with_context(|| all.clone())?;
        let ports = self.ports.iter().map(|port| Port(port.number)).chain([Port::LOCAL]);
        self.simulator = Simulator::new(flows.iter().cloned(), groups.iter().cloned()).with_ports(ports);
        self.flows = groups_text + &all;
        self.history.clear();
        Ok(())
    }

    /// Runs a packet on both and compares; where groups leave the simulator a choice, one of the ways has to fit.
    ///
    /// Nothing if the real switch would not survive the packet, which it does not get then.
    pub(crate) fn run(&mut self, arrival: &Arrival) -> Result<Option<Trace>> {
        self.packets += 1;
        let now = self.now();
        let mut expected = self.simulator.explore(now, arrival);
        if expected.iter().any(|outcome| outcome.after.conntrack().has_aborted()) {
            self.spared += 1;
            return Ok(None);
        }
        // The switch may have swept its connections a moment ago.
        let mut swept = self.simulator.clone();
        swept.conntrack_mut().sweep(now);
        expected.extend(swept.explore(now, arrival));
        let real = match self.real(arrival) {
            Err(error) if !self.alive() => {
                let log = self.ovs.log_tail();
                bail!("the switch has died: {error:#}\n{log}\n{}", self.difference(arrival, &expected, &[]));
            }
            real => real?,
        };
        let fits = |outcome: &&Outcome| sorted(&outcome.trace) == real;
        let Some(outcome) = expected.iter().find(fits) else {
            bail!("{}", self.difference(arrival, &expected, &real));
        };
        self.history.push(format!("{}", outcome.trace));
        self.simulator = outcome.after.clone();
        Ok(Some(outcome.trace.clone()))
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

    /// What the switch sends out: ports and frames, in order of the ports.
    fn real(&mut self, arrival: &Arrival) -> Result<Vec<(u32, Vec<u8>)>> {
        let port =
            self.ports.iter().find(|port| port.number == arrival.in_port.0).context("no such port")?.name.clone();
        self.ovs.inject(&port, arrival.packet.as_bytes())?;
        let mut sentinel = [[0xff; 6], [2; 6]].concat();
        sentinel.extend(SENTINEL.to_be_bytes());
        sentinel.resize(60, 0);
        // By the same port, which keeps the order.
        self.ovs.inject(&port, &sentinel)?;
        let mut frames = Vec::new();
        let ports = &mut self.ports;
        let mut look = || -> Result<bool> {
            let mut done = false;
            for port in ports.iter_mut() {
                for frame in port.frames()? {
                    if frame == sentinel { done = true } else { frames.push((port.number, frame)) }
                }
            }
            Ok(done)
        };
        // A failure to look ends the wait as well.
        let seen = until("the sentinel frame", PATIENCE, || match look() {
            Ok(false) => None,
            seen => Some(seen),
        });
        seen.with_context(|| format!("the switch is silent\n{}", self.ovs.log_tail()))??;
        for port in &mut self.ports {
            frames.extend(port.frames()?.into_iter().map(|frame| (port.number, frame)));
        }
        frames.sort();
        Ok(frames)
    }

    fn difference(&self, arrival: &Arrival, expected: &[Outcome], real: &[(u32, Vec<u8>)]) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let simulated: String = expected.iter().map(|outcome| outcome.trace.to_string()).collect();
        let sent = real
            .iter()
            .map(|(port, frame)| format!("=> port {port}: {}\n   {}\n", Packet::from_bytes(frame.clone()), hex(frame)));
        let ours = expected.iter().flat_map(|outcome| sorted(&outcome.trace));
        let ours: String = ours.map(|(port, frame)| format!("   {port} {}\n", hex(&frame))).collect();
        let trace = self.ovs.appctl([
            "ofproto/trace".to_owned(),
            BRIDGE.to_owned(),
            format!("in_port={}", arrival.in_port),
            hex(arrival.packet.as_bytes()),
        ]);
        format!(
            "the switch and the simulator differ\n--- flows\n{}--- before\n{}\n--- simulated | switch\n{}\n--- ofproto/trace \
             (afterwards)\n{}\n--- connections\n{}",
            self.flows,
            self.history.iter().rev().take(6).rev().cloned().collect::<Vec<_>>().join("\n"),
            simulator::trace::side_by_side(&(simulated + &ours), &sent.collect::<String>()),
            trace.unwrap_or_default(),
            self.ovs.appctl(["dpctl/dump-conntrack"]).unwrap_or_default(),
        )
    }
}

fn sorted(trace: &Trace) -> Vec<(u32, Vec<u8>)> {
    let outputs = trace.outputs().filter(|(port, _)| *port != Port::LOCAL);
    let mut frames: Vec<_> = outputs.map(|(port, packet)| (port.0, packet.as_bytes().to_vec())).collect();
    frames.sort();
    frames
}
