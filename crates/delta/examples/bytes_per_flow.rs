//! How much memory and time a hundred thousand conjunctive flows take, from the first wish to a resync after the commit.
//!
//! `cargo run --release -p delta --example bytes_per_flow`

#![expect(clippy::print_stdout, reason = "it is a program that prints a table")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use delta::State;
use openflow::action::Action;
use openflow::bundle::Bundled;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;

const FLOWS: u32 = 100_000;

/// Counts what is allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe by its nature; this one hands on to the system's")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Flow `n` of a rule: packets from one peer, as the first of two clauses.
fn flow(rule: u32, n: u32) -> Flow {
    let matches = Match::ip().with(Field::Ipv4Src, 0x0a00_0000 + n);
    let action = Action::Conjunction { id: rule + 1, clause: 1, of: 2 };
    Flow::at(90, 200).when(matches).then(action).cookie(u64::from(rule) << 32 | 0x90)
}

/// As many flows as there are, in rules that each name so many peers; so many rules name the same ones.
fn rules(peers: u32, sharing: u32) -> impl Iterator<Item = (u32, std::ops::Range<u32>)> {
    let sets = FLOWS / peers;
    (0..sets * sharing).map(move |rule| (rule, rule % sets * peers..(rule % sets + 1) * peers))
}

/// The flows as the switch lists them.
fn listed(peers: u32, sharing: u32) -> impl Iterator<Item = Flow> {
    let sets = FLOWS / peers;
    (0..FLOWS).map(move |n| {
        let first = n / peers;
        let mut all = flow(first, n);
        all.actions = (0..sharing).flat_map(|i| flow(first + i * sets, n).actions).collect();
        all
    })
}

fn want(state: &mut State<u32>, peers: u32, sharing: u32) {
    for (rule, peers) in rules(peers, sharing) {
        state.set_flows(&rule, peers.map(|n| flow(rule, n)));
    }
}

fn resync(state: &mut State<u32>, peers: u32, sharing: u32) {
    state.begin_resync();
    for flow in listed(peers, sharing) {
        state.observe_flow(&flow);
    }
    state.end_resync();
}

/// Prints time and memory since the last call.
struct Meter {
    base: usize,
    since: Instant,
}

impl Meter {
    fn new() -> Self {
        let base = NOW.load(Relaxed);
        PEAK.store(base, Relaxed);
        Self { base, since: Instant::now() }
    }

    fn read(&mut self, what: &str) {
        let per_flow = |bytes: usize| bytes.saturating_sub(self.base) / FLOWS as usize;
        let millis = self.since.elapsed().as_millis();
        let (now, peak) = (per_flow(NOW.load(Relaxed)), per_flow(PEAK.load(Relaxed)));
        println!("  {what:24} {millis:6} ms   {now:4} bytes a flow, {peak:4} at the peak so far");
        self.since = Instant::now();
    }
}

fn start(peers: u32, sharing: u32) {
    println!("start on an empty switch: {FLOWS} flows, {peers} a rule, {sharing} rules a flow");
    let mut meter = Meter::new();
    let mut state = State::new(|_| false);
    state.begin_resync();
    state.end_resync();
    state.allow_sweep();
    want(&mut state, peers, sharing);
    meter.read("set");
    let Some(patch) = state.patch() else { return };
    meter.read("patch");
    let (mut buffer, mut sent) = (Vec::new(), 0);
    for message in state.messages(&patch, patch.bundle()) {
        buffer.clear();
        message.put_body(&mut buffer);
        sent += buffer.len();
    }
    meter.read("encode");
    state.committed(patch);
    meter.read("commit");
    resync(&mut state, peers, sharing);
    assert!(state.patch().is_none(), "a resync that finds no change sends nothing");
    meter.read("resync");
    want(&mut state, peers, sharing);
    assert!(state.patch().is_none(), "nor does saying the same again");
    meter.read("set the same again");
    println!("  {} bytes a flow were sent", sent / FLOWS as usize);
}

/// What making the flows costs without doing anything with them.
fn generate(peers: u32, sharing: u32) {
    println!("only make them: {FLOWS} flows, {peers} a rule, {sharing} rules a flow");
    let mut meter = Meter::new();
    let actions: usize =
        rules(peers, sharing).flat_map(|(r, peers)| peers.map(move |n| flow(r, n).actions.len())).sum();
    meter.read("for set");
    assert_eq!(listed(peers, sharing).map(|flow| flow.actions.len()).sum::<usize>(), actions, "as many clauses");
    meter.read("for resync");
}

fn restart(peers: u32, sharing: u32) {
    println!("restart on a full switch: {FLOWS} flows, {peers} a rule, {sharing} rules a flow");
    let mut meter = Meter::new();
    let mut state = State::new(|_| false);
    resync(&mut state, peers, sharing);
    meter.read("resync");
    want(&mut state, peers, sharing);
    meter.read("set");
    state.allow_sweep();
    assert!(state.patch().is_none(), "a restart sends nothing");
    meter.read("allow sweep, patch");
}

fn main() {
    for (peers, sharing) in [(100, 1), (FLOWS, 1), (100, 10)] {
        generate(peers, sharing);
        start(peers, sharing);
        restart(peers, sharing);
    }
}
