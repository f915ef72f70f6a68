//! The controllers of a lab: processes in the namespace of the Kubernetes API, each with its own address and the
//! ServiceAccount of the manifest for clusters. A controller that ends is restarted; the Service has the ready ones as endpoints.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testkit::Netns;
use testkit::process::kill_with_parent;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::accounts;
use super::control_plane::ControlPlane;
use super::forward::{End, forward_to};
use super::underlay::Underlay;
use crate::node::daemon::Backoff;
use crate::plan::{self, Plan, Segment};
use crate::state::{Home, write_private};

const MANIFEST: &str = include_str!("../../../../deploy/kubernetes/antrea-controller.yml");
const CRDS: &str = include_str!("../../../../deploy/kubernetes/antrea-crds.yml");
/// Kinds of the manifest that a lab does not use: they start the controllers in a cluster.
const SKIPPED_KINDS: [&str; 2] = ["Deployment", "PodDisruptionBudget"];
const ACCOUNT: &str = "antrea-controller";
const PORT: u16 = 10349;
/// Interval of connection attempts to a controller that is starting.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Replica {
    name: String,
    address: SocketAddr,
    netns: Netns,
    home: Home,
}

/// Starts all controllers of a plan, and restarts them when they end. Does not wait until they are ready.
pub(crate) async fn start(
    client: &kube::Client,
    control_plane: &ControlPlane,
    home: &Home,
    plan: &Plan,
    underlay: &Underlay,
) -> Result<()> {
    crate::client::apply(client, CRDS, |_| true).await.context("antrea-crds.yml")?;
    crate::client::apply(client, MANIFEST, |kind| !SKIPPED_KINDS.contains(&kind))
        .await
        .context("the ServiceAccount of the controllers")?;
    let (said, mut answering) = watch::channel(vec![false; usize::from(plan.controllers)]);
    let mut replicas = Vec::new();
    for number in 0..plan.controllers {
        let address = address(number);
        underlay.control.ip_batch(&[format!("addr add {address}/24 dev eth0")])?;
        let replica = Replica {
            name: format!("antrea-controller-{}", number + 1),
            address: (address, PORT).into(),
            netns: underlay.control.clone(),
            home: home.clone(),
        };
        replica.write_config(client).await?;
        tokio::spawn(replica.clone().renew(client.clone()));
        tokio::spawn(replica.clone().supervise(usize::from(number), said.clone()));
        replicas.push(replica);
    }
    write_endpoints(client, &replicas, &[]).await?;
    // The embedded API server is on the host; requests are forwarded to a ready controller.
    let (listener, here) = End(None, (Ipv4Addr::LOCALHOST, 0).into()).listen()?;
    control_plane.set_backend("kube-system/antrea", here)?;
    let (asked, all) = (answering.clone(), replicas.clone());
    tokio::spawn(forward_to(listener, move || {
        let answers = asked.borrow().iter().position(|answers| *answers).unwrap_or_default();
        let to = all.get(answers).map_or_else(|| here, |replica| replica.address);
        End(all.first().map(|replica| replica.netns.clone()), to)
    }));
    let client = client.clone();
    tokio::spawn(async move {
        while answering.changed().await.is_ok() {
            let ready = answering.borrow_and_update().clone();
            if let Err(error) = write_endpoints(&client, &replicas, &ready).await {
                tracing::warn!("cannot update the endpoints of the controllers: {error:#}");
            }
        }
    });
    Ok(())
}

/// Address of the controller with this number.
pub(crate) fn address(number: u16) -> Ipv4Addr {
    // After the addresses of the router and the API, before those of the Nodes.
    Segment::A.ipv4(u8::try_from(3 + number).unwrap_or(u8::MAX))
}

