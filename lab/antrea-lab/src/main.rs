//! The program `antrea-lab`: parses the command line and calls the library.

use std::io::Write;
use std::process::ExitCode;

use antrea_lab::{Cli, run};
use clap::Parser;

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "antrea-lab: {error:#}");
        ExitCode::FAILURE
    })
}
