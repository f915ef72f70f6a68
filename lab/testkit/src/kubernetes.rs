//! A private Kubernetes control plane: etcd, kube-apiserver, and the controllers and scheduler on request. Tests use it on
//! loopback, the lab in the network namespace of its API server.
//!
//! The programs are those that `make kubernetes` builds. A test that needs them is marked
//! `#[ignore = "needs make kubernetes"]`, has `kubernetes` in its path, and is run by `make test-kubernetes`.

mod daemon;
mod etcd;
mod network;
mod pki;
mod programs;

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::netns::Netns;
use crate::process::run;
use crate::scratch::Scratch;
use daemon::Daemon;
use etcd::Etcd;
use network::Network;
pub use programs::{helm, program};

/// The API server needs some seconds of CPU time to start, and tests share the CPUs.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A port that was free may be taken before the daemon gets to it.
const ATTEMPTS: usize = 3;

/// Options of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// Network namespace of the daemons; by default that of the caller.
    pub netns: Option<Netns>,
    /// Directory for certificates, logs and the database; by default a temporary one.
    pub dir: Option<PathBuf>,
    /// Address where the API server listens.
    pub listen: IpAddr,
    /// Port where the API server listens; 0 for any free port.
    pub port: u16,
    /// Whether the API server is an endpoint of the Service `kubernetes`; not allowed for a loopback address.
    pub is_endpoint: bool,
    /// The controllers of kube-controller-manager, in its own words (`*`, `-nodelifecycle`); without any, it isn't started.
    pub controllers: Vec<String>,
    /// Whether to start kube-scheduler.
    pub scheduler: bool,
    /// Range of the Pod CIDRs of Nodes; empty for none.
    pub pod_cidrs: String,
    /// Range from which ClusterIPs are allocated.
    pub service_cidrs: String,
    /// Further flags of kube-apiserver.
    pub apiserver_flags: Vec<String>,
}

impl Default for Options {
    /// On loopback, all controllers, IPv4, no scheduler.
    fn default() -> Self {
        Self {
            netns: None,
            dir: None,
            listen: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            is_endpoint: false,
            controllers: vec!["*".into()],
            scheduler: false,
            pod_cidrs: "10.244.0.0/16".into(),
            service_cidrs: "10.96.0.0/16".into(),
            apiserver_flags: Vec::new(),
        }
    }
}

/// A running control plane of its own, with RBAC. Dropping it ends the daemons and removes their temporary files.
///
/// All methods take `&self`; [`ControlPlane::shared`] is one for all the tests of a binary.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: first the daemons, then their files.
    daemons: Vec<Daemon>,
    etcd: Etcd,
    network: Network,
    address: SocketAddr,
    dir: Directory,
    started_in: Duration,
}

#[derive(Debug)]
enum Directory {
    Temporary(Scratch),
    Given(PathBuf),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(scratch) => scratch.path(),
            Self::Given(path) => path,
        }
    }
}

impl ControlPlane {
    /// Whether `make kubernetes` has been run.
    pub fn installed() -> bool {
        programs::missing().is_none()
    }

