//! Random policies: isolation, rules of Kubernetes, of tiers and of the baseline.

use std::collections::BTreeSet;

use pipeline::model::{Applied, Direction, IpBlock, Ports, Protocol, Rule, RuleAction, RuleKind};

use super::scene::applied;
use crate::cluster::Cluster;
use testkit::dice::Dice;

pub(super) fn add(dice: &mut Dice, cluster: &mut Cluster) {
    let pods: Vec<Applied> = cluster.pods.iter().map(applied).collect();
    for direction in [Direction::Ingress, Direction::Egress] {
        cluster.isolated.extend(dice.some(&pods, 30).into_iter().map(|pod| (direction, pod)));
    }
    let tiers = cluster.node.features.antrea_policy;
    cluster.rules = (1..1 + dice.below(10)).map(|id| rule(dice, &pods, tiers, u16::try_from(id).unwrap())).collect();
}

/// Rules of tiers have distinct priorities, since the order of rules with equal priority is undefined.
fn rule(dice: &mut Dice, pods: &[Applied], tiers: bool, id: u16) -> Rule {
    use RuleAction::{Allow, Drop, Pass, Reject};
    let action = dice.one(&[Allow, Allow, Drop, Reject, Pass]);
    let kind = match dice.below(if tiers { 4 } else { 1 }) {
        0 | 1 => RuleKind::Kubernetes,
        2 => RuleKind::Antrea { priority: 14_000 + id, action },
        _ => RuleKind::Baseline { priority: 100 + id, action },
    };
    let mut applied_to: BTreeSet<Applied> = dice.some(pods, 50).into_iter().collect();
    applied_to.insert(dice.one(pods));
    Rule {
        id: u32::from(id),
        direction: dice.one(&[Direction::Ingress, Direction::Egress]),
        kind,
        applied_to,
        peers: dice.percent(70).then(|| peers(dice, pods)),
        ports: dice.percent(60).then(|| ports(dice)),
    }
}

fn peers(dice: &mut Dice, pods: &[Applied]) -> BTreeSet<IpBlock> {
    let block = |cidr: &str, except: &[&str]| IpBlock {
        cidr: cidr.parse().unwrap(),
        except: except.iter().map(|hole| hole.parse().unwrap()).collect(),
    };
    let ranges = [
        block("10.10.0.0/16", &["10.10.0.10/31"]),
        block("0.0.0.0/0", &["10.0.0.0/8"]),
        block("203.0.113.0/24", &[]),
        block("fd00:10::/32", &["fd00:10::10/127"]),
        block("::/0", &["fd00:10::/32"]),
        block("fd00:113::/64", &[]),
    ];
    let addresses = pods.iter().flat_map(|pod| &pod.addresses).map(|address| IpBlock::from(*address));
    let candidates: Vec<IpBlock> = addresses.chain(ranges).collect();
    dice.some(&candidates, 25).into_iter().collect()
}

fn ports(dice: &mut Dice) -> BTreeSet<Ports> {
    let protocol = [Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let range = [None, Some((80, 80)), Some((8080, 8080)), Some((1, 1000)), Some((1000, 9000))];
    (0..1 + dice.below(3)).map(|_| Ports { protocol: dice.one(&protocol), range: dice.one(&range) }).collect()
}
