//! `antctl pipeline`: flows, traces and diagrams.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::{diagram, trace};
use crate::state::NodeView;

const EXAMPLES: &str = "\
Examples:
  antctl pipeline render -f state.yaml > flows.txt
  antctl pipeline render -f state.yaml --groups > groups.txt
  ovs-ofctl -O OpenFlow15 add-groups br-int groups.txt && ovs-ofctl -O OpenFlow15 add-flows br-int flows.txt
  antctl pipeline render -f state.yaml --explain | less
  antctl pipeline trace -f state.yaml --packet 'in_port=4,tcp,nw_src=10.10.0.4,nw_dst=10.10.0.3,tp_src=1000,tp_dst=8080'
  antctl pipeline diagram -f state.yaml > pipeline.svg

docs/pipeline-state.md describes the file.";

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    /// Print the flows that an agent would install, in the format of `ovs-ofctl -O OpenFlow15 add-flows`
    #[command(after_help = EXAMPLES)]
    Render(Render),
    /// Trace packets through the flows, without a switch
    #[command(after_help = EXAMPLES)]
    Trace(Trace),
    /// Draw the tables in use, as SVG
    #[command(after_help = EXAMPLES)]
    Diagram(Input),
}

#[derive(Args)]
pub(crate) struct Input {
    /// A YAML stream of Kubernetes objects and one NodeState
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Render {
    #[command(flatten)]
    input: Input,
    /// Print the groups instead, in the format of `ovs-ofctl -O OpenFlow15 add-groups`
    #[arg(long)]
    groups: bool,
    /// Print the owner above each flow
    #[arg(long)]
    explain: bool,
}

#[derive(Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    input: Input,
    /// A packet, as in 'in_port=4,tcp,nw_src=10.10.0.4,nw_dst=10.96.0.10,tp_src=1000,tp_dst=80'; repeat it for the
    /// packets of a conversation
    #[arg(short, long = "packet", value_name = "PACKET", required = true)]
    packets: Vec<String>,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// Text for an operator to read
    Text,
    /// JSON for a program to parse
    Json,
}

impl Command {
    pub(crate) fn run(self) -> Result<String> {
        match self {
            Command::Render(render) => {
                let node = render.input.load()?;
                Ok(if render.groups { groups(&node, render.explain)? } else { flows(&node, render.explain)? })
            }
            Command::Trace(trace) => {
                let node = trace.input.load()?;
                let traces = trace::run(&node, &trace.packets)?;
                match trace.output {
                    Output::Text => trace::text(&node, &traces),
                    Output::Json => trace::json(&node, &traces),
                }
            }
            Command::Diagram(input) => diagram::draw(&input.load()?),
        }
    }
}

impl Input {
    fn load(&self) -> Result<NodeView> {
        NodeView::load(&self.file)
    }
}

fn flows(node: &NodeView, explain: bool) -> Result<String> {
    let mut out = String::new();
    let mut table = None;
    for (flow, owners) in node.flows()? {
        if explain {
            if table != Some(flow.table) {
                let name = pipeline::tables::Table::by_id(flow.table).map_or("", |table| table.name());
                writeln!(out, "{}# table {} {name}", if table.is_some() { "\n" } else { "" }, flow.table)?;
                table = Some(flow.table);
            }
            writeln!(out, "# {owners}")?;
        }
        writeln!(out, "{flow}")?;
    }
    Ok(out)
}

fn groups(node: &NodeView, explain: bool) -> Result<String> {
    let mut out = String::new();
    for (group, owner) in node.groups()? {
        if explain {
            writeln!(out, "# {owner}")?;
        }
        writeln!(out, "{group}")?;
    }
    Ok(out)
}
