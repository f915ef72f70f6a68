//! An agent with its switch: the brain of the product, and the simulator in the place of ovs-vswitchd.

use std::collections::BTreeMap;

use delta::Message;
use node::{Brain, Event, Interface, Own, Owner, Source};
use openflow::flow::{Flow, FlowMod};
use openflow::group::{Bucket, Group, GroupMod};
use openflow::wire::Reader;
use policy::OutOfStep;
use simulator::groups::Choice;
use simulator::{Arrival, Simulator, Time, Trace};
use types::control::Batch;

/// An agent and the state that outlives its process: the switch, the ports of Pods, and the last policies.
#[derive(Debug)]
pub struct Agent {
    brain: Brain,
    switch: Simulator,
    groups: BTreeMap<u32, Group>,
    interfaces: BTreeMap<String, Interface>,
    /// Messages that the switch has received since the agent started.
    messages: usize,
    /// Number of packets for each group.
    turns: BTreeMap<u32, usize>,
}

impl Agent {
    /// Starts an agent on a Node with an empty switch.
    pub(crate) fn start(own: Own) -> Self {
        let switch = Simulator::default();
        let mut agent = Self {
            brain: Brain::new(own),
            switch,
            groups: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            messages: 0,
            turns: BTreeMap::new(),
        };
        agent.resync();
        agent
    }

    /// Restarts the agent: its brain is empty; the switch and the ports of existing Pods are as before.
    pub(crate) fn restart(&mut self, own: Own, is_there: impl Fn(&Interface) -> bool) {
        self.brain = Brain::new(own);
        self.interfaces.retain(|_, interface| is_there(interface));
        self.messages = 0;
        self.resync();
        for interface in self.interfaces.values() {
            self.brain.handle(Event::Attached(interface.clone()));
        }
    }

    /// Lists the switch, as an agent does when it connects.
    fn resync(&mut self) {
        self.brain.switch().begin_resync();
        for group in self.groups.values() {
            let _ = self.brain.switch().observe_group(group.clone());
        }
        for flow in self.switch.tables().flows() {
            let _ = self.brain.observe_flow(flow);
        }
        self.brain.end_resync();
    }

    /// The brain, for reading.
    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// The switch, for reading.
    pub fn switch(&self) -> &Simulator {
        &self.switch
    }

    /// The groups that the switch holds.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// Number of messages that the switch has received since the agent started.
    pub fn messages(&self) -> usize {
        self.messages
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match &event {
            Event::Attached(interface) => _ = self.interfaces.insert(interface.name.clone(), interface.clone()),
            Event::Detached(name) => _ = self.interfaces.remove(name),
            _ => {}
        }
        self.brain.handle(event);
    }

    /// Completes the initial sync of all sources but the controller and the switch.
    pub(crate) fn objects_synced(&mut self) {
        for source in [Source::Nodes, Source::Services, Source::EndpointSlices, Source::Interfaces] {
            self.brain.handle(Event::Synced(source));
        }
    }

    pub(crate) fn receive(&mut self, batch: &Batch) -> Result<(), OutOfStep> {
        self.brain.enforce(batch)
    }

    /// Computes the policies of Pods that wait for the controller, as an agent that may read Pods does while no controller is
    /// reachable.
    pub(crate) fn stand_in(&mut self, objects: &crate::cluster::Objects) {
        let pending: Vec<_> = self.brain.held().map(|interface| interface.pod.clone()).collect();
        for name in pending {
            if let Some(pod) = objects.pods.get(&name) {
                let policies: Vec<_> = objects.policies_of(&name.namespace).cloned().collect();
                self.brain.presume(policy::Waiting::Read(Box::new(pod.clone())), &policies);
            }
        }
    }

    /// Commits the difference between desired and actual state to the switch.
    pub(crate) fn commit(&mut self, now: Time) {
        while let Some(patch) = self.brain.switch().patch() {
            let state = self.brain.switch();
            for message in state.messages(&patch) {
                self.messages += 1;
                match message {
                    Message::FlowAdd(flow) => self.switch.flow_mod(now, &FlowMod::add(flow.decode())),
                    Message::FlowDelete(flow) => self.switch.flow_mod(now, &FlowMod::delete_strict(&flow.decode())),
                    Message::GroupPut(body) => {
                        if let Ok(change) = GroupMod::decode(&mut Reader::new(&body)) {
                            if let GroupMod::Add(group) | GroupMod::AddOrModify(group) = &change {
                                self.groups.insert(group.id, group.clone());
                            }
                            self.switch.group_mod(&change);
                        }
                    }
                    Message::GroupDelete(id) => {
                        self.groups.remove(&id);
                        self.switch.group_mod(&GroupMod::Delete(id));
                    }
                }
            }
            self.brain.switch().committed(patch);
        }
    }

    /// Runs a packet through the switch. Endpoints are selected in turn, where a real switch uses a hash.
    pub(crate) fn run(&mut self, now: Time, arrival: &Arrival) -> Trace {
        let picks = self.groups.values().filter_map(|group| Some((group.id, self.next_bucket(group)?))).collect();
        self.switch = std::mem::take(&mut self.switch).with_choice(Choice::Picks(picks));
        let trace = self.switch.run(now, arrival);
        for pick in &trace.picks {
            *self.turns.entry(pick.group).or_default() += 1;
        }
        trace
    }

    /// The bucket of the next endpoint in turn. An endpoint may have two buckets.
    fn next_bucket(&self, group: &Group) -> Option<u32> {
        let mut buckets: Vec<&Bucket> = group.buckets.iter().collect();
        buckets.dedup_by_key(|bucket| &bucket.actions);
        let turn = self.turns.get(&group.id).copied().unwrap_or_default();
        buckets.get(turn % buckets.len().max(1)).map(|bucket| bucket.id)
    }

    /// The owners of a flow that the switch holds; none for one that it has learned.
    pub fn owners_of(&self, flow: &Flow) -> Vec<Owner> {
        let is_same = |other: &Flow| {
            other.table == flow.table && other.priority == flow.priority && other.matches == flow.matches
        };
        self.brain.flows().find(|(other, _)| is_same(other)).map(|(_, owners)| owners).unwrap_or_default()
    }
}
