//! Nodes join a lab that runs, and leave it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::say;
use crate::cli::LabName;
use crate::progress::News;
use crate::request::Wish;
use crate::state::Home;

/// A Node of a lab.
#[derive(Args, Debug)]
pub(crate) struct Leaver {
    #[command(flatten)]
    lab: LabName,
    /// The Node
    node: String,
}

/// Adds a Node, and shows what is happening.
pub(crate) fn join(lab_name: &LabName) -> Result<()> {
    ask(lab_name, &Wish::Join)
}

/// Takes a Node away.
pub(crate) fn leave(leaver: Leaver) -> Result<()> {
    ask(&leaver.lab, &Wish::Leave(leaver.node.clone()))?;
    say(format!("{} is gone", leaver.node));
    Ok(())
}

fn ask(lab_name: &LabName, wish: &Wish) -> Result<()> {
    let home = Home::of(&lab_name.name);
    if !home.alive()?.ready {
        bail!("the lab `{}` is still starting", lab_name.name);
    }
    let path = home.socket();
    let mut stream = UnixStream::connect(&path).with_context(|| format!("cannot connect to {}", path.display()))?;
    writeln!(stream, "{}", serde_json::to_string(wish)?)?;
    for line in BufReader::new(stream).lines() {
        match News::read(&line?) {
            News::Step(what) => say(what),
            News::Ready => return Ok(()),
            News::Failed(why) => bail!(why),
        }
    }
    bail!("the lab `{}` has ended in the meantime", lab_name.name)
}
