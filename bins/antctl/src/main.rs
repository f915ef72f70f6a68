//! What people ask of antrea-rs on the command line.
//!
//! *Role.* Commands, and how their answers look. So far: the flows of a Node, from a file that describes it.
//!
//! *Invariants.* Answers go to standard output, everything else to standard error. An error names the file, the document, the
//! object and the field, and says what would be right.
//!
//! *Not here.* Decisions: they are made by the crates that the agent uses as well.

mod commands;
mod state;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "antctl", version, about = "Looks into antrea-rs", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The OVS pipeline of a Node that a file describes
    #[command(subcommand)]
    Pipeline(commands::pipeline::Command),
}

fn main() -> ExitCode {
    let answer = match Cli::parse().command {
        Command::Pipeline(command) => command.run(),
    };
    match answer {
        Ok(text) => {
            // A reader that has seen enough is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "antctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
