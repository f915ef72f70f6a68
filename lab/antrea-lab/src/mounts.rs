//! File systems of Nodes and Pods.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::program::current_exe;
use nix::unistd::pivot_root;

/// Path of this program in every Node and Pod.
pub(crate) const PROGRAM: &str = "/usr/local/bin/antrea-lab";

/// Enters a new mount namespace: later mounts are visible in this process and its children only.
pub(crate) fn private_mounts() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace")?;
    mount_at(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, "")
}

/// Mounts an overlay on a file system. Writes go to `layers`, which is in memory.
pub(crate) fn overlay(lower: &Path, layers: &Path) -> Result<PathBuf> {
    let [upper, work, root] = ["upper", "work", "root"].map(|name| layers.join(name));
    for directory in [&upper, &work, &root] {
        fs::create_dir_all(directory)?;
    }
    let layers = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    mount_at(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), &layers)?;
    Ok(root)
}

/// Mounts this program at [`PROGRAM`] in the new root.
pub(crate) fn program(root: &Path) -> Result<()> {
    let target = root.join(PROGRAM.trim_start_matches('/'));
    if let Some(directory) = target.parent() {
        fs::create_dir_all(directory)?;
    }
    replace(&target, "")?;
    bind(&current_exe()?, &target, MsFlags::empty())
}

/// Makes `root` the root file system, and unmounts the old one.
pub(crate) fn enter(root: &Path) -> Result<()> {
    std::env::set_current_dir(root)?;
    pivot_root(".", ".").context("cannot enter the new root")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Writes a new file in place of an existing one, which may be a dangling link.
pub(crate) fn replace(path: &Path, content: &str) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => fs::write(path, content).with_context(|| format!("cannot write {}", path.display())),
    }
}

/// Bind-mounts a file or directory.
pub(crate) fn bind(from: &Path, to: &Path, more: MsFlags) -> Result<()> {
    let from_text = from.to_string_lossy().into_owned();
    mount_at(Some(&from_text), to, None, MsFlags::MS_BIND | more, "")
}

/// Remounts a bind mount read-only.
pub(crate) fn read_only(path: &Path) -> Result<()> {
    mount_at(None, path, None, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, "")
}

/// mount(2), with source and target in the error.
pub(crate) fn mount_at(
    source: Option<&str>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    data: &str,
) -> Result<()> {
    mount(source, target, kind, flags, Some(data)).with_context(|| {
        let what = source.or(kind).unwrap_or("new flags");
        format!("cannot mount {what} at {}", target.display())
    })
}
