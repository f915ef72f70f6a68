//! The Kubernetes API of a lab: on the host's loopback interface, and at an address of the underlay for Nodes.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use apiserver::{ApiServer, Dialer, KubeletCertificates, Options};
use serde_json::json;

use super::forward::{End, forward};
use super::real;
use super::underlay::Underlay;
use crate::kubelet::Credentials;
use crate::plan::{self, Kubernetes, Node, Plan};
use crate::state::Home;

/// The running API server; it ends when this is dropped.
pub(crate) struct ControlPlane {
    server: Server,
    /// URL of the API on the host.
    pub(crate) url: String,
}

enum Server {
    Embedded(Box<ApiServer>),
    Real(Box<testkit::ControlPlane>),
}

impl ControlPlane {
    /// Starts the API server, and writes the administrator's kubeconfig.
    pub(crate) async fn start(plan: &Plan, home: &Home, underlay: &Underlay) -> Result<Self> {
        match plan.kubernetes {
            Kubernetes::Embedded => Self::embedded(home, underlay).await,
            Kubernetes::Real => {
                let (plane, url) = real::start(home, underlay).await?;
                Ok(Self { server: Server::Real(Box::new(plane)), url })
            }
        }
    }

    /// Sets the address on the host of a Service (`namespace/name`) of an aggregated API. The real API server uses its endpoints.
    pub(crate) fn set_backend(&self, service: &str, address: SocketAddr) -> Result<()> {
        if let Server::Embedded(server) = &self.server {
            server.set_backend(service, format!("https://{address}").parse()?);
        }
        Ok(())
    }

    /// The kubeconfig of a Node's kubelet, for use inside the Node.
    pub(crate) fn kubelet(&self, node: &str) -> Result<String> {
        let (user, group) = (format!("system:node:{node}"), "system:nodes");
        let inside = format!("https://{}:{}", plan::API, plan::API_PORT);
        match &self.server {
            Server::Embedded(server) => Ok(server.kubeconfig(&user, Some(group))?.replace(&self.url, &inside)),
            Server::Real(plane) => plane.kubeconfig_for(&user, Some(group), &inside),
        }
    }

    /// The certificates of the server of a Node's kubelet.
    pub(crate) fn kubelet_server(&self, node: &Node) -> Result<Credentials> {
        let addresses = [IpAddr::from(node.ipv4), node.ipv6.into()];
        match &self.server {
            Server::Embedded(server) => {
                let KubeletCertificates { certificate, key, client } =
                    server.kubelet_certificates(&node.name, &addresses)?;
                Ok(Credentials { certificate, key, ca: server.ca_pem().to_owned(), client })
            }
            Server::Real(plane) => {
                let (certificate, key) = plane.kubelet_server(&node.name, &addresses)?;
                Ok(Credentials { certificate, key, ca: plane.ca()?, client: plane.kubelet_client()? })
            }
        }
    }

    async fn embedded(home: &Home, underlay: &Underlay) -> Result<Self> {
        let nets = plan::SERVICE_NETS.iter().map(|net| net.parse());
        let control = underlay.control.clone();
        let options = Options {
            service_cidrs: nets.collect::<Result<_, _>>()?,
            names: vec![plan::API.to_string()],
            kubelets: Dialer::new(move |address| {
                let end = End(Some(control.clone()), address);
                async move { end.connect().await.map_err(std::io::Error::other) }
            }),
            ..Options::default()
        };
        let server = ApiServer::start(options).await.context("the embedded API server")?;
        let url = server.url();
        let address: SocketAddr = url.trim_start_matches("https://").parse()?;
        let seen_by_nodes = End(Some(underlay.control.clone()), (plan::API, plan::API_PORT).into());
        let (listener, _) = seen_by_nodes.listen()?;
        tokio::spawn(forward(listener, End(None, address)));
        server.write_kubeconfig(&home.kubeconfig())?;
        write_endpoints(&server)?;
        Ok(Self { server: Server::Embedded(Box::new(server)), url })
    }
}

/// Writes the endpoints of the Service `kubernetes`, as a real API server does.
fn write_endpoints(server: &ApiServer) -> Result<()> {
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": plan::API_PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [plan::API], "conditions": {"ready": true}}],
    });
    server
        .local()
        .named("kube-apiserver")
        .create("discovery.k8s.io/v1", "endpointslices", "default", slice)
        .map(drop)
        .map_err(|failure| anyhow::anyhow!("cannot write the endpoints of the Service kubernetes: {failure}"))
}
