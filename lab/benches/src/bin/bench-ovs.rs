//! Flows and groups from our desired state to the switch's commit, compared with `ovs-ofctl --bundle` for the same
//! ones.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use benches::memory::Counting;
use benches::{Figure, Goal, median, progress, report};
use delta::State;
use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::flow::{Flow, FlowMod, FlowRequest};
use openflow::group::{ALL_GROUPS, Bucket, Group, GroupMod};
use openflow::matching::{Match, ip_proto};
use ovs::switch::{Config, Switch};
use testkit::Ovs;

#[global_allocator]
static MEMORY: Counting = Counting::new();

const FLOWS: usize = 100_000;
const RULES: u32 = 200;
/// Peers of each rule; the other three flows of a rule are its Pod, its port and the action of the conjunction.
const PEERS: u32 = 497;
const GROUPS: u32 = 10_000;
const BUCKETS: u32 = 10;
const ROUNDS: usize = 5;

/// The flows of one policy rule: peers, Pod, port.
fn rule(rule: u32) -> Vec<Flow> {
    let id = rule + 1;
    let clause = |matches: Match, clause: u8| {
        Flow::at(90, 200).cookie(u64::from(id)).when(matches).then(Action::Conjunction { id, clause, of: 3 })
    };
    let mut flows: Vec<Flow> =
        (0..PEERS).map(|peer| clause(Match::ip().with(Field::Ipv4Src, 0x0a00_0000 | rule << 10 | peer), 1)).collect();
    flows.push(clause(Match::ip().with(Field::Reg1, id), 2));
    let port = Match::ip().with(Field::IpProto, ip_proto::TCP).with(Field::TcpDst, 1000 + rule);
    flows.push(clause(port, 3));
    let verdict = Match::ip().with(Field::ConjId, id);
    flows.push(
        Flow::at(90, 190)
            .cookie(u64::from(id))
            .when(verdict)
            .then(Action::set(Field::Reg6, id))
            .then(Action::resubmit(101)),
    );
    flows
}

/// The group of one Service.
fn service(id: u32) -> Group {
    let endpoint_port = Subfield::new(Field::Reg4, 0, 15);
    let buckets = (0..BUCKETS).map(|n| Bucket {
        id: n,
        weight: Some(100),
        actions: [
            Some(Action::set(Field::Reg3, 0x0a0a_0000 | id << 4 | n)),
            endpoint_port.map(|p| Action::load(p, 8080u16)),
        ]
        .into_iter()
        .flatten()
        .chain([Action::resubmit(42)])
        .collect(),
        ..Bucket::default()
    });
    Group::select(id, buckets.collect())
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let ovs = Ovs::start()?;
    ovs.add_bridge("br0")?;
    let (switch, _events) = Switch::start(Config::new(ovs.mgmt_socket("br0")));
    switch.up().await?;
    let bench = Bench { ovs, switch };

    progress("memory of the desired state, through a commit and a resync");
    let bytes = bench.bytes_per_flow().await?;

    let flow_text = lines((0..RULES).flat_map(rule));
    let group_text = lines((1..=GROUPS).map(service));
    let mut flows = Sides::default();
    let mut groups = Sides::default();
    let mut resyncs = Vec::new();
    for round in 1..=ROUNDS {
        progress(&format!("round {round} of {ROUNDS}"));
        let mut state = desired_flows();
        bench.empty(&mut state).await?;
        flows.ours.push(bench.commit(&mut state).await?);
        resyncs.push(bench.unchanged(&mut state).await?);
        bench.clear().await?;
        flows.peer.push(bench.ofctl("add-flows", &flow_text, "dump-flows", FLOWS)?);
        bench.clear().await?;

        let mut state = State::new(|_| false);
        for id in 1..=GROUPS {
            state.set_groups(&id, [service(id)]);
        }
        bench.empty(&mut state).await?;
        groups.ours.push(bench.commit(&mut state).await?);
        bench.clear().await?;
        groups.peer.push(bench.ofctl("add-groups", &group_text, "dump-groups", 0)?);
        bench.clear().await?;
    }

    let beside = |name, sides: &Sides| Figure {
        name,
        unit: "s",
        ours: median(&sides.ours),
        peer: Some(median(&sides.peer)),
        goal: Some(Goal::Ratio(0.8)),
    };
    report(&beside("flows", &flows));
    report(&beside("groups", &groups));
    let install = median(&flows.ours);
    report(&Figure {
        name: "resync",
        unit: "s",
        ours: median(&resyncs),
        peer: Some(install),
        goal: Some(Goal::Ratio(1.0)),
    });
    report(&Figure { name: "bytes-per-flow", unit: "B", ours: bytes, peer: None, goal: Some(Goal::Ours(600.0)) });
    Ok(())
}

