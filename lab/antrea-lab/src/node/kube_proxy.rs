//! kube-proxy on a Node, where antrea-agent leaves Services to it.

use anyhow::Result;

use super::daemon::{self, Program};
use crate::plan::{Node, POD_NETS};
use crate::state::Home;

/// What a namespace cannot set, as it counts for the whole machine.
const NOT_OURS: [&str; 4] = [
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
];

/// Starts it, and starts it again whenever it ends.
pub(super) fn start(home: &Home, node: &Node) -> Result<()> {
    let mut arguments = vec![
        format!("--kubeconfig={}", home.kubeconfig_of("kube-proxy", &node.name).display()),
        "--proxy-mode=nftables".to_owned(),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={}", POD_NETS.join(",")),
    ];
    arguments.extend(NOT_OURS.map(str::to_owned));
    let program = Program {
        name: home.programs().join("kube-proxy"),
        arguments,
        environment: Vec::new(),
        log: home.node(&node.name).join("kube-proxy.log"),
    };
    let child = program.start()?;
    tokio::spawn(daemon::keep(program, child, async || Ok(())));
    Ok(())
}
