//! antctl, the command line of antrea-rs.
//!
//! *Role.* Parses commands and prints their output. So far: the flows of a Node that a file describes, and recordings of agents.
//!
//! *Invariants.* Output goes to standard output, everything else to standard error. An error names the file, the
//! document, the object and the field, and says what is allowed.
//!
//! *Not here.* Decisions: antctl calls the same crates as the agent.

mod commands;
mod state;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "antctl", version, about = "Inspects antrea-rs", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the OVS pipeline of a Node that a file describes
    #[command(subcommand)]
    Pipeline(commands::pipeline::Command),
    /// Replay the events that an agent has recorded, and show what they changed
    Replay(commands::replay::Command),
}

fn main() -> ExitCode {
    let answer = match Cli::parse().command {
        Command::Pipeline(command) => command.run(),
        Command::Replay(command) => command.run(),
    };
    match answer {
        Ok(text) => {
            // A reader that closes the pipe early is not an error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "antctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
