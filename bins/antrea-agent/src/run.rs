//! The agent itself. THE SEAM: this module comes with the agent's wiring, and takes the place of this one.

use anyhow::bail;

use crate::config::Config;

/// Runs the agent until it is told to stop; `notes` are for its log.
pub(crate) fn run(_config: &Config, _notes: &[String]) -> anyhow::Result<()> {
    bail!("the agent is not part of this program yet; it has `config` and `install-cni`");
}
