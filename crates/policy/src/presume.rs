//! What a Node can tell by itself of a Pod that the controller has not seen, while there is no controller to ask.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::ObjectName;
use types::control::{
    Batch, Change, Group, GroupChange, GroupId, Member, Order, Patch, PodChange, Policy, PolicyChange, PolicyName, Seen,
};
use types::meta::Labels;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;

use crate::endpoint::Endpoint;
use crate::group_id;
use crate::reading::Reading;
use crate::replica::Replica;

/// A Pod that waits for the controller.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Waiting {
    /// As the Kubernetes API has it.
    Read(Box<Pod>),
    /// What a runtime says of it, where the Node may not read Pods: its labels are not known.
    Unread {
        /// Name from the CNI call.
        pod: ObjectName,
        /// What tells it from others of its name.
        uid: String,
    },
}

impl Waiting {
    /// Namespace and name of the Pod.
    pub fn name(&self) -> ObjectName {
        match self {
            Self::Read(pod) => pod.metadata.object_name(),
            Self::Unread { pod, .. } => pod.clone(),
        }
    }

    /// What is known of it, if it is an end of connections: as a member of groups, its uid, and its labels.
    fn endpoint(self) -> Option<(Member, String, Option<Labels>)> {
        match self {
            Self::Read(pod) => {
                let Endpoint { member, uid, labels, .. } = Endpoint::read(*pod).0.ok()?;
                Some((member, uid, Some(labels)))
            }
            Self::Unread { pod, uid } => Some((Member { pod, ..Member::default() }, uid, None)),
        }
    }
}

/// What the controller would say of a Pod of this Node, given the policies of its namespace; it holds until the next snapshot.
///
/// A policy that the Node holds in the version that is there now applies to the Pod as to others. Of one that it does not hold, the
/// groups are not known: it isolates the Pod and allows nothing. The same holds for one that may or may not select the Pod, because
/// its labels are not known. Other Nodes do not learn of the Pod: it is not a member of their AddressGroups yet.
pub fn presume(replica: &Replica, pod: Waiting, policies: &[NetworkPolicy]) -> Batch {
    let mut changes = Vec::new();
    if let Some((member, uid, labels)) = pod.endpoint() {
        let member = Arc::new(member);
        let name = &member.pod;
        let mut joined = BTreeSet::new();
        let mut alone = BTreeSet::new();
        for policy in policies.iter().filter(|policy| policy.metadata.namespace == name.namespace) {
            let of = policy.metadata.object_name();
            let reading = Reading::new(&of, policy);
            let selector = &reading.applied_to.pods;
            let is_certain = match &labels {
                Some(labels) if !selector.selects(labels) => continue,
                Some(_) => true,
                None => selector.is_everything() && reading.problems.is_empty(),
            };
            let is_same =
                |held: &&Arc<Policy>| held.uid == policy.metadata.uid && held.generation == policy.metadata.generation;
            let of = PolicyName::kubernetes(of);
            match replica.policies().get(&of).filter(|held| is_certain && is_same(held)) {
                Some(held) => joined.extend(held.applied_to.iter().copied()),
                None => {
                    let group = group_id::of_pod(name);
                    joined.insert(group);
                    // No policy of Kubernetes has such a name, so the version that other Pods have stays theirs.
                    let ObjectName { namespace, name: policy_name } = of.object;
                    let object = ObjectName { namespace, name: format!("{policy_name}/{}", name.name) };
                    let stand_in = PolicyName::kubernetes(object);
                    alone.insert(stand_in.clone());
                    let stand_in = Policy {
                        name: stand_in,
                        uid: policy.metadata.uid.clone(),
                        generation: policy.metadata.generation,
                        order: Order::Kubernetes(reading.isolates),
                        applied_to: vec![group],
                        rules: Vec::new(),
                    };
                    changes.push(Change::Policy(PolicyChange::Set(Arc::new(stand_in))));
                }
            }
        }
        let groups = joined.iter().map(|id| join(replica, *id, &member));
        changes.splice(0..0, groups.collect::<Vec<_>>());
        changes.extend(leave(replica, name, &joined, &alone));
        changes.push(Change::Pod(PodChange::Seen(Arc::new(Seen { pod: name.clone(), uid }))));
    }
    Batch { snapshot: false, changes }
}

