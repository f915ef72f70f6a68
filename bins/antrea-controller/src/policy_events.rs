//! Writes warning Events on NetworkPolicies with invalid fields. Only the leader writes.

use std::collections::BTreeMap;

use k8s::{Client, RequestError};
use reconcile::{Pass, Settings, Target};
use tokio::sync::{mpsc, watch};
use tracing::warn;
use types::InvalidField;
use types::control::PolicyName;

use crate::engine::Engine;
use crate::inputs::{Input, Inputs};

/// Warnings that wait for a leader; further ones are in the log only.
pub(crate) const MAX_PENDING: usize = 256;

/// A policy with invalid fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PolicyWarning {
    pub(crate) policy: PolicyName,
    pub(crate) uid: String,
}

/// Writes Events while this replica leads. Warnings from before are kept until then: there may be no leader at the moment, and a
/// replica does not know which Events the previous leader has written. So a new leader may repeat Events that are still true.
pub(crate) async fn write(
    client: Client,
    engine: Engine,
    leads: watch::Receiver<bool>,
    incoming: mpsc::Receiver<PolicyWarning>,
) {
    let events = PolicyEvents { client, engine, pending: Pending::default() };
    reconcile::run(events, Inputs::new(incoming, leads), Settings::ON_CHANGE).await;
}

struct PolicyEvents {
    client: Client,
    engine: Engine,
    pending: Pending,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write an Event on {policy}: {source}")]
struct EventError {
    policy: PolicyName,
    source: RequestError,
}

impl Target for PolicyEvents {
    type Desired = Input<PolicyWarning>;
    /// The policy that got an Event.
    type Change = PolicyName;
    type Failure = EventError;

    fn name(&self) -> &'static str {
        "policy Event"
    }

    async fn reconcile(&mut self, Input { events, leads }: Input<PolicyWarning>) -> Pass<PolicyName, EventError> {
        for warning in events {
            self.pending.add(warning);
        }
        let mut pass = Pass::default();
        if !leads {
            return pass;
        }
        for (policy, uid) in std::mem::take(&mut self.pending.0) {
            let of = policy.clone();
            let problems =
                self.engine.query(move |state| state.brain().problems(&of).to_vec()).await.unwrap_or_default();
            // It may have been corrected since.
            let Some(message) = message(&problems) else { continue };
            match self.write(&policy, &uid, &message).await {
                Ok(()) => pass.changes.push(policy),
                Err(source) => {
                    let warning = PolicyWarning { policy: policy.clone(), uid };
                    if source.is_transient() {
                        self.pending.add(warning);
                        pass.failures.push(EventError { policy, source });
                    } else {
                        warn!("{}; the log has the invalid fields", EventError { policy, source });
                    }
                }
            }
        }
        pass
    }
}

impl PolicyEvents {
    async fn write(&self, policy: &PolicyName, uid: &str, message: &str) -> Result<(), RequestError> {
        let of = policy.kind.api();
        self.client.warn(&k8s::Event { of, name: &policy.object, uid, reason: "InvalidNetworkPolicy", message }).await
    }
}

/// The message of the Event for these problems, if there are any.
fn message(problems: &[InvalidField]) -> Option<String> {
    let fields: Vec<String> = problems.iter().map(|it| format!("{}: {}", it.field, it.problem)).collect();
    (!fields.is_empty()).then(|| format!("invalid fields allow no traffic: {}", fields.join("; ")))
}

/// Policies with their uids.
#[derive(Debug, Default)]
struct Pending(BTreeMap<PolicyName, String>);

impl Pending {
    fn add(&mut self, PolicyWarning { policy, uid }: PolicyWarning) {
        if self.0.len() < MAX_PENDING || self.0.contains_key(&policy) {
            self.0.insert(policy, uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use policy::Event;
    use serde_json::json;
    use testkit::wait::{TIMEOUT, until};
    use types::ObjectName;
    use types::network_policy::NetworkPolicy;

    use super::*;

    #[test]
    fn pending_warnings_are_bounded_and_the_last_uid_of_a_name_counts() {
        let mut pending = Pending::default();
        let warning = |n: usize, uid: &str| {
            let object = ObjectName { namespace: "default".to_owned(), name: format!("policy-{n}") };
            PolicyWarning { policy: PolicyName::kubernetes(object), uid: uid.to_owned() }
        };
        for n in 0..MAX_PENDING + 10 {
            pending.add(warning(n, "old"));
        }
        pending.add(warning(0, "new"));
        assert_eq!((pending.0.len(), pending.0[&warning(0, "").policy].as_str()), (MAX_PENDING, "new"));
    }

    #[test]
    fn the_message_names_all_invalid_fields_and_a_corrected_policy_has_none() {
        let field = |field: &str| InvalidField {
            kind: "NetworkPolicy",
            name: ObjectName::default(),
            field: field.to_owned(),
            problem: "`x` is not an address".to_owned(),
        };
        let text = message(&[field("spec.a"), field("spec.b")]).unwrap();
        assert!(text.ends_with("spec.a: `x` is not an address; spec.b: `x` is not an address"), "{text}");
        assert_eq!(message(&[]), None);
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
