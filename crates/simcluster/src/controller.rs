//! The controller: the brain of the product, with the subscriptions of agents.

use std::collections::BTreeMap;

use policy::{Kind, Subscription};
use types::InvalidField;
use types::control::Batch;

use crate::Error;
use crate::object::{Object, ObjectKey};

/// A running controller with its subscribers.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    brain: policy::Brain,
    subscriptions: BTreeMap<String, Subscription>,
    /// Invalid fields by object.
    problems: BTreeMap<ObjectKey, Vec<InvalidField>>,
}

impl Controller {
    /// Applies a new or changed object.
    pub(crate) fn apply(&mut self, object: Object) {
        let key = object.key();
        let event = match object {
            Object::Namespace(namespace) => policy::Event::Namespace(namespace),
            Object::Pod(pod) => policy::Event::Pod(pod),
            Object::NetworkPolicy(policy) => policy::Event::Policy(policy),
            Object::Node(_) | Object::Service(_) | Object::EndpointSlice(_) => return,
        };
        match self.brain.step(event) {
            problems if problems.is_empty() => drop(self.problems.remove(&key)),
            problems => drop(self.problems.insert(key, problems)),
        }
    }

    /// Removes a deleted object.
    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        self.problems.remove(key);
        let name = key.name.clone();
        let event = match key.kind.as_str() {
            "Namespace" => policy::Event::NamespaceGone(name.name),
            "Pod" => policy::Event::PodGone(name),
            "NetworkPolicy" => policy::Event::PolicyGone(name),
            _ => return,
        };
        let _ = self.brain.step(event);
    }

    /// The invalid fields of all objects.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &InvalidField> {
        self.problems.values().flatten()
    }

    /// Completes the initial sync.
    pub(crate) fn sync(&mut self) {
        for kind in [Kind::Pod, Kind::Namespace, Kind::Policy] {
            let _ = self.brain.step(policy::Event::Synced(kind));
        }
    }

    /// Subscribes agents that have no subscription yet.
    pub(crate) fn connect<'a>(&mut self, nodes: impl Iterator<Item = &'a String>) {
        for node in nodes {
            if !self.subscriptions.contains_key(node) {
                self.subscriptions.insert(node.clone(), self.brain.subscribe(node));
            }
        }
    }

    /// Ends the subscription of an agent.
    pub(crate) fn disconnect(&mut self, node: &str) {
        if let Some(subscription) = self.subscriptions.remove(node) {
            self.brain.unsubscribe(&subscription);
        }
    }

    /// The batches for a subscribed agent.
    pub(crate) fn take(&mut self, node: &str) -> Result<Vec<Batch>, Error> {
        let Some(subscription) = self.subscriptions.get(node) else { return Ok(Vec::new()) };
        let mut batches = Vec::new();
        loop {
            match self.brain.take(subscription) {
                Ok(Some(batch)) => batches.push(batch),
                Ok(None) => return Ok(batches),
                Err(error) => return Err(Error::new(format!("Node {node}: {error}"))),
            }
        }
    }
}