/// What an earlier Pod of this name had, and this one has not: its places in groups, and policies of its own.
fn leave<'a>(
    replica: &'a Replica,
    pod: &'a ObjectName,
    joined: &'a BTreeSet<GroupId>,
    alone: &'a BTreeSet<PolicyName>,
) -> impl Iterator<Item = Change> + 'a {
    let stays = |id: &GroupId| joined.contains(id);
    let groups = replica.applied_to().iter().filter(move |(id, members)| members.contains_key(pod) && !stays(id));
    let groups = groups.map(|(id, _)| {
        let patch = Patch { id: *id, added: Vec::new(), removed: vec![pod.clone()] };
        Change::AppliedTo(GroupChange::Patch(Arc::new(patch)))
    });
    let its = move |policy: &&PolicyName| {
        let ObjectName { namespace, name } = &policy.object;
        *namespace == pod.namespace && name.rsplit_once('/').is_some_and(|(_, of)| of == pod.name)
    };
    let policies = replica.policies().keys().filter(its).filter(|policy| !alone.contains(*policy));
    groups.chain(policies.map(|policy| Change::Policy(PolicyChange::Delete(Arc::new(policy.clone())))))
}

fn join(replica: &Replica, id: GroupId, member: &Arc<Member>) -> Change {
    let members = vec![Arc::clone(member)];
    Change::AppliedTo(if replica.applied_to().contains_key(&id) {
        GroupChange::Patch(Arc::new(Patch { id, added: members, removed: Vec::new() }))
    } else {
        GroupChange::Set(Arc::new(Group { id, members }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brain::{Brain, Event, Kind};
    use types::control::Direction;

    fn pod(name: &str, app: &str) -> Pod {
        let mut pod = Pod::default();
        (pod.metadata.namespace, pod.metadata.name) = ("x".to_owned(), name.to_owned());
        pod.metadata.uid = format!("uid-of-{name}");
        pod.metadata.labels.insert("app".to_owned(), app.to_owned());
        pod.spec.node_name = "n1".to_owned();
        pod
    }

    fn read(pod: Pod) -> Waiting {
        Waiting::Read(Box::new(pod))
    }

    fn unread(pod: &str) -> Waiting {
        Waiting::Unread { pod: name(pod), uid: "uid-of-the-runtime".to_owned() }
    }

    fn policy(name: &str, app: &str, generation: i64) -> NetworkPolicy {
        let mut policy = NetworkPolicy::default();
        (policy.metadata.namespace, policy.metadata.name) = ("x".to_owned(), name.to_owned());
        policy.metadata.generation = generation;
        policy.spec.pod_selector.match_labels.insert("app".to_owned(), app.to_owned());
        policy.spec.ingress.push(types::network_policy::IngressRule::default());
        policy
    }

    /// What Node n1 holds that has one Pod `web`, to which a policy applies.
    fn replica() -> Replica {
        let mut brain = Brain::default();
        brain.step(Event::Pod(Box::new(pod("old", "web"))));
        brain.step(Event::Policy(Box::new(policy("web", "web", 1))));
        for kind in [Kind::Pod, Kind::Namespace, Kind::Policy] {
            brain.step(Event::Synced(kind));
        }
        let subscription = brain.subscribe("n1");
        let mut replica = Replica::default();
        replica.apply(&brain.take(&subscription).unwrap().unwrap()).unwrap();
        replica
    }

    fn name(name: &str) -> ObjectName {
        ObjectName { namespace: "x".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_policy_that_is_held_applies_to_the_new_pod_as_to_the_old() {
        let mut replica = replica();
        let batch = presume(&replica, read(pod("new", "web")), &[policy("web", "web", 1), policy("db", "db", 1)]);
        replica.apply(&batch).unwrap();
        let enforced = replica.enforced();
        assert_eq!(enforced.rules.len(), 1);
        assert!(enforced.rules.iter().all(|rule| rule.applied_to == [name("new"), name("old")].into()));
        assert_eq!(replica.seen().get(&name("new")).map(String::as_str), Some("uid-of-new"));
    }

    #[test]
    fn a_policy_that_is_not_held_in_this_version_isolates_the_new_pod_and_leaves_the_old_alone() {
        let mut replica = replica();
        let before = replica.enforced();
        let batch = presume(&replica, read(pod("new", "web")), &[policy("web", "web", 2)]);
        replica.apply(&batch).unwrap();
        let enforced = replica.enforced();
        assert_eq!(enforced.rules, before.rules);
        assert!(enforced.isolated.contains(&(Direction::Ingress, name("new"))));
        replica.apply(&presume(&replica, read(pod("new", "web")), &[policy("web", "web", 2)])).unwrap();
        assert_eq!(replica.enforced(), enforced, "to say it twice changes nothing");
    }

    #[test]
    fn another_pod_of_the_same_name_has_nothing_of_the_first() {
        let mut replica = replica();
        replica.apply(&presume(&replica, read(pod("new", "web")), &[policy("web", "web", 2)])).unwrap();
        let mut next = pod("old", "db");
        next.metadata.uid = "uid-of-the-next".to_owned();
        let policies = [policy("web", "web", 1), policy("db", "db", 1)];
        replica.apply(&presume(&replica, read(next), &policies)).unwrap();
        let enforced = replica.enforced();
        assert!(enforced.rules.is_empty(), "web's rules are not db's: {enforced:?}");
        assert!(enforced.isolated.contains(&(Direction::Ingress, name("old"))));
        replica.apply(&presume(&replica, read(pod("new", "other")), &policies)).unwrap();
        assert!(
            !replica.enforced().isolated.contains(&(Direction::Ingress, name("new"))),
            "nor what was presumed before"
        );
    }

    #[test]
    fn a_static_pod_is_known_by_what_its_runtime_calls_it() {
        let mut mirror = pod("static", "web");
        mirror.metadata.annotations.insert("kubernetes.io/config.mirror".to_owned(), "0123abcd".to_owned());
        let mut replica = replica();
        replica.apply(&presume(&replica, read(mirror), &[])).unwrap();
        assert_eq!(replica.seen().get(&name("static")).map(String::as_str), Some("0123abcd"));
    }

    #[test]
    fn a_pod_that_no_policy_selects_is_seen_and_free() {
        let mut replica = replica();
        let elsewhere = NetworkPolicy {
            metadata: types::meta::Metadata { namespace: "y".into(), ..Default::default() },
            ..Default::default()
        };
        replica.apply(&presume(&replica, read(pod("new", "other")), &[policy("web", "web", 1), elsewhere])).unwrap();
        assert!(!replica.enforced().isolated.iter().any(|(_, pod)| *pod == name("new")));
        assert!(replica.seen().contains_key(&name("new")));
    }

    #[test]
    fn a_pod_whose_labels_are_not_known_is_isolated_by_every_policy_that_may_select_it_and_gains_nothing_from_it() {
        let mut replica = replica();
        let before = replica.enforced();
        let batch = presume(&replica, unread("new"), &[policy("web", "web", 1), policy("db", "db", 1)]);
        replica.apply(&batch).unwrap();
        let enforced = replica.enforced();
        assert_eq!(enforced.rules, before.rules, "what the policies allow others is not the Pod's");
        assert!(enforced.isolated.contains(&(Direction::Ingress, name("new"))));
        assert!(!enforced.isolated.contains(&(Direction::Egress, name("new"))), "neither policy is about egress");
        assert_eq!(replica.seen().get(&name("new")).map(String::as_str), Some("uid-of-the-runtime"));
    }

    #[test]
    fn a_policy_for_all_pods_of_a_namespace_applies_to_one_whose_labels_are_not_known() {
        let everybody = || {
            let mut policy = policy("all", "", 1);
            policy.spec.pod_selector = Default::default();
            policy
        };
        let mut brain = Brain::default();
        brain.step(Event::Pod(Box::new(pod("old", "web"))));
        brain.step(Event::Policy(Box::new(everybody())));
        for kind in [Kind::Pod, Kind::Namespace, Kind::Policy] {
            brain.step(Event::Synced(kind));
        }
        let subscription = brain.subscribe("n1");
        let mut replica = Replica::default();
        replica.apply(&brain.take(&subscription).unwrap().unwrap()).unwrap();
        replica.apply(&presume(&replica, unread("new"), &[everybody()])).unwrap();
        let enforced = replica.enforced();
        assert_eq!(enforced.rules.len(), 1);
        assert!(enforced.rules.iter().all(|rule| rule.applied_to == [name("new"), name("old")].into()));
        assert!(enforced.isolated.contains(&(Direction::Ingress, name("new"))));
    }

    #[test]
    fn a_pod_whose_labels_are_not_known_is_free_in_a_namespace_without_policies() {
        let mut replica = replica();
        let elsewhere = NetworkPolicy {
            metadata: types::meta::Metadata { namespace: "y".into(), ..Default::default() },
            ..Default::default()
        };
        replica.apply(&presume(&replica, unread("new"), &[elsewhere])).unwrap();
        assert!(!replica.enforced().isolated.iter().any(|(_, pod)| *pod == name("new")));
        assert!(replica.seen().contains_key(&name("new")));
    }
}
