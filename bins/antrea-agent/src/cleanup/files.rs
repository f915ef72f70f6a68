//! Files of ours: CNI plugins and configuration, sockets, databases, addresses of Pods.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Cleanup, existing};
use crate::install_cni::{CHAINED, CONFIGURATION, PLUGIN};

pub(super) struct Files<'a> {
    pub(super) cleanup: &'a Cleanup<'a>,
}

impl Files<'_> {
    /// What `install-cni` has written. Files with our names but of other contents are added to `foreign`.
    pub(super) fn of_the_runtime(&self, foreign: &mut Vec<String>) -> Result<Vec<PathBuf>> {
        let Cleanup { chained, bin_dir, conf_dir, .. } = self.cleanup;
        let mut found = Vec::new();
        let configuration = conf_dir.join(CONFIGURATION);
        if let Some(contents) = read(&configuration)? {
            match is_ours(&contents) {
                true => found.push(configuration),
                false => foreign.push(format!("{}: its first plugin is not {PLUGIN}", configuration.display())),
            }
        }
        found.extend(Some(bin_dir.join(PLUGIN)).filter(|plugin| plugin.exists()));
        for name in CHAINED {
            let path = bin_dir.join(name);
            let Some(contents) = read(&path)? else { continue };
            let ours = chained.map(|directory| read(&directory.join(name))).transpose()?.flatten();
            match ours {
                Some(ours) if ours == contents => found.push(path),
                Some(_) => foreign.push(format!("{}: differs from the plugin that antrea-rs installs", path.display())),
                None => foreign.push(format!("{}: --chained has no plugin to compare it with", path.display())),
            }
        }
        Ok(found)
    }

    /// Directories of the agent and of Open vSwitch, and the agent's socket if it is elsewhere.
    pub(super) fn of_the_agent(&self) -> Vec<PathBuf> {
        let Cleanup { config, run_dir, state_dir, .. } = self.cleanup;
        let socket = Some(config.cni_socket.clone()).filter(|socket| !socket.starts_with(run_dir));
        let all = [config.ipam_dir.as_path(), run_dir, state_dir].map(Path::to_owned).into_iter().chain(socket);
        all.filter(|path| fs::symlink_metadata(path).is_ok()).collect()
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    existing(fs::read(path)).with_context(|| format!("cannot read {}", path.display()))
}

/// Whether a network configuration begins with our plugin.
fn is_ours(configuration: &[u8]) -> bool {
    let list = serde_json::from_slice::<Value>(configuration).unwrap_or_default();
    list["plugins"][0]["type"] == PLUGIN
}

/// Removes a file, or a directory with everything in it. It may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let Some(metadata) = existing(fs::symlink_metadata(path))? else { return Ok(()) };
    let removed = if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    existing(removed).map(|_| ())
}
