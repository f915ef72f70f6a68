//! `join` and `leave`: add Nodes to a running lab, and remove them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::say;
use crate::cli::LabName;
use crate::progress::Progress;
use crate::request::Change;
use crate::state::Home;

/// The Node to remove.
#[derive(Args, Debug)]
pub(crate) struct Leaver {
    #[command(flatten)]
    lab: LabName,
    /// Name of the Node, such as `node-4`
    node: String,
}

/// Adds a Node, and prints the progress.
pub(crate) fn join(lab_name: &LabName) -> Result<()> {
    ask(lab_name, &Change::Join)
}

/// Removes a Node and its Pods.
pub(crate) fn leave(leaver: Leaver) -> Result<()> {
    ask(&leaver.lab, &Change::Leave(leaver.node.clone()))?;
    say(format!("{} is gone", leaver.node));
    Ok(())
}

fn ask(lab_name: &LabName, change: &Change) -> Result<()> {
    let home = Home::of(&lab_name.name);
    if !home.alive()?.ready {
        bail!("the lab `{}` is still starting", lab_name.name);
    }
    let path = home.socket();
    let mut stream = UnixStream::connect(&path).with_context(|| format!("cannot connect to {}", path.display()))?;
    writeln!(stream, "{}", serde_json::to_string(change)?)?;
    for line in BufReader::new(stream).lines() {
        match Progress::read(&line?) {
            Progress::Step(what) => say(what),
            Progress::Ready => return Ok(()),
            Progress::Failed(why) => bail!(why),
        }
    }
    bail!("the lab `{}` has ended in the meantime", lab_name.name)
}
