//! `kubectl`: runs kubectl for a lab.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cli::LabName;
use crate::state::Home;

const KUBECTL: &str = "kubectl";

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    #[command(flatten)]
    lab: LabName,
    /// Arguments of kubectl, from the first one that is not an option of this program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Replaces this process with kubectl, which uses the lab's kubeconfig.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let home = Home::of(&options.lab.name);
    home.alive()?;
    let built = testkit::kubernetes::program(KUBECTL);
    let on_path = std::env::var_os("PATH").and_then(|path| find(&path));
    let program = match (built.is_file(), on_path) {
        (true, _) => built,
        (false, Some(found)) => {
            // Standard output is that of kubectl.
            let note = "it may be of another version, `make kubernetes` builds the matching one";
            let _ = writeln!(std::io::stderr(), "using {}: {note}", found.display());
            found
        }
        (false, None) => bail!("there is no kubectl on the PATH: `make kubernetes` builds the matching one"),
    };
    let mut command = Command::new(&program);
    command.args(options.arguments).env("KUBECONFIG", home.kubeconfig());
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

fn find(path: &std::ffi::OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|directory| directory.join(KUBECTL)).find(|program| program.is_file())
}
