//! The real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in the namespace where the Nodes
//! expect the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;

use anyhow::{Context, Result};
use testkit::ControlPlane;
use testkit::kubernetes::Options;

use super::forward::{End, forward};
use super::underlay::Underlay;
use crate::plan;
use crate::progress::step;
use crate::state::{Home, write_private};

/// Starts the control plane, and writes the administrator's kubeconfig. Returns it with the URL of the API on the host.
pub(super) async fn start(home: &Home, underlay: &Underlay) -> Result<(ControlPlane, String)> {
    let dir = home.path().join("control");
    // It contains private keys.
    std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let options = Options {
        netns: Some(underlay.control.clone()),
        dir: Some(dir.clone()),
        listen: plan::API.into(),
        port: plan::API_PORT,
        is_endpoint: true,
        // A Node of the lab gets its Pod CIDRs from the plan.
        controllers: vec!["*".into(), "-node-ipam-controller".into()],
        scheduler: true,
        pod_cidrs: String::new(),
        service_cidrs: plan::SERVICE_NETS.join(","),
        apiserver_flags: vec![
            "--enable-admission-plugins=NodeRestriction".into(),
            format!("--kubelet-certificate-authority={}", dir.join("ca.crt").display()),
            // There is no DNS server for the names of Nodes.
            "--kubelet-preferred-address-types=InternalIP".into(),
        ],
    };
    step("etcd, kube-apiserver, kube-controller-manager and kube-scheduler are starting");
    let plane = tokio::task::spawn_blocking(|| ControlPlane::start(options)).await??;
    let (listener, here) = End(None, (Ipv4Addr::LOCALHOST, 0).into()).listen()?;
    let api = SocketAddr::from((plan::API, plan::API_PORT));
    tokio::spawn(forward(listener, End(Some(underlay.control.clone()), api)));
    let url = format!("https://{here}");
    write_private(&home.kubeconfig(), &plane.kubeconfig_for("kubernetes-admin", Some("system:masters"), &url)?)?;
    Ok((plane, url))
}