    /// Starts a control plane, and returns when `/readyz` is answered.
    pub fn start(options: Options) -> Result<Self> {
        if let Some(missing) = programs::missing() {
            bail!("{missing} is missing: run `make kubernetes`");
        }
        let mut attempt = 1;
        loop {
            match Self::attempt(&options) {
                Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains("address already in use") => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// The control plane of this process, started with the default options by the first call. It ends with the process.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::start(Options::default()).map_err(|error| format!("{error:#}")));
        shared.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn attempt(options: &Options) -> Result<Self> {
        let start = Instant::now();
        let dir = match &options.dir {
            Some(path) => Directory::Given(path.clone()),
            None => Directory::Temporary(Scratch::new()?),
        };
        pki::generate(dir.path(), options.listen).context("cannot make certificates")?;
        let network = Network(options.netns.clone());
        let etcd = Etcd::start(dir.path(), &network)?;
        let address = match options.port {
            0 => network.free_address(options.listen)?,
            port => SocketAddr::new(options.listen, port),
        };
        let mut plane = Self { daemons: Vec::new(), etcd, network, address, dir, started_in: Duration::ZERO };
        for user in ["admin", "controller-manager", "scheduler"] {
            fs::write(plane.file(&format!("{user}.kubeconfig")), plane.render_kubeconfig(user, &plane.url())?)?;
        }
        plane.start_apiserver(options)?;
        if !options.controllers.is_empty() {
            plane.start_controller_manager(options)?;
        }
        if options.scheduler {
            plane.start_scheduler()?;
        }
        plane.started_in = start.elapsed();
        Ok(plane)
    }

    /// URL of the API, such as `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The CA certificate of the API server, in PEM.
    pub fn ca(&self) -> Result<String> {
        self.read("ca.crt")
    }

    /// Certificate and key of a member of `system:masters`, in PEM.
    pub fn admin(&self) -> Result<(String, String)> {
        Ok((self.read("admin.crt")?, self.read("admin.key")?))
    }

    /// The certificate that the API server presents to kubelets, in PEM.
    pub fn kubelet_client(&self) -> Result<String> {
        self.read(&format!("{}.crt", pki::KUBELET_CLIENT))
    }

    /// A certificate and its key, in PEM, for the server of a kubelet at these addresses.
    pub fn kubelet_server(&self, node: &str, addresses: &[IpAddr]) -> Result<(String, String)> {
        let name = format!("kubelet-{node}");
        let addresses: String = addresses.iter().map(|address| format!(",IP:{address}")).collect();
        pki::server(
            self.dir.path(),
            &name,
            &format!("/CN=system:node:{node}"),
            &format!("subjectAltName=DNS:{node}{addresses}"),
        )
        .with_context(|| format!("cannot make a certificate for the kubelet of {node}"))?;
        Ok((self.read(&format!("{name}.crt"))?, self.read(&format!("{name}.key"))?))
    }

    /// A self-contained kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("admin.kubeconfig")
    }

    /// A self-contained kubeconfig with a new certificate for `user`, in `group` if given. It connects to `url`, which need
    /// not be [`ControlPlane::url`].
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>, url: &str) -> Result<String> {
        let group = group.map(|group| format!("/O={group}")).unwrap_or_default();
        pki::client(self.dir.path(), user, &format!("{group}/CN={user}"))
            .with_context(|| format!("cannot make a certificate for {user}"))?;
        self.render_kubeconfig(user, url)
    }

    /// Runs `kubectl` as the administrator, and returns what it prints.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        run(self.kubectl_command().args(args), None)
    }