impl Replica {
    /// Writes its token, kubeconfig and configuration.
    async fn write_config(&self, client: &kube::Client) -> Result<()> {
        let directory = self.home.path().join(&self.name);
        std::fs::create_dir_all(&directory)?;
        write_private(&directory.join("token"), &accounts::request_token(client, ACCOUNT, None).await?)?;
        let admin = std::fs::read_to_string(self.home.kubeconfig())?;
        let mut config: Value = serde_json::from_str(&accounts::kubeconfig(&admin, &directory.join("token"))?)?;
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}:{}", plan::API, plan::API_PORT));
        write_private(&directory.join("kubeconfig"), &format!("{config:#}\n"))?;
        let configuration = json!({
            "apiAddress": self.address.ip(),
            "apiPort": self.address.port(),
            "clientConnection": {"kubeconfig": directory.join("kubeconfig")},
        });
        write_private(&directory.join("antrea-controller.conf"), &format!("{configuration:#}\n"))
    }

    async fn renew(self, client: kube::Client) {
        loop {
            tokio::time::sleep_until(Instant::now() + accounts::TOKEN_LIFE / 2).await;
            let path = self.home.path().join(&self.name).join("token");
            accounts::renew_one(&client, &path, ACCOUNT, None).await;
        }
    }

    fn start(&self) -> Result<Child> {
        let directory = self.home.path().join(&self.name);
        let log =
            OpenOptions::new().create(true).append(true).open(self.home.path().join(format!("{}.log", self.name)))?;
        let mut command = self.netns.command(self.home.programs().join("antrea-controller"));
        command.arg("--config").arg(directory.join("antrea-controller.conf"));
        command.env("POD_NAME", &self.name).env("POD_IP", self.address.ip().to_string());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        kill_with_parent(&mut command);
        let child = Command::from(command).kill_on_drop(true).spawn();
        child.with_context(|| format!("cannot start {}", self.name))
    }

    /// Starts the controller, restarts it when it ends, and reports whether it is ready.
    async fn supervise(self, number: usize, said: watch::Sender<Vec<bool>>) {
        let say = |answers: bool| {
            said.send_if_modified(|all| {
                all.get_mut(number).is_some_and(|it| std::mem::replace(it, answers) != answers)
            });
        };
        let mut backoff = Backoff::default();
        loop {
            match self.start() {
                Ok(mut child) => {
                    let since = Instant::now();
                    let ended = tokio::select! {
                        ended = child.wait() => ended,
                        () = self.until_ready() => {
                            say(true);
                            child.wait().await
                        }
                    };
                    say(false);
                    tracing::warn!("{} ended ({ended:?}), restarting", self.name);
                    if since.elapsed() > Duration::from_secs(5) {
                        backoff = Backoff::default();
                    }
                }
                Err(error) => tracing::error!("{error:#}"),
            }
            tokio::time::sleep_until(Instant::now() + backoff.next()).await;
        }
    }

    /// Waits until the controller accepts connections.
    async fn until_ready(&self) {
        let connect = |netns: Netns, to: SocketAddr| {
            move || {
                netns.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(1))).is_ok_and(|stream| stream.is_ok())
            }
        };
        loop {
            let tried = tokio::task::spawn_blocking(connect(self.netns.clone(), self.address)).await;
            if tried.unwrap_or_default() {
                return;
            }
            tokio::time::sleep_until(Instant::now() + POLL_INTERVAL).await;
        }
    }
}

/// Writes the EndpointSlice of the Service `antrea`.
async fn write_endpoints(client: &kube::Client, replicas: &[Replica], ready: &[bool]) -> Result<()> {
    let endpoint = |(number, replica): (usize, &Replica)| {
        let ready = ready.get(number).copied().unwrap_or_default();
        json!({"addresses": [replica.address.ip()], "conditions": {"ready": ready}})
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "antrea-lab", "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "antrea", "endpointslice.kubernetes.io/managed-by": "antrea-lab"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "api", "port": PORT, "protocol": "TCP"}],
        "endpoints": replicas.iter().enumerate().map(endpoint).collect::<Vec<_>>(),
    });
    crate::client::apply(client, &slice.to_string(), |_| true).await
}
