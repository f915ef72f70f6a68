//! Writes warning Events on NetworkPolicies with invalid fields. Only the leader writes.

use std::collections::BTreeMap;

use k8s::Client;
use tokio::sync::{mpsc, watch};
use tracing::warn;
use types::{InvalidField, ObjectName};

use crate::engine::Engine;

/// Warnings that wait for a leader; further ones are in the log only.
pub(crate) const MAX_PENDING: usize = 256;

/// A policy with invalid fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PolicyWarning {
    pub(crate) policy: ObjectName,
    pub(crate) uid: String,
}

/// Writes Events while this replica leads. Warnings from before are kept until then: there may be no leader at the moment, and a
/// replica does not know which Events the previous leader has written. So a new leader may repeat Events that are still true.
pub(crate) async fn write(
    client: Client,
    engine: Engine,
    mut leads: watch::Receiver<bool>,
    mut incoming: mpsc::Receiver<PolicyWarning>,
) {
    let mut pending = Pending::default();
    loop {
        tokio::select! {
            warning = incoming.recv() => match warning {
                Some(warning) => pending.add(warning),
                None => return,
            },
            Ok(()) = leads.changed() => {}
        }
        if !*leads.borrow() {
            continue;
        }
        for (policy, uid) in std::mem::take(&mut pending.0) {
            let of = policy.clone();
            // It may have been corrected since.
            let problems = engine.query(move |state| state.brain.problems(&of).to_vec()).await.unwrap_or_default();
            if !problems.is_empty() {
                write_one(&client, &policy, &uid, &problems).await;
            }
        }
    }
}

/// Policies with their uids.
#[derive(Debug, Default)]
struct Pending(BTreeMap<ObjectName, String>);

impl Pending {
    fn add(&mut self, PolicyWarning { policy, uid }: PolicyWarning) {
        if self.0.len() < MAX_PENDING || self.0.contains_key(&policy) {
            self.0.insert(policy, uid);
        }
    }
}

async fn write_one(client: &Client, policy: &ObjectName, uid: &str, problems: &[InvalidField]) {
    let message: Vec<String> = problems.iter().map(|it| format!("{}: {}", it.field, it.problem)).collect();
    let event = k8s::Event {
        of: ("NetworkPolicy", "networking.k8s.io/v1"),
        name: policy,
        uid,
        reason: "InvalidNetworkPolicy",
        message: &format!("invalid fields allow no traffic: {}", message.join("; ")),
    };
    if let Err(error) = client.warn(&event).await {
        warn!(%policy, %error, "cannot write an Event on the NetworkPolicy");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use policy::Event;
    use serde_json::json;
    use testkit::wait::{TIMEOUT, until};
    use types::network_policy::NetworkPolicy;

    use super::*;

    #[test]
    fn pending_warnings_are_bounded_and_the_last_uid_of_a_name_counts() {
        let mut pending = Pending::default();
        let warning = |n: usize, uid: &str| {
            let policy = ObjectName { namespace: "default".to_owned(), name: format!("policy-{n}") };
            PolicyWarning { policy, uid: uid.to_owned() }
        };
        for n in 0..MAX_PENDING + 10 {
            pending.add(warning(n, "old"));
        }
        pending.add(warning(0, "new"));
        assert_eq!((pending.0.len(), pending.0[&warning(0, "").policy].as_str()), (MAX_PENDING, "new"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn events_for_invalid_policies_are_written_once_a_leader_is_elected() {
        let server = apiserver::ApiServer::start(apiserver::Options::default()).await.unwrap();
        let dir = testkit::Scratch::new().unwrap();
        server.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let client = Client::new(Some(&dir.path().join("kubeconfig")), None).await.unwrap();
        let (warnings, incoming) = mpsc::channel(MAX_PENDING);
        let (leading, leads) = watch::channel(false);
        let engine = Engine::start(warnings.clone());
        tokio::spawn(write(client, engine.clone(), leads, incoming));

        // Today's API servers reject such a policy; an older one may have accepted it.
        let policy = |name: &str| -> NetworkPolicy {
            let spec = json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "nonsense"}}]}]});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).unwrap()
        };
        let deleted = policy("deleted");
        let gone = deleted.metadata.object_name();
        for policy in [policy("invalid"), deleted] {
            engine.send(Event::Policy(Box::new(policy))).await;
        }
        engine.send(Event::PolicyGone(gone)).await;
        let is_taken = || engine.counters.policies.load(Ordering::Relaxed) == 3 && warnings.capacity() == MAX_PENDING;
        until("the warnings are pending", TIMEOUT, || is_taken().then_some(())).unwrap();
        let written = || server.local().list("v1", "events", "default", "").unwrap().0;
        assert_eq!(written().len(), 0);
        leading.send_replace(true);
        let events = until("an Event", TIMEOUT, || Some(written()).filter(|it| !it.is_empty())).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["involvedObject"]["name"], "invalid");
        assert!(events[0]["message"].as_str().unwrap().contains("nonsense"), "{}", events[0]["message"]);
    }
}
