//! kube-proxy on a Node, for `--services kube-proxy` and `--services both`.

use anyhow::Result;

use super::daemon::{self, Program};
use crate::plan::{Node, POD_NETS};
use crate::state::Home;

/// Leaves alone kernel parameters that a network namespace cannot set.
const KEEP_SYSCTLS: [&str; 4] = [
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
];

/// Starts kube-proxy, and restarts it whenever it ends.
pub(super) fn start(home: &Home, node: &Node) -> Result<()> {
    let mut arguments = vec![
        format!("--kubeconfig={}", home.kubeconfig_of("kube-proxy", &node.name).display()),
        "--proxy-mode=nftables".to_owned(),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={}", POD_NETS.join(",")),
    ];
    arguments.extend(KEEP_SYSCTLS.map(str::to_owned));
    let program = Program {
        name: home.programs().join("kube-proxy"),
        arguments,
        environment: Vec::new(),
        log: home.node(&node.name).join("kube-proxy.log"),
    };
    let child = program.start()?;
    tokio::spawn(daemon::supervise(program, child));
    Ok(())
}
