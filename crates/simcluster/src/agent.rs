//! An agent with its switch: the brain of the product, and the simulator in the place of ovs-vswitchd.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use delta::Message;
use node::database::{Assigned, PodPort, PortRow};
use node::{
    Brain, CniEvent, ControllerEvent, Discovery, Effect, Event, Interface, Own, Owner, PortEvent, Source, SwitchEvent,
};
use openflow::flow::{Flow, FlowMod};
use openflow::group::{Bucket, Group, GroupMod};
use openflow::wire::Reader;
use simulator::groups::Choice;
use simulator::{Arrival, Simulator, Time, Trace};
use types::control::Batch;

use crate::Error;

/// An agent and the state that outlives its process: the switch, the ports of Pods, and the last policies.
#[derive(Debug)]
pub struct Agent {
    brain: Brain,
    switch: Simulator,
    groups: BTreeMap<u32, Group>,
    interfaces: BTreeMap<String, Interface>,
    /// The last attempt to connect to the controller.
    attempt: u64,
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
            attempt: 0,
            messages: 0,
            turns: BTreeMap::new(),
        };
        agent.handle(Event::Switch(SwitchEvent::Up(1)));
        agent
    }

    /// Restarts the agent: its brain is empty; the switch and the ports of existing Pods are as before.
    pub(crate) fn restart(&mut self, own: Own, is_there: impl Fn(&Interface) -> bool) {
        self.brain = Brain::new(own);
        self.interfaces.retain(|_, interface| is_there(interface));
        self.messages = 0;
        self.handle(Event::Switch(SwitchEvent::Up(1)));
        for interface in self.interfaces.clone().into_values() {
            self.handle(port_of(interface));
        }
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

    /// Passes an event to the brain, and does what it requests, except that bundles wait for [`Agent::commit`].
    pub(crate) fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while !events.is_empty() {
            // Scenarios take no time: the agent does not wait for anything.
            self.brain.step(std::time::Duration::ZERO, events);
            events = self.brain.take_effects().into_iter().flat_map(|effect| self.carry_out(effect)).collect();
        }
    }

    /// The events that an effect causes.
    fn carry_out(&mut self, effect: Effect) -> Vec<Event> {
        match effect {
            Effect::List => {
                let flows = self.switch.tables().flows().map(|flow| Flow::clone(flow)).collect();
                let groups = self.groups.values().cloned().collect();
                let listed = [SwitchEvent::Groups(groups), SwitchEvent::Flows(flows), SwitchEvent::Listed(Ok(()))];
                listed.into_iter().map(Event::Switch).collect()
            }
            Effect::Connect { attempt, .. } => {
                self.attempt = attempt;
                Vec::new()
            }
            Effect::DeleteVeth(name) => vec![Event::Cni(CniEvent::VethDeleted { name, outcome: Ok(()) })],
            Effect::Release { id, .. } => vec![Event::Cni(CniEvent::Released { id, outcome: Ok(()) })],
            // Committed later, or without a counterpart here.
            _ => Vec::new(),
        }
    }

    /// Adds the port of a Pod to the bridge.
    pub(crate) fn attach(&mut self, interface: Interface) {
        self.interfaces.insert(interface.name.clone(), interface.clone());
        self.handle(port_of(interface));
    }

    /// Removes the port of a Pod from the bridge.
    pub(crate) fn detach(&mut self, name: &str) {
        self.interfaces.remove(name);
        self.handle(Event::Cni(CniEvent::Collect(vec![name.to_owned()])));
        self.handle(Event::Port(PortEvent::Gone(name.to_owned())));
    }

    /// Completes the initial sync of all sources but the controller and the switch.
    pub(crate) fn objects_synced(&mut self) {
        for source in [Source::Nodes, Source::Services, Source::EndpointSlices, Source::Interfaces] {
            self.handle(Event::Synced(source));
        }
    }

    /// Receives a batch on the stream of the controller, which is established if there is none.
    pub(crate) fn receive(&mut self, batch: Batch) -> Result<(), Error> {
        if self.brain.controller().is_none() {
            let addresses = vec![SocketAddr::from(([192, 0, 2, 1], 10349))];
            let discovery = Discovery { is_synced: true, is_deployed: true, has_snapshot: true, addresses };
            self.handle(Event::Controller(ControllerEvent::Discovered(discovery)));
            self.handle(Event::Controller(ControllerEvent::Connected { attempt: self.attempt }));
        }
        self.handle(Event::Controller(ControllerEvent::Batch { attempt: self.attempt, batch }));
        match self.brain.controller() {
            Some(_) => Ok(()),
            None => Err(Error::new("a batch of the controller is out of step")),
        }
    }

    /// The controller is gone.
    pub(crate) fn disconnect(&mut self) {
        let (attempt, reason) = (self.attempt, "the controller was stopped".to_owned());
        self.handle(Event::Controller(ControllerEvent::Disconnected { attempt, reason }));
    }

    /// Enforces the policies on disk.
    pub(crate) fn restore(&mut self, batch: Batch) {
        self.handle(Event::Controller(ControllerEvent::Restored(Some(batch))));
    }

    /// Computes the policies of Pods that wait for the controller, as an agent that may read Pods does while no controller is
    /// reachable.
    pub(crate) fn stand_in(&mut self, objects: &crate::cluster::Objects) {
        let pending: Vec<_> = self.brain.held().map(|interface| interface.pod.clone()).collect();
        for name in pending {
            if let Some(pod) = objects.pods.get(&name) {
                let policies: Vec<_> = objects.policies_of(&name.namespace).cloned().collect();
                let outcome = Ok((policy::Waiting::Read(Box::new(pod.clone())), policies));
                self.handle(Event::Controller(ControllerEvent::ReadPolicies { pod: name, outcome }));
            }
        }
    }

    /// Commits the difference between desired and actual state to the switch.
    pub(crate) fn commit(&mut self, now: Time) {
        loop {
            let mut sent = 0;
            for message in self.brain.bundle() {
                sent += 1;
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
            if sent == 0 {
                return;
            }
            self.messages += sent;
            self.handle(Event::Switch(SwitchEvent::Committed(Ok(()))));
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

/// The row of a Pod's port in OVSDB.
fn port_of(interface: Interface) -> Event {
    // Ports of the simulator are small numbers.
    let port = u16::try_from(interface.port.0).unwrap_or(u16::MAX);
    let pod = PodPort {
        name: interface.name.clone(),
        container: interface.uid.clone(),
        pod: interface.pod,
        uid: interface.uid,
        addresses: interface.addresses,
        mac: interface.mac,
        device: "eth0".to_owned(),
        netns: String::new(),
    };
    let row = PortRow { name: interface.name, pod: Some(pod), requested: Some(port), assigned: Assigned::Port(port) };
    Event::Port(PortEvent::Set(Box::new(row)))
}
