//! The capacity of the machine, which every Node of the lab reports: they share it.

use anyhow::{Context, Result};
use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};

use crate::node::init::HOST_ROOT;

/// Maximum number of Pods; the default of kubelets.
const PODS: u32 = 110;

/// The resources of the machine, as a Node reports them.
pub(crate) fn capacity() -> Result<Value> {
    let cpus = std::thread::available_parallelism().context("cannot count the CPUs")?;
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let memory = memory(&meminfo).context("/proc/meminfo has no line MemTotal")?;
    let disk = statvfs(HOST_ROOT).with_context(|| format!("cannot read the size of {HOST_ROOT}"))?;
    let disk = disk.blocks() * disk.fragment_size() / 1024;
    Ok(json!({
        "cpu": cpus.to_string(), "memory": format!("{memory}Ki"), "ephemeral-storage": format!("{disk}Ki"),
        "pods": PODS.to_string(),
    }))
}

/// The size of the memory in KiB.
fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_read_from_meminfo() {
        assert_eq!(memory("MemTotal:       24593560 kB\nMemFree: 1 kB\n"), Some(24_593_560));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }
}
