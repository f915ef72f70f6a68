//! Whether ovs-vswitchd has handled all packets that the kernel datapath has passed to it.
//!
//! The kernel passes a packet without a matching flow to a handler thread of ovs-vswitchd by netlink. The thread sends it back
//! with actions, after which the kernel may pass it to a handler again: once per recirculation. Meanwhile a later packet, for
//! which there is a flow, overtakes it. So no marker frame tells that a frame is through; the state of the handlers does.

use std::fs;

use anyhow::{Context, Result};

use super::{Datapath, Ovs};
use crate::wait::{TIMEOUT, until};

/// Number of the system call poll(2), in which an idle handler waits.
const POLL: &str = "7";
/// Number of the generic netlink protocol in `/proc/net/netlink`.
const GENERIC: &str = "16";

impl Ovs {
    /// Waits until all packets let in before are through. The dummy datapath needs no waiting: it keeps packets in order.
    pub fn until_idle(&self) -> Result<()> {
        if self.datapath() != Datapath::Kernel {
            return Ok(());
        }
        let pid = self.vswitchd_pid()?;
        until("idle handlers of ovs-vswitchd", TIMEOUT, || {
            // An error means that a thread ended while it was looked at: ovs-vswitchd starts handlers again with other settings.
            let before = idle_handlers(pid).ok().flatten()?;
            (idle_handlers(pid).ok().flatten()? == before).then_some(())
        })
    }
}

/// How often the handler threads have been scheduled; `None` if one of them runs or has packets to read.
fn idle_handlers(pid: u32) -> Result<Option<Vec<String>>> {
    let mut switches = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.path();
        if !fs::read_to_string(thread.join("comm"))?.starts_with("handler") {
            continue;
        }
        if fs::read_to_string(thread.join("syscall"))?.split(' ').next() != Some(POLL) {
            return Ok(None);
        }
        let status = fs::read_to_string(thread.join("status"))?;
        switches.extend(status.lines().filter(|line| line.contains("ctxt_switches")).map(ToOwned::to_owned));
    }
    let queued = queued(&fs::read_to_string(format!("/proc/{pid}/net/netlink"))?)?;
    Ok((queued == 0).then_some(switches))
}

/// Bytes in the queues of all generic netlink sockets, from the contents of `/proc/net/netlink`.
fn queued(sockets: &str) -> Result<u64> {
    let mut bytes = 0;
    for line in sockets.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (protocol, queue) = columns.get(1).zip(columns.get(4)).context("/proc/net/netlink has other columns")?;
        if *protocol == GENERIC {
            bytes += queue.parse::<u64>().with_context(|| format!("a queue of {queue} bytes"))?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queues_of_generic_netlink_count() {
        let header = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n";
        let row = |protocol, queue| {
            format!("0000000000000000 {protocol}   4195      00000000 {queue}    0        0     2    0    1\n")
        };
        assert_eq!(queued(&[header.to_owned(), row(0, 7), row(16, 5), row(16, 6)].concat()).unwrap(), 11);
        assert!(queued("header\n1 2 3\n").unwrap_err().to_string().contains("other columns"));
    }
}