#[derive(Default)]
struct Sides {
    ours: Vec<Duration>,
    peer: Vec<Duration>,
}

struct Bench {
    ovs: Ovs,
    switch: Switch,
}

fn desired_flows() -> State<u32> {
    let mut state = State::new(|_| false);
    for number in 0..RULES {
        state.set_flows(&number, rule(number));
    }
    state
}

impl Bench {
    /// Peak memory for each of 100,000 flows while they are set, sent and compared.
    async fn bytes_per_flow(&self) -> Result<f64> {
        let before = MEMORY.live();
        MEMORY.reset_peak();
        let mut state = desired_flows();
        self.empty(&mut state).await?;
        self.commit(&mut state).await?;
        self.unchanged(&mut state).await?;
        let bytes = MEMORY.peak().saturating_sub(before);
        drop(state);
        self.clear().await?;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        Ok(bytes as f64 / FLOWS as f64)
    }

    /// Resyncs the state with an empty switch.
    async fn empty(&self, state: &mut State<u32>) -> Result<()> {
        self.resync(state).await?;
        state.allow_sweep();
        Ok(())
    }

    async fn resync(&self, state: &mut State<u32>) -> Result<()> {
        state.begin_resync();
        let mut groups = self.switch.dump_groups().await?;
        while let Some(group) = groups.next().await? {
            state.observe_group(group);
        }
        let mut flows = self.switch.dump_flows(FlowRequest::default()).await?;
        while let Some(entry) = flows.next().await? {
            state.observe_flow(&entry.flow);
        }
        state.end_resync();
        Ok(())
    }

    /// From the desired state to the confirmed commit.
    async fn commit(&self, state: &mut State<u32>) -> Result<Duration> {
        let start = Instant::now();
        let patch = state.patch().context("nothing to send")?;
        self.switch.commit(state.messages(&patch)).await?;
        state.committed(patch);
        Ok(start.elapsed())
    }

    /// Lists and compares everything; nothing may be left to send.
    async fn unchanged(&self, state: &mut State<u32>) -> Result<Duration> {
        let start = Instant::now();
        self.resync(state).await?;
        let patch = state.patch();
        let took = start.elapsed();
        match patch {
            None => Ok(took),
            Some(patch) => bail!("a resync without a change would send {} messages", patch.len()),
        }
    }

    async fn clear(&self) -> Result<()> {
        self.switch.commit([FlowMod::delete_all()]).await?;
        self.switch.commit([GroupMod::Delete(ALL_GROUPS)]).await?;
        Ok(())
    }

    /// The same by `ovs-ofctl`, which reads text.
    fn ofctl(&self, add: &str, text: &str, list: &str, expected: usize) -> Result<Duration> {
        let file = self.ovs.dir().join("input");
        std::fs::write(&file, text)?;
        let start = Instant::now();
        self.ovs.ofctl(["--bundle", add, "br0", &file.to_string_lossy()])?;
        let took = start.elapsed();
        let there = self.ovs.ofctl([list, "br0"])?.lines().filter(|line| line.contains("actions=")).count();
        if expected != 0 && there != expected {
            bail!("ovs-ofctl installed {there} of {expected}");
        }
        Ok(took)
    }
}

fn lines(values: impl Iterator<Item = impl Display>) -> String {
    values.map(|value| format!("{value}\n")).collect()
}
