//! Writes down what cannot be understood of policies, where people look who describe one; one replica does.

use std::collections::BTreeMap;

use k8s::Client;
use tokio::sync::{mpsc, watch};
use tracing::warn;
use types::{InvalidField, ObjectName};

use crate::engine::Engine;

/// Complaints that wait to be written; what is beyond that is in the log only.
pub(crate) const MOST: usize = 256;

/// A policy of which something could not be understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Complaint {
    pub(crate) policy: ObjectName,
    pub(crate) uid: String,
}

/// Writes complaints while this replica leads, for ever. Those that come before are kept until it does: nobody may lead just now,
/// and a replica cannot know whether the one that led has written them. So who takes over may say again what is still so.
pub(crate) async fn write(
    client: Client,
    engine: Engine,
    mut leads: watch::Receiver<bool>,
    mut complained: mpsc::Receiver<Complaint>,
) {
    let mut waiting = Waiting::default();
    loop {
        tokio::select! {
            complaint = complained.recv() => match complaint {
                Some(complaint) => waiting.keep(complaint),
                None => return,
            },
            Ok(()) = leads.changed() => {}
        }
        if !*leads.borrow() {
            continue;
        }
        for (policy, uid) in std::mem::take(&mut waiting.0) {
            let of = policy.clone();
            // Somebody may have mended it since.
            let problems = engine.look(move |state| state.brain.problems(&of).to_vec()).await.unwrap_or_default();
            if !problems.is_empty() {
                write_one(&client, &policy, &uid, &problems).await;
            }
        }
    }
}

/// The policies that wait, and which of their name.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<ObjectName, String>);

impl Waiting {
    fn keep(&mut self, Complaint { policy, uid }: Complaint) {
        if self.0.len() < MOST || self.0.contains_key(&policy) {
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
        reason: "NotUnderstood",
        message: &format!("what is not understood allows nothing: {}", message.join("; ")),
    };
    if let Err(error) = client.warn(&event).await {
        warn!(%policy, %error, "cannot write an Event");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use policy::Event;
    use serde_json::json;
    use testkit::wait::{PATIENCE, until};
    use types::network_policy::NetworkPolicy;

    use super::*;

    #[test]
    fn so_many_wait_and_no_more_and_the_last_of_a_name_counts() {
        let mut waiting = Waiting::default();
        let complaint = |n: usize, uid: &str| {
            let policy = ObjectName { namespace: "default".to_owned(), name: format!("policy-{n}") };
            Complaint { policy, uid: uid.to_owned() }
        };
        for n in 0..MOST + 10 {
            waiting.keep(complaint(n, "old"));
        }
        waiting.keep(complaint(0, "new"));
        assert_eq!((waiting.0.len(), waiting.0[&complaint(0, "").policy].as_str()), (MOST, "new"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_understood_while_nobody_leads_is_said_when_somebody_does_if_it_is_still_so() {
        let server = apiserver::ApiServer::start(apiserver::Options::default()).await.unwrap();
        let dir = testkit::Scratch::new().unwrap();
        server.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let client = Client::new(Some(&dir.path().join("kubeconfig")), None).await.unwrap();
        let (complain, complained) = mpsc::channel(MOST);
        let (leading, leads) = watch::channel(false);
        let engine = Engine::start(complain.clone());
        tokio::spawn(write(client, engine.clone(), leads, complained));

        // No API server takes such a policy; an older one may have.
        let policy = |name: &str| -> NetworkPolicy {
            let spec = json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "nonsense"}}]}]});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).unwrap()
        };
        let mended = policy("mended");
        let gone = mended.metadata.object_name();
        for policy in [policy("broken"), mended] {
            engine.tell(Event::Policy(Box::new(policy))).await;
        }
        engine.tell(Event::PolicyGone(gone)).await;
        let is_taken = || engine.counters.policies.load(Ordering::Relaxed) == 3 && complain.capacity() == MOST;
        until("the complaints are kept", PATIENCE, || is_taken().then_some(())).unwrap();
        let written = || server.local().list("v1", "events", "default", "").unwrap().0;
        assert_eq!(written().len(), 0);
        leading.send_replace(true);
        let told = until("an Event", PATIENCE, || Some(written()).filter(|it| !it.is_empty())).unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["involvedObject"]["name"], "broken");
        assert!(told[0]["message"].as_str().unwrap().contains("nonsense"), "{}", told[0]["message"]);
    }
}
