//! `antctl pipeline`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::{diagram, trace};
use crate::state::{Compiled, State};

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
    /// Prints the flows that an agent would install, as `ovs-ofctl -O OpenFlow15 add-flows` reads them
    #[command(after_help = EXAMPLES)]
    Render(Render),
    /// Runs packets through the flows, without a switch, and tells the way each took
    #[command(after_help = EXAMPLES)]
    Trace(Trace),
    /// Draws the tables that are in use, as SVG
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
    /// Print the groups instead, as `ovs-ofctl -O OpenFlow15 add-groups` reads them
    #[arg(long)]
    groups: bool,
    /// Say above each flow whose it is
    #[arg(long)]
    explain: bool,
}

#[derive(Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    input: Input,
    /// A packet, as in 'in_port=4,tcp,nw_src=10.10.0.4,nw_dst=10.96.0.10,tp_src=1000,tp_dst=80'; several make a conversation
    #[arg(short, long = "packet", value_name = "PACKET", required = true)]
    packets: Vec<String>,
    /// How the answer is printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For a person
    Text,
    /// For a program
    Json,
}

impl Command {
    pub(crate) fn run(self) -> Result<String> {
        match self {
            Command::Render(render) => {
                let compiled = render.input.compile()?;
                Ok(if render.groups { groups(&compiled, render.explain)? } else { flows(&compiled, render.explain)? })
            }
            Command::Trace(trace) => {
                let compiled = trace.input.compile()?;
                let traces = trace::run(&compiled, &trace.packets)?;
                match trace.output {
                    Output::Text => trace::text(&compiled, &traces),
                    Output::Json => trace::json(&compiled, &traces),
                }
            }
            Command::Diagram(input) => Ok(diagram::draw(&input.compile()?)),
        }
    }
}

impl Input {
    fn compile(&self) -> Result<Compiled> {
        State::load(&self.file)?.compile()
    }
}

fn flows(compiled: &Compiled, explain: bool) -> Result<String> {
    let mut out = String::new();
    let mut table = None;
    for (flow, owners) in compiled.flows() {
        if explain {
            if table != Some(flow.table) {
                let name = pipeline::tables::Table::by_id(flow.table).map_or("", |table| table.name());
                writeln!(out, "{}# table {} {name}", if table.is_some() { "\n" } else { "" }, flow.table)?;
                table = Some(flow.table);
            }
            writeln!(out, "# {}", owners.join(", "))?;
        }
        writeln!(out, "{flow}")?;
    }
    Ok(out)
}

fn groups(compiled: &Compiled, explain: bool) -> Result<String> {
    let mut out = String::new();
    for (group, owner) in &compiled.groups {
        if explain {
            writeln!(out, "# {owner}")?;
        }
        writeln!(out, "{group}")?;
    }
    Ok(out)
}
