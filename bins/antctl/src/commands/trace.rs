//! `antctl pipeline trace`: traces packets of one or more connections through the flows of a Node.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use openflow::flow::Flow;
use pipeline::tables::Table;
use serde_json::{Value, json};
use simulator::trace::{Did, Sent, Step};
use simulator::{Arrival, Trace, Verdict};

use crate::state::NodeView;

/// Traces the packets in order, one second apart; connections and learned flows are kept between them.
pub(crate) fn run(node: &NodeView, packets: &[String]) -> Result<Vec<Trace>> {
    let mut simulator = node.switch()?;
    (1..)
        .zip(packets)
        .map(|(number, text)| {
            let arrival: Arrival =
                text.parse().map_err(|e| anyhow!("{e}")).with_context(|| format!("packet {number}"))?;
            Ok(simulator.run(Duration::from_secs(number), &arrival))
        })
        .collect()
}

/// The traces as text for an operator.
pub(crate) fn text(node: &NodeView, traces: &[Trace]) -> Result<String> {
    let mut out = String::new();
    for (number, trace) in (1..).zip(traces) {
        if traces.len() > 1 {
            writeln!(out, "{}packet {number}", if number > 1 { "\n" } else { "" })?;
        }
        writeln!(out, "{}", trace.explain(|flow| Some(node.owners_of(flow).join(", "))).to_string().trim_end())?;
    }
    Ok(out)
}

/// The traces as JSON, with the owners of flows.
pub(crate) fn json(node: &NodeView, traces: &[Trace]) -> Result<String> {
    let traces: Vec<Value> = traces
        .iter()
        .map(|trace| {
            json!({
                "in_port": trace.arrival.in_port.to_string(),
                "packet": trace.arrival.packet.to_string(),
                "steps": trace.steps.iter().map(|step| step_json(node, step)).collect::<Vec<_>>(),
                "verdict": verdict_json(&trace.verdict),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&traces)? + "\n")
}

fn step_json(node: &NodeView, step: &Step) -> Value {
    let flow: Option<&Flow> = step.flow.as_deref();
    json!({
        "table": step.table,
        "name": Table::by_id(step.table).map(Table::name),
        "priority": flow.map(|flow| flow.priority),
        "flow": flow.map(ToString::to_string),
        "owners": flow.map(|flow| node.owners_of(flow)),
        "sets": step.did.iter().filter_map(|did| match did {
            Did::Set(field, value) => Some(json!({ "field": field.name(), "value": format!("{value:#x}") })),
            _ => None,
        }).collect::<Vec<_>>(),
    })
}

fn verdict_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Dropped(reason) => json!({ "dropped": reason.to_string() }),
        Verdict::Sent(sent) => json!({ "sent": sent.iter().map(sent_json).collect::<Vec<_>>() }),
    }
}

fn sent_json(sent: &Sent) -> Value {
    match sent {
        Sent::Output { port, packet, .. } => json!({ "port": port.to_string(), "packet": packet.to_string() }),
        Sent::Controller { packet, table, .. } => {
            json!({ "controller": true, "table": table, "packet": packet.to_string() })
        }
    }
}
