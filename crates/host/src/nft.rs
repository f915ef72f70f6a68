//! Our rules in nftables: rendered as a whole, replaced as a whole in one transaction, and compared as a whole.
//!
//! The table is `inet antrea`. Every rule says which line of iptables it stands for, in the terms of Antrea's documents.
//!
//! A chain of ours can drop what others accept, but not accept what others drop: where the machine's own rules drop
//! forwarded packets by default (`iptables -P FORWARD DROP`, as Docker does), they have to accept what comes from and goes to
//! the gateway, and that is not for us to change.

mod render;

pub use render::script;

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use types::host::{FIREWALL_TABLE, Firewall};

use crate::device::valid_name;
use crate::error::Error;
use crate::netns::Netns;

/// The rules as `nft` lists them, without counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruleset(String);

impl Ruleset {
    /// What is installed in the namespace of the calling thread; nothing where there is no table of ours.
    pub fn installed() -> Result<Option<Self>, Error> {
        let doing = "cannot list our rules in nftables";
        let output = nft(&["--stateless", "list", "table", "inet", FIREWALL_TABLE], "", doing)?;
        match output.status.success() {
            true => Ok(Some(Self(String::from_utf8_lossy(&output.stdout).into_owned()))),
            false if said(&output).contains("No such file or directory") => Ok(None),
            false => Err(Error::Nft { doing: doing.into(), said: said(&output) }),
        }
    }

    /// What [`Ruleset::installed`] gives once `firewall` is installed. How `nft` writes rules is for `nft` to know: they are
    /// installed in a namespace that nobody uses, and listed there.
    pub fn expected(firewall: &Firewall) -> Result<Self, Error> {
        let nothing =
            || Error::Nft { doing: "cannot list our rules in an empty namespace".into(), said: "nothing".into() };
        Netns::private()?.run(|| {
            replace(firewall)?;
            Self::installed()?.ok_or_else(nothing)
        })?
    }
}

/// Replaces our rules in the namespace of the calling thread: before and after, all are there, and in between too.
pub fn replace(firewall: &Firewall) -> Result<(), Error> {
    valid_name(&firewall.gateway)?;
    let doing = "cannot replace our rules in nftables";
    let output = nft(&["--file", "-"], &script(firewall), doing)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Nft { doing: doing.into(), said: said(&output) }),
    }
}

/// Removes our rules, those about Pods' cables too; there may be none.
pub fn remove() -> Result<(), Error> {
    let doing = "cannot remove our rules from nftables";
    let tables = ["inet", "netdev"].map(|family| {
        // To remove a table that is not there fails, to add one that is there does not.
        format!("add table {family} {FIREWALL_TABLE}\ndelete table {family} {FIREWALL_TABLE}\n")
    });
    let output = nft(&["--file", "-"], &tables.concat(), doing)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Nft { doing: doing.into(), said: said(&output) }),
    }
}

fn nft(arguments: &[&str], input: &str, doing: &str) -> Result<Output, Error> {
    let run = || -> io::Result<Output> {
        let mut command = Command::new("nft");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // `nft` reads everything before it writes anything. One that fails stops reading; what it says tells more than that.
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input.as_bytes());
        }
        child.wait_with_output()
    };
    run().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let missing = io::Error::new(io::ErrorKind::NotFound, "there is no program nft; install nftables");
            Error::io(doing)(missing)
        }
        _ => Error::io(doing)(error),
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