    /// As [`ControlPlane::kubectl`], with `input` to read: `kubectl_stdin(["apply", "-f", "-"], manifests)`.
    pub fn kubectl_stdin<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &str) -> Result<String> {
        run(self.kubectl_command().args(args), Some(input))
    }

    /// `kubectl` for the administrator, to be given arguments and run by the caller.
    pub fn kubectl_command(&self) -> Command {
        let mut command = self.network.command(program("kubectl"));
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.dir.path()).current_dir(self.dir.path());
        command
    }

    /// Compacts etcd to the current revision, as the API server does every five minutes.
    pub fn compact(&self) -> Result<()> {
        self.etcd.compact()
    }

    /// How long the start took.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Resident memory of each daemon, in bytes.
    pub fn memory(&self) -> Result<Vec<(&'static str, u64)>> {
        let all = [self.etcd.daemon()].into_iter().chain(&self.daemons);
        all.map(|daemon| Ok((daemon.name(), daemon.rss()?))).collect()
    }

    /// The directory of the control plane: certificates, logs, the database.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn start_apiserver(&mut self, options: &Options) -> Result<()> {
        let file = |name: &str| self.file(name).display().to_string();
        let flags = [
            ("etcd-servers", self.etcd.url()),
            ("bind-address", self.address.ip().to_string()),
            ("advertise-address", self.address.ip().to_string()),
            ("secure-port", self.address.port().to_string()),
            ("endpoint-reconciler-type", if options.is_endpoint { "lease" } else { "none" }.into()),
            ("cert-dir", file("apiserver")),
            ("tls-cert-file", file("apiserver.crt")),
            ("tls-private-key-file", file("apiserver.key")),
            ("client-ca-file", file("ca.crt")),
            ("requestheader-client-ca-file", file("ca.crt")),
            ("requestheader-allowed-names", pki::FRONT_PROXY.into()),
            ("requestheader-username-headers", "X-Remote-User".into()),
            ("requestheader-group-headers", "X-Remote-Group".into()),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
            ("proxy-client-cert-file", file("front-proxy.crt")),
            ("proxy-client-key-file", file("front-proxy.key")),
            ("enable-aggregator-routing", "true".into()),
            ("kubelet-client-certificate", file(&format!("{}.crt", pki::KUBELET_CLIENT))),
            ("kubelet-client-key", file(&format!("{}.key", pki::KUBELET_CLIENT))),
            ("service-account-issuer", "https://kubernetes.default.svc".into()),
            ("service-account-key-file", file("service-account.key")),
            ("service-account-signing-key-file", file("service-account.key")),
            ("service-cluster-ip-range", options.service_cidrs.clone()),
            ("authorization-mode", "Node,RBAC".into()),
            ("allow-privileged", "true".into()),
            ("profiling", "false".into()),
            // The last requests may be watches, which never end.
            ("shutdown-delay-duration", "0s".into()),
        ];
        let mut command = self.network.command(program("kube-apiserver"));
        command.args(flags.map(|(flag, value)| format!("--{flag}={value}"))).args(&options.apiserver_flags);
        let apiserver = Daemon::start("kube-apiserver", command, self.dir.path(), START_TIMEOUT, || {
            self.network.is_listening(self.address)
                && self.kubectl(["get", "--raw", "/readyz"]).is_ok_and(|answer| answer == "ok")
        })?;
        self.daemons.push(apiserver);
        Ok(())
    }

    fn start_controller_manager(&mut self, options: &Options) -> Result<()> {
        let file = |name: &str| self.file(name).display().to_string();
        let mut flags = vec![
            ("kubeconfig", file("controller-manager.kubeconfig")),
            ("controllers", options.controllers.join(",")),
            ("service-cluster-ip-range", options.service_cidrs.clone()),
            ("root-ca-file", file("ca.crt")),
            ("service-account-private-key-file", file("service-account.key")),
            ("cluster-signing-cert-file", file("ca.crt")),
            ("cluster-signing-key-file", file("ca.key")),
            // Each controller with its own rights: together they need more than the manager has.
            ("use-service-account-credentials", "true".into()),
            ("secure-port", "0".into()),
            ("leader-elect", "false".into()),
        ];
        if !options.pod_cidrs.is_empty() {
            flags.push(("allocate-node-cidrs", "true".into()));
            flags.push(("cluster-cidr", options.pod_cidrs.clone()));
        }
        let mut command = self.network.command(program("kube-controller-manager"));
        command.args(flags.iter().map(|(flag, value)| format!("--{flag}={value}")));
        // It is ready when the ServiceAccount that every Pod needs exists.
        let works = || self.kubectl(["get", "serviceaccount", "--namespace=default", "default"]).is_ok();
        let accounts = options.controllers.iter().any(|name| name == "*" || name.starts_with("serviceaccount"));
        let manager =
            Daemon::start("kube-controller-manager", command, self.dir.path(), START_TIMEOUT, || !accounts || works())?;
        self.daemons.push(manager);
        Ok(())
    }

    fn start_scheduler(&mut self) -> Result<()> {
        let mut command = self.network.command(program("kube-scheduler"));
        command.arg(format!("--kubeconfig={}", self.file("scheduler.kubeconfig").display()));
        command.args(["--secure-port=0", "--leader-elect=false"]);
        let scheduler = Daemon::start("kube-scheduler", command, self.dir.path(), START_TIMEOUT, || true)?;
        self.daemons.push(scheduler);
        Ok(())
    }

    /// A kubeconfig, in JSON, for a user whose certificate is in the directory.
    fn render_kubeconfig(&self, user: &str, url: &str) -> Result<String> {
        let data = |name: String| Ok::<_, anyhow::Error>(pki::base64(&self.read(&name)?));
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": {
                "server": url,
                "certificate-authority-data": data("ca.crt".into())?,
            }}],
            "users": [{ "name": user, "user": {
                "client-certificate-data": data(format!("{user}.crt"))?,
                "client-key-data": data(format!("{user}.key"))?,
            }}],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user } }],
            "current-context": "test",
        });
        Ok(config.to_string())
    }

    fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.file(name)).with_context(|| format!("cannot read {name}"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[cfg(test)]
mod tests;
