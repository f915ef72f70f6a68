//! The state of a cluster as text that can be compared line by line and read by an engineer.

mod batch;
mod host;

pub(crate) use batch::delivery;
pub(crate) use host::host;

use std::collections::{BTreeMap, BTreeSet};

use node::Owner;
use openflow::flow::Flow;
use pipeline::tables::Table;

use crate::agent::Agent;
use crate::network::{Connection, Place};

/// Lines by the object that they belong to.
pub(crate) type Lines = BTreeMap<String, BTreeSet<String>>;

/// All owners of a flow, as text.
fn owners(agent: &Agent, owners: &[Owner]) -> String {
    let names: Vec<String> = owners.iter().map(|owner| agent.brain().owner_name(owner)).collect();
    names.join(", ")
}

/// The flows of a switch with their owners: by table, the highest priority first.
pub fn flows(agent: &Agent) -> Vec<(Flow, String)> {
    let mut flows: Vec<(Flow, String)> = agent.brain().flows().map(|(flow, by)| (flow, owners(agent, &by))).collect();
    flows.sort_by_cached_key(|(flow, _)| (flow.table, u16::MAX - flow.priority, flow.to_string()));
    flows
}

/// The desired flows and groups of a Node, without the flows that every Node has.
pub(crate) fn switch(agent: &Agent) -> Lines {
    let mut lines = Lines::new();
    for (flow, by) in agent.brain().flows().filter(|(_, by)| *by != [Owner::Node]) {
        lines.entry(owners(agent, &by)).or_default().insert(format!("{} {flow}", table_name(flow.table)));
    }
    for (group, by) in agent.brain().groups() {
        lines.entry(owners(agent, &by)).or_default().insert(group.to_string());
    }
    lines
}

/// The difference between two sets of lines, by object; empty if they are equal.
pub(crate) fn difference(before: &Lines, after: &Lines) -> String {
    let mut text = String::new();
    let none = BTreeSet::new();
    let owners: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for owner in owners {
        let (old, new) = (before.get(owner).unwrap_or(&none), after.get(owner).unwrap_or(&none));
        if old == new {
            continue;
        }
        text += &format!("{owner}\n");
        text.extend(old.difference(new).map(|line| format!("  - {line}\n")));
        text.extend(new.difference(old).map(|line| format!("  + {line}\n")));
    }
    text
}

pub(crate) fn table_name(table: u8) -> &'static str {
    Table::by_id(table).map_or("?", Table::name)
}

/// The result of a probe, in one line.
pub(crate) fn connection(cluster: &crate::Cluster, connection: &Connection) -> String {
    let Connection { request, endpoint, source, reply, is_established, .. } = connection;
    let ends = match (endpoint, source) {
        (Some((ip, port)), Some(source)) => format!(" ({source} -> {ip}:{port})"),
        _ => String::new(),
    };
    match reply {
        None => place(cluster, request) + &ends,
        Some(_) if *is_established => format!("connected to {}{ends}", place(cluster, request)),
        Some(reply) => format!("reached {}{ends}, but the reply: {}", place(cluster, request), place(cluster, reply)),
    }
}

fn place(cluster: &crate::Cluster, place: &Place) -> String {
    match place {
        Place::Pod(pod) => format!("Pod {pod}"),
        Place::Node(node) => format!("Node {node}"),
        Place::Outside => "left the cluster".to_owned(),
        Place::Refused { node } => format!("refused by {node}: no endpoint"),
        Place::Loop => "went in circles".to_owned(),
        Place::Dropped { node, table, owners: by, reason } => {
            let agent = cluster.agent(node);
            let owner = agent.map(|agent| owners(agent, by)).unwrap_or_default();
            format!("dropped by {node} in {} [{owner}]: {reason}", table_name(*table))
        }
    }
}
