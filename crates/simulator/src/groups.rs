//! Groups, and the selection of a bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::action::Action;
use openflow::group::{ALL_GROUPS, Bucket, BucketPosition, Group, GroupMod, GroupType};
use openflow::port::Port;

/// All groups of a switch.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: BTreeMap<u32, Arc<Group>>,
    /// Ports whose link is down.
    dead_ports: BTreeSet<Port>,
}

/// The bucket that a select group takes: the real switch uses a hash, whose result cannot be predicted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The first live bucket with a weight.
    #[default]
    First,
    /// By group, the id of the bucket; the first one for groups that are not listed.
    Picks(BTreeMap<u32, u32>),
}

/// The bucket that a select group took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pick {
    /// Id of the group.
    pub group: u32,
    /// Id of the bucket.
    pub bucket: u32,
}

impl Groups {
    /// An empty group table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group, or replaces the one with the same id.
    pub fn add(&mut self, group: Group) {
        self.groups.insert(group.id, Arc::new(group));
    }

    /// Applies a group-mod. Flows that use a deleted group are not removed: see [`crate::Simulator::group_mod`].
    pub fn apply(&mut self, group_mod: &GroupMod) {
        match group_mod {
            GroupMod::Add(group) | GroupMod::AddOrModify(group) => self.add(group.clone()),
            GroupMod::Modify(group) => {
                if self.groups.contains_key(&group.id) {
                    self.add(group.clone());
                }
            }
            GroupMod::Delete(ALL_GROUPS) => self.groups.clear(),
            GroupMod::Delete(id) => drop(self.groups.remove(id)),
            GroupMod::InsertBuckets(group, position) => {
                if let Some(old) = self.groups.get_mut(&group.id) {
                    let buckets = &mut Arc::make_mut(old).buckets;
                    let at = match position {
                        BucketPosition::First => 0,
                        BucketPosition::Last | BucketPosition::All => buckets.len(),
                        BucketPosition::Id(id) => {
                            buckets.iter().position(|bucket| bucket.id == *id).map_or(buckets.len(), |at| at + 1)
                        }
                    };
                    buckets.splice(at..at, group.buckets.iter().cloned());
                }
            }
            GroupMod::RemoveBuckets(id, position) => {
                if let Some(old) = self.groups.get_mut(id) {
                    let buckets = &mut Arc::make_mut(old).buckets;
                    match position {
                        BucketPosition::All => buckets.clear(),
                        BucketPosition::First => drop(buckets.drain(..buckets.len().min(1))),
                        BucketPosition::Last => drop(buckets.pop()),
                        BucketPosition::Id(id) => buckets.retain(|bucket| bucket.id != *id),
                    }
                }
            }
        }
    }

    /// The group with this number.
    pub fn get(&self, id: u32) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    /// Sets whether the link of a port is up; buckets that watch a port that is down are dead.
    pub fn set_port(&mut self, port: Port, up: bool) {
        if up {
            self.dead_ports.remove(&port);
        } else {
            self.dead_ports.insert(port);
        }
    }

    /// Positions of the candidate buckets: a select group takes one of them, other types all.
    pub fn candidates(&self, group: &Group) -> Vec<usize> {
        let alive = |bucket: &Bucket| self.is_alive(bucket, 0);
        let places = |keep: &dyn Fn(&Bucket) -> bool| -> Vec<usize> {
            group.buckets.iter().enumerate().filter(|(_, bucket)| keep(bucket)).map(|(place, _)| place).collect()
        };
        match group.kind {
            GroupType::All | GroupType::Indirect => places(&|_| true),
            GroupType::Select => places(&|bucket| bucket.weight != Some(0) && alive(bucket)),
            GroupType::FastFailover => places(&alive).into_iter().take(1).collect(),
        }
    }

    fn is_alive(&self, bucket: &Bucket, depth: u8) -> bool {
        // Groups that watch each other in a cycle are dead.
        let group_is_alive = |id: u32| {
            depth < 16
                && self.groups.get(&id).is_some_and(|group| group.buckets.iter().any(|b| self.is_alive(b, depth + 1)))
        };
        match (bucket.watch_port, bucket.watch_group) {
            (None, None) => true,
            (port, group) => {
                port.is_some_and(|port| !self.dead_ports.contains(&port)) || group.is_some_and(group_is_alive)
            }
        }
    }
}

/// The actions of a bucket in the order of execution.
///
/// A bucket is a set, not a list: the TTL is decremented first, then fields are written in order, then one final action
/// runs: group before output, resubmit and ct, and the last one of a kind. Other actions are ignored, and without a final
/// action nothing is executed.
pub(crate) fn bucket_actions(bucket: &Bucket) -> Vec<Action> {
    let rank = |action: &Action| match action {
        Action::Ct(_) => 1,
        Action::Resubmit { .. } => 2,
        Action::Output(_) => 3,
        Action::Group(_) => 4,
        _ => 0,
    };
    let Some(last) = bucket.actions.iter().filter(|action| rank(action) > 0).max_by_key(|action| rank(action)) else {
        return Vec::new();
    };
    let writes = |action: &&Action| matches!(action, Action::SetField { .. } | Action::Move { .. });
    let ttl = bucket.actions.iter().find(|action| matches!(action, Action::DecTtl));
    ttl.into_iter().chain(bucket.actions.iter().filter(writes)).chain([last]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_set() {
        let bucket = |actions: &str| {
            let group: Group = format!("group_id=1,type=all,bucket=actions={actions}").parse().unwrap();
            let actions = bucket_actions(&group.buckets[0]);
            actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        assert_eq!(bucket("output:1,resubmit(,3),set_field:1->reg0,output:2"), "set_field:0x1->reg0,output:2");
        assert_eq!(bucket("set_field:1->reg0,dec_ttl,resubmit(,3)"), "dec_ttl,set_field:0x1->reg0,resubmit(,3)");
        assert_eq!(bucket("set_field:1->reg0"), "");
    }

    fn groups(texts: &[&str]) -> Groups {
        let mut groups = Groups::new();
        for text in texts {
            groups.add(text.parse().unwrap());
        }
        groups
    }

    #[test]
    fn a_bucket_without_weight_or_link_is_not_taken() {
        let mut groups = groups(&["group_id=1,type=select,bucket=weight:0,actions=output:1,\
                                   bucket=weight:5,watch_port:2,actions=output:2,bucket=weight:5,actions=output:3"]);
        let group = groups.get(1).unwrap().clone();
        assert_eq!(groups.candidates(&group), [1, 2]);
        groups.set_port(Port(2), false);
        assert_eq!(groups.candidates(&group), [2]);
    }

    #[test]
    fn failover_takes_the_first_live_bucket() {
        let mut groups = groups(&[
            "group_id=1,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,actions=output:2",
            "group_id=2,type=all,bucket=watch_port:3,actions=output:3",
        ]);
        let group = groups.get(1).unwrap().clone();
        assert_eq!(groups.candidates(&group), [0]);
        groups.set_port(Port(1), false);
        assert_eq!(groups.candidates(&group), [1]);
        groups.set_port(Port(3), false);
        assert_eq!(groups.candidates(&group), [0; 0]);
    }
}
