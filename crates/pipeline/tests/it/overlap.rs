//! Every variant of the pipeline, with objects of every kind, in a switch that rejects overlapping flows.
//!
//! If two flows of one table and priority match a packet, the order of installation decides. The switch checks each flow
//! (CHECK_OVERLAP); the test computes the overlapping pairs, and each must be on the allow-list.

mod everything;

use std::sync::LazyLock;

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::{Flow, FlowFlags};
use openflow::group::Group;
use pipeline::model::{Datapath, Features, Mode};
use pipeline::tables::{Layout, Table};
use testkit::Ovs;

use crate::client::{Client, add, put_group};
use crate::cluster::is_clause;

struct Allowed {
    why: &'static str,
    is: fn(&Flow, &Flow) -> bool,
}

/// The list of `spec/pipeline.md`, section 1.
const ALLOWED: &[Allowed] = &[
    Allowed {
        why: "an established connection and one related to one do the same",
        is: |a, b| {
            let bypass = |flow: &Flow| flow.matches.get(Field::CtState).is_some_and(|(_, mask)| mask & NEW != 0);
            bypass(a) && bypass(b) && a.actions == b.actions && is_policy(a)
        },
    },
    Allowed {
        why: "a probe of the host in an established connection passes either way",
        is: |a, b| {
            let probe = |flow: &Flow| {
                let host = flow.matches.get(Field::PktMark).or(flow.matches.get(Field::Ipv4Src));
                host.or(flow.matches.get(Field::Ipv6Src)).is_some() && flow.priority == 210
            };
            let known = |flow: &Flow| flow.matches.get(Field::CtState).is_some();
            a.table == Table::IngressRule.id() && (probe(a) && known(b) || probe(b) && known(a))
        },
    },
    Allowed {
        why: "clauses of rules are there to overlap, and the verdict has their priority in tiers",
        is: |a, b| {
            let part = |flow: &Flow| is_clause(flow) || flow.matches.get(Field::ConjId).is_some();
            part(a) && part(b) && (is_clause(a) || is_clause(b))
        },
    },
    Allowed {
        why: "no packet of a Pod to itself comes from the host",
        is: |a, b| {
            let itself = |flow: &Flow| {
                let same = |src, dst| flow.matches.get(src).is_some() && flow.matches.get(src) == flow.matches.get(dst);
                same(Field::Ipv4Src, Field::Ipv4Dst) || same(Field::Ipv6Src, Field::Ipv6Dst)
            };
            a.table == Table::HairpinSnat.id() && itself(a) != itself(b)
        },
    },
];

const NEW: u128 = 0x01;

fn is_policy(flow: &Flow) -> bool {
    let tables = [
        Table::AntreaEgress,
        Table::EgressRule,
        Table::EgressDefault,
        Table::AntreaIngress,
        Table::IngressRule,
        Table::IngressDefault,
    ];
    tables.iter().any(|table| table.id() == flow.table)
}

/// The conditions of a match.
type Conditions = Vec<(Field, u128, u128)>;

/// Whether a packet can match both.
fn overlap(a: &Conditions, b: &Conditions) -> bool {
    let disjoint = |(field, value, mask): &(Field, u128, u128)| {
        b.iter().any(|(f, other, other_mask)| f == field && (value ^ other) & mask & other_mask != 0)
    };
    !a.iter().any(disjoint)
}

/// A variant of the pipeline, compiled.
struct Variant {
    name: String,
    layout: Layout,
    flows: Vec<Flow>,
    groups: Vec<Group>,
}

/// All variants of the pipeline.
static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let mut variants = Vec::new();
    for mode in [Mode::Encap, Mode::NoEncap, Mode::Hybrid, Mode::NetworkPolicyOnly] {
        for (antrea_proxy, proxy_all) in [(true, true), (true, false), (false, false)] {
            for antrea_policy in [true, false] {
                for datapath in [Datapath::System, Datapath::Netdev, Datapath::Windows] {
                    let features = Features { antrea_proxy, proxy_all, antrea_policy };
                    let name = format!("{mode:?}, {datapath:?}, {features:?}");
                    let cluster = everything::on(mode, features, datapath);
                    let flows = cluster.flows().into_values().collect();
                    let groups = cluster.groups().into_values().collect();
                    variants.push(Variant { name, layout: *cluster.pipeline().layout(), flows, groups });
                }
            }
        }
    }
    variants
});

