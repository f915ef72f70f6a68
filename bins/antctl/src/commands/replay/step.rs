//! One step of a replay as text: its events, and the changes that they cause.

use std::collections::BTreeMap;
use std::fmt::Write;

use delta::Message;
use node::recording::{Entry, Replay};
use node::{Brain, Effect};
use openflow::flow::Flow;
use openflow::group::GroupMod;
use openflow::wire::Reader;

use super::describe;

/// A step as text.
pub(super) struct Shown {
    pub(super) text: String,
    /// Whether it changes the switch, the host or OVSDB.
    pub(super) has_changes: bool,
}

/// Takes a step, and describes it.
pub(super) fn show(replay: &mut Replay, number: usize, entry: Entry) -> Shown {
    let mut text = String::new();
    let events: Vec<String> = entry.events.iter().map(describe::event).collect();
    let before = owners(replay.brain());
    let (host, database) = (replay.brain().host_version(), replay.brain().database_version());
    let title = format!("step {number}  {:.3} s\n", entry.time().as_secs_f64());
    replay.step(entry);
    for event in events {
        let _ = writeln!(text, "  event    {event}");
    }
    let effects = replay.brain().take_effects();
    let mut has_changes = false;
    for effect in &effects {
        if *effect == Effect::Commit {
            has_changes = true;
            let after = owners(replay.brain());
            for line in bundle(replay.brain(), &before, &after) {
                let _ = writeln!(text, "  switch   {line}");
            }
        } else {
            let _ = writeln!(text, "  request  {}", describe::effect(effect));
        }
    }
    if replay.brain().host_version() != host {
        has_changes = true;
        let _ = writeln!(text, "  host     {} routes", replay.brain().host().routes.len());
    }
    if replay.brain().database_version() != database {
        has_changes = true;
        let _ = writeln!(text, "  ovsdb    {} Pod ports", replay.database().pods.len());
    }
    // The agent takes a step without events when a task asks whether the switch is up to date.
    let text = if text.is_empty() { text } else { title + &text };
    Shown { text, has_changes }
}

/// The owners of all flows, by table, priority and match.
fn owners(brain: &Brain) -> BTreeMap<String, String> {
    let names = |owners: Vec<node::Owner>| {
        let names: Vec<String> = owners.iter().map(|owner| brain.owner_name(owner)).collect();
        names.join(", ")
    };
    brain.flows().map(|(flow, owners)| (key(&flow), names(owners))).collect()
}

fn key(flow: &Flow) -> String {
    format!("{} {} {}", flow.table, flow.priority, flow.matches)
}

fn bundle(brain: &Brain, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let owner = |of: &BTreeMap<String, String>, flow: &Flow| of.get(&key(flow)).cloned().unwrap_or_default();
    let line = |message: Message<'_>| match message {
        Message::FlowAdd(flow) => {
            let flow = flow.decode();
            format!("+ {flow}  [{}]", owner(after, &flow))
        }
        Message::FlowDelete(flow) => {
            let flow = flow.decode();
            // The switch selects it by table, priority and match.
            let text = flow.to_string();
            format!("- {}  [{}]", text.split(" actions=").next().unwrap_or_default(), owner(before, &flow))
        }
        Message::GroupPut(body) => match GroupMod::decode(&mut Reader::new(&body)) {
            Ok(GroupMod::Add(group) | GroupMod::AddOrModify(group) | GroupMod::Modify(group)) => format!("+ {group}"),
            _ => "+ a group".to_owned(),
        },
        Message::GroupDelete(id) => format!("- group_id={id}"),
    };
    brain.bundle().map(line).collect()
}
