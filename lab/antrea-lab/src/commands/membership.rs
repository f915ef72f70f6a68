//! Nodes join a lab that runs, and leave it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::say;
use crate::Which;
use crate::progress::News;
use crate::request::Wish;
use crate::state::Home;

/// Which Node, of which lab.
#[derive(Args, Debug)]
pub(crate) struct Leaver {
    #[command(flatten)]
    which: Which,
    /// The Node
    node: String,
}

/// Adds a Node, and shows what is happening.
pub(crate) fn join(which: &Which) -> Result<()> {
    ask(which, &Wish::Join)
}

/// Takes a Node away.
pub(crate) fn leave(leaver: Leaver) -> Result<()> {
    ask(&leaver.which, &Wish::Leave(leaver.node.clone()))?;
    say(format!("{} is gone", leaver.node));
    Ok(())
}

fn ask(which: &Which, wish: &Wish) -> Result<()> {
    let home = Home::of(&which.name);
    if !home.alive()?.ready {
        bail!("the lab `{}` is still starting", which.name);
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
    bail!("the lab `{}` has ended in the meantime", which.name)
}
