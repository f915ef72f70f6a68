//! The brain of the controller program: the cluster, the streams of agents, and their reports.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use types::InvalidField;
use types::control::{Batch, PolicyName, Report};

use crate::brain::{Brain, Event, Subscription, Superseded};
use crate::reading::policy_name;
use crate::status::Reports;

/// Identifies the stream of an agent; the program assigns it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct StreamId(pub u64);

/// Every input of the controller, in one type that can be recorded and replayed.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum ControllerEvent {
    /// A change of the cluster.
    Cluster(Event),
    /// The agent of a Node has opened a stream, which replaces an earlier one.
    #[expect(missing_docs, reason = "the names say it")]
    StreamOpened { stream: StreamId, node: String },
    /// A stream has ended.
    StreamClosed(StreamId),
    /// The agent of a Node reports which policies it enforces.
    #[expect(missing_docs, reason = "the names say it")]
    Reported { node: String, reports: Vec<Report> },
}

/// A request of the brain to the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerEffect {
    /// The stream has a batch to take.
    Send(StreamId),
    /// Another stream of the same Node has replaced it.
    Close(StreamId),
    /// An object has an invalid field: log it.
    Log(InvalidField),
    /// A policy has invalid fields: record an Event about it.
    #[expect(missing_docs, reason = "the names say it")]
    Warn { policy: PolicyName, uid: String },
}

/// The brain of the controller program.
#[derive(Debug, Default)]
pub struct Controller {
    brain: Brain,
    reports: Reports,
    streams: HashMap<StreamId, (String, Subscription)>,
    /// Streams by the number of their subscription.
    numbers: HashMap<u64, StreamId>,
    /// The current stream of each Node.
    current: HashMap<String, StreamId>,
    effects: Vec<ControllerEffect>,
}

impl Controller {
    /// Handles an event; [`Controller::take_effects`] has the requests to the program.
    pub fn step(&mut self, event: ControllerEvent) {
        match event {
            ControllerEvent::Cluster(event) => self.cluster(event),
            ControllerEvent::StreamOpened { stream, node } => self.opened(stream, node),
            ControllerEvent::StreamClosed(stream) => self.closed(stream),
            ControllerEvent::Reported { node, reports } => self.reports.take(&self.brain, &node, reports),
        }
    }

    /// The requests to the program since the last call. After many events that arrived together, a stream is named once.
    pub fn take_effects(&mut self) -> Vec<ControllerEffect> {
        let ready = self.brain.take_ready();
        let ready = ready.iter().filter_map(|subscription| self.numbers.get(&subscription.number()));
        self.effects.extend(ready.map(|stream| ControllerEffect::Send(*stream)));
        std::mem::take(&mut self.effects)
    }

    /// Takes what the agent of a stream has not received yet.
    pub fn take(&mut self, stream: StreamId) -> Result<Option<Batch>, Superseded> {
        let (_, subscription) = self.streams.get(&stream).ok_or(Superseded)?;
        self.brain.take(subscription)
    }

    /// The groups and policies of the cluster.
    pub fn brain(&self) -> &Brain {
        &self.brain
    }