#[test]
fn no_flow_depends_on_the_order_of_installation_beyond_the_allow_list() {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br-int").unwrap();
    let mut client = Client::connect(&ovs, "br-int");
    let mut complaints = Vec::new();
    let mut used = vec![false; ALLOWED.len()];
    for Variant { name: variant, flows, groups, .. } in VARIANTS.iter() {
        client.clear();
        client.done(&groups.iter().map(put_group).collect::<Vec<_>>());
        let checked = |flow: &Flow| add(&Flow { flags: FlowFlags::CHECK_OVERLAP, ..flow.clone() });
        let refused = client.send(&flows.iter().map(checked).collect::<Vec<_>>());

        // Flows come in the order of tables and priorities, so those that can overlap are neighbours.
        let conditions: Vec<Conditions> = flows.iter().map(|flow| flow.matches.fields().collect()).collect();
        let place = |flow: &Flow| (flow.table, flow.priority);
        for (i, flow) in flows.iter().enumerate() {
            let error = refused.get(&i);
            if let Some(error) = error.filter(|error| !error.is("OFPFMFC_OVERLAP")) {
                complaints.push(format!("{variant}: refused with {error}:\n  {flow}"));
            }
            let neighbours = (0..i).rev().take_while(|j| place(&flows[*j]) == place(flow));
            let overlapping: Vec<_> = neighbours.filter(|j| overlap(&conditions[i], &conditions[*j])).collect();
            // A rejected flow is not installed, so it cannot overlap.
            let there = overlapping.iter().any(|j| !refused.contains_key(j));
            assert_eq!(error.is_some(), there, "{variant}: the switch sees it otherwise: {flow}");
            for other in overlapping.iter().map(|j| &flows[*j]) {
                match ALLOWED.iter().position(|allowed| (allowed.is)(flow, other)) {
                    Some(entry) => used[entry] = true,
                    None => complaints.push(format!("{variant}: overlap of\n  {other}\n  {flow}")),
                }
            }
        }
    }
    for (allowed, _) in ALLOWED.iter().zip(&used).filter(|(_, used)| !**used) {
        complaints.push(format!("never needed: {}", allowed.why));
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn every_flow_and_group_is_accepted_as_text_too() {
    let ovs = Ovs::start().unwrap();
    ovs.add_bridge("br-int").unwrap();
    let lines = |items: Vec<String>| items.into_iter().map(|item| item + "\n").collect::<String>();
    // The text of a flow does not depend on the variant: a few are enough.
    for Variant { name: variant, flows, groups, .. } in VARIANTS.iter().step_by(11) {
        let count = flows.len();
        let groups = lines(groups.iter().map(ToString::to_string).collect());
        let flows = lines(flows.iter().map(ToString::to_string).collect());
        let install = || {
            ovs.ofctl(["del-groups", "br-int"])?;
            ovs.ofctl_stdin(["add-groups", "br-int", "-"], &groups)?;
            ovs.ofctl_stdin(["--bundle", "replace-flows", "br-int", "-"], &flows)
        };
        install().unwrap_or_else(|error| panic!("{variant}: {error:#}"));
        let installed = ovs.ofctl(["dump-aggregate", "br-int"]).unwrap();
        assert!(installed.contains(&format!("flow_count={count}")), "{variant}: {installed}");
    }
}

#[test]
fn every_resubmit_target_is_in_use_and_has_a_miss_flow() {
    for Variant { name: variant, layout, flows, groups } in VARIANTS.iter() {
        let known: Vec<u8> = layout.tables().map(Table::id).collect();
        let in_groups = groups.iter().flat_map(|group| &group.buckets).map(|bucket| &bucket.actions);
        for actions in flows.iter().map(|flow| &flow.actions).chain(in_groups) {
            for target in actions.iter().filter_map(target) {
                assert!(known.contains(&target), "{variant}: table {target} is not in use, but named by {actions:?}");
            }
        }
        for flow in flows {
            assert!(known.contains(&flow.table), "{variant}: table {} is not in use: {flow}", flow.table);
            assert_eq!(flow.goto_table, None);
        }
        for table in layout.tables() {
            let miss = flows.iter().any(|flow| (flow.table, flow.priority) == (table.id(), 0));
            // Non-IP packets have been answered before, and ServiceClassifier only sets a mark.
            let answered = miss || matches!(table, Table::Conntrack | Table::ServiceClassifier);
            assert!(answered, "{variant}: {} has no flow for what nothing else matches", table.name());
        }
    }
}

/// The table where an action continues.
fn target(action: &Action) -> Option<u8> {
    match action {
        Action::Resubmit { table, .. } => *table,
        Action::Ct(ct) => ct.table,
        Action::Learn(learn) => Some(learn.table),
        _ => None,
    }
}
