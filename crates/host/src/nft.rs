//! Our nftables rules: rendered, replaced in one transaction, and compared as a whole.
//!
//! The table is `inet antrea`. Comments name the iptables rule of Antrea that each rule corresponds to.
//!
//! Our chains can drop packets that other chains accept, but not accept packets that others drop: if the machine's own rules
//! drop forwarded packets by default (`iptables -P FORWARD DROP`, as Docker does), they have to accept packets from and to the
//! gateway. Changing them is up to the operator.

mod render;

pub use render::script;

use std::io;
use std::process::Output;

use types::host::{FIREWALL_TABLE, Firewall};

use crate::device::valid_name;
use crate::error::Error;
use crate::netns::Netns;
use crate::program::{self, message};

/// The rules as `nft` lists them, without counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruleset(String);

impl Ruleset {
    /// The rules installed in the namespace of the calling thread; `None` if our table does not exist.
    pub fn installed() -> Result<Option<Self>, Error> {
        let doing = "cannot list nftables rules";
        let output = nft(&["--stateless", "list", "table", "inet", FIREWALL_TABLE], "", doing)?;
        match output.status.success() {
            true => Ok(Some(Self(String::from_utf8_lossy(&output.stdout).into_owned()))),
            false if message(&output).contains("No such file or directory") => Ok(None),
            false => Err(Error::Nft { doing: doing.into(), said: message(&output) }),
        }
    }

    /// The listing that [`Ruleset::installed`] returns after `firewall` was installed. Only `nft` knows its output format, so the
    /// rules are installed in an empty namespace, and listed there.
    pub fn expected(firewall: &Firewall) -> Result<Self, Error> {
        let nothing =
            || Error::Nft { doing: "cannot list nftables rules in an empty namespace".into(), said: "nothing".into() };
        Netns::private()?.run(|| {
            replace(firewall)?;
            Self::installed()?.ok_or_else(nothing)
        })?
    }
}

/// Replaces our rules in the namespace of the calling thread atomically.
pub fn replace(firewall: &Firewall) -> Result<(), Error> {
    valid_name(&firewall.gateway)?;
    if !firewall.guard.routed.is_empty() {
        valid_name(&firewall.guard.transport)?;
    }
    if let Some(tunnel) = &firewall.switch_tunnel {
        valid_name(&tunnel.device)?;
    }
    let doing = "cannot replace nftables rules";
    succeeded(&nft(&["--file", "-"], &script(firewall), doing)?, doing)
}

/// The families in which our table exists, in the namespace of the calling thread.
pub(crate) fn families() -> Result<Vec<String>, Error> {
    let doing = "cannot list nftables tables";
    let output = nft(&["list", "tables"], "", doing)?;
    succeeded(&output, doing)?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let family = |line: &str| {
        let (family, name) = line.strip_prefix("table ")?.split_once(' ')?;
        (name == FIREWALL_TABLE).then(|| family.to_owned())
    };
    Ok(listing.lines().filter_map(family).collect())
}

/// Removes our tables, also the one with the ingress chains of Pod veths; they may not exist.
pub fn remove() -> Result<(), Error> {
    ["inet", "netdev"].into_iter().try_for_each(remove_table)
}

/// Removes our table of a family; it may not exist.
pub(crate) fn remove_table(family: &str) -> Result<(), Error> {
    let doing = "cannot remove nftables rules";
    // Deleting a missing table fails, and adding an existing one does not.
    let script = format!("add table {family} {FIREWALL_TABLE}\ndelete table {family} {FIREWALL_TABLE}\n");
    succeeded(&nft(&["--file", "-"], &script, doing)?, doing)
}

fn succeeded(output: &Output, doing: &str) -> Result<(), Error> {
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Nft { doing: doing.into(), said: message(output) }),
    }
}

fn nft(arguments: &[&str], input: &str, doing: &str) -> Result<Output, Error> {
    program::run("nft", arguments, input).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let missing = io::Error::new(io::ErrorKind::NotFound, "program nft not found; install nftables");
            Error::io(doing)(missing)
        }
        _ => Error::io(doing)(error),
    })
}