    /// The reports of agents.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    fn cluster(&mut self, event: Event) {
        let policy = match &event {
            Event::Policy(policy) => {
                Some((PolicyName::kubernetes(policy.metadata.object_name()), policy.metadata.uid.clone()))
            }
            Event::PolicyGone(name) => {
                self.reports.forget(&PolicyName::kubernetes(name.clone()));
                None
            }
            Event::AntreaPolicy(policy) => {
                Some((policy_name(policy.metadata.object_name()), policy.metadata.uid.clone()))
            }
            Event::AntreaPolicyGone(name) => {
                self.reports.forget(&policy_name(name.clone()));
                None
            }
            _ => None,
        };
        let problems = self.brain.step(event);
        let warning = policy.filter(|_| !problems.is_empty());
        self.effects.extend(problems.into_iter().map(ControllerEffect::Log));
        self.effects.extend(warning.map(|(policy, uid)| ControllerEffect::Warn { policy, uid }));
    }

    fn opened(&mut self, stream: StreamId, node: String) {
        let subscription = self.brain.subscribe(&node);
        self.numbers.insert(subscription.number(), stream);
        self.reports.connected(&node);
        let replaced = self.current.insert(node.clone(), stream);
        self.effects.extend(replaced.map(ControllerEffect::Close));
        self.streams.insert(stream, (node, subscription));
    }

    fn closed(&mut self, stream: StreamId) {
        let Some((node, subscription)) = self.streams.remove(&stream) else { return };
        self.brain.unsubscribe(&subscription);
        self.numbers.remove(&subscription.number());
        if self.current.get(&node) == Some(&stream) {
            self.current.remove(&node);
            self.reports.disconnected(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectName;
    use types::meta::Metadata;
    use types::network_policy::NetworkPolicy;
    use types::pod::Pod;

    use super::*;
    use crate::brain::Kind;

    const FIRST: StreamId = StreamId(1);
    const SECOND: StreamId = StreamId(2);

    fn opened(stream: StreamId) -> ControllerEvent {
        ControllerEvent::StreamOpened { stream, node: "n1".to_owned() }
    }

    fn metadata(name: &str) -> Metadata {
        Metadata { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}"), ..Metadata::default() }
    }

    /// A controller with a policy for the one Pod of Node `n1`.
    fn controller() -> Controller {
        let mut controller = Controller::default();
        let mut pod = Pod { metadata: metadata("web"), ..Pod::default() };
        pod.spec.node_name = "n1".into();
        let policy = NetworkPolicy { metadata: metadata("deny"), ..NetworkPolicy::default() };
        let events = [Event::Pod(Box::new(pod)), Event::Policy(Box::new(policy))];
        let synced = [Kind::Pod, Kind::Namespace, Kind::Policy].map(Event::Synced);
        for event in events.into_iter().chain(synced) {
            controller.step(ControllerEvent::Cluster(event));
        }
        assert_eq!(controller.take_effects(), []);
        controller
    }

    #[test]
    fn a_new_stream_replaces_the_one_before_and_its_end_changes_nothing() {
        let mut controller = controller();
        controller.step(opened(FIRST));
        assert_eq!(controller.take_effects(), [ControllerEffect::Send(FIRST)]);
        assert!(controller.take(FIRST).unwrap().unwrap().snapshot);
        controller.step(opened(SECOND));
        assert_eq!(controller.take_effects(), [ControllerEffect::Close(FIRST), ControllerEffect::Send(SECOND)]);
        assert_eq!(controller.take(FIRST), Err(Superseded));
        controller.step(ControllerEvent::StreamClosed(FIRST));
        assert!(controller.reports().connected_nodes().contains("n1"));
        assert!(controller.take(SECOND).unwrap().unwrap().snapshot);
        controller.step(ControllerEvent::StreamClosed(SECOND));
        assert!(controller.reports().connected_nodes().is_empty());
        assert_eq!(controller.take(SECOND), Err(Superseded));
        // The second time.
        controller.step(ControllerEvent::StreamClosed(SECOND));
    }

    #[test]
    fn reports_are_kept_while_their_policy_exists() {
        let mut controller = controller();
        let object = ObjectName { namespace: "default".into(), name: "deny".into() };
        let policy = PolicyName::kubernetes(object.clone());
        let report = Report { policy: policy.clone(), uid: "uid-deny".into(), generation: 1, problem: None };
        let unknown = Report { uid: "another".into(), ..report.clone() };
        let reported = |reports| ControllerEvent::Reported { node: "n1".into(), reports };
        controller.step(reported(vec![unknown]));
        assert!(controller.reports().of(&policy).is_empty());
        controller.step(reported(vec![report]));
        assert_eq!(controller.reports().of(&policy)["n1"].generation, 1);
        controller.step(ControllerEvent::Cluster(Event::PolicyGone(object)));
        assert!(controller.reports().of(&policy).is_empty());
    }

    #[test]
    fn events_can_be_recorded() {
        let report = Report { uid: "u".into(), ..Report::default() };
        for event in [
            opened(FIRST),
            ControllerEvent::StreamClosed(FIRST),
            ControllerEvent::Reported { node: "n1".into(), reports: vec![report] },
            ControllerEvent::Cluster(Event::Synced(Kind::Pod)),
        ] {
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<ControllerEvent>(&text).unwrap(), event, "{text}");
        }
    }
}
