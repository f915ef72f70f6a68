//! The real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as `make kubernetes` builds them,
//! in the namespace where the Nodes expect the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use apiserver::{Authority, Identity};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use testkit::process::kill_with_parent;
use testkit::process::log_tail;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::control_plane::write_private;
use super::forward::{End, forward};
use super::underlay::Underlay;
use crate::node::daemon::Pauses;
use crate::plan;
use crate::progress::step;
use crate::state::Home;

/// The name in the certificate with which the API server turns to those who serve parts of the API.
const FRONT_PROXY: &str = "front-proxy";
/// The version that `make kubernetes` builds.
const GO_MOD: &str = include_str!("../../../../e2e/kubernetes/go.mod");
/// kube-apiserver alone takes some seconds of processor time.
const PATIENCE: Duration = Duration::from_secs(120);

/// The daemons; they end with this value.
pub(crate) struct Real {
    daemons: Vec<(&'static str, Child)>,
    directory: PathBuf,
    programs: PathBuf,
    authority: Authority,
}

impl Real {
    /// Starts all four, and writes the kubeconfigs. Returns where the API is on the host.
    pub(crate) async fn start(home: &Home, underlay: &Underlay) -> Result<(Self, String)> {
        let programs = programs(&["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])?;
        let directory = home.path().join("control");
        std::fs::create_dir(&directory)?;
        let authority = Authority::load(None).map_err(|error| anyhow!("cannot make certificates: {error}"))?;
        let mut this = Self { daemons: Vec::new(), directory, programs, authority };
        this.certificates()?;
        let api = SocketAddr::from((plan::API, plan::API_PORT));
        let (listener, here) = End(None, (Ipv4Addr::LOCALHOST, 0).into()).listen()?;
        tokio::spawn(forward(listener, End(Some(underlay.control.clone()), api)));
        let url = format!("https://{here}");
        write_private(&home.kubeconfig(), &this.kubeconfig("kubernetes-admin", Some("system:masters"), &url)?)?;
        for name in ["controller-manager", "scheduler"] {
            let config = this.kubeconfig(&format!("system:kube-{name}"), None, &format!("https://{api}"))?;
            write_private(&this.file(&format!("{name}.kubeconfig")), &config)?;
        }
        for (name, flags) in this.flags() {
            this.launch(underlay, name, &flags)?;
        }
        this.until_it_works(home).await?;
        Ok((this, url))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn certificates(&self) -> Result<()> {
        let authority = &self.authority;
        let save = |name: &str, identity: Identity| -> Result<()> {
            write_private(&self.file(&format!("{name}.crt")), &identity.certificate)?;
            write_private(&self.file(&format!("{name}.key")), &identity.key)
        };
        write_private(&self.file("ca.crt"), &authority.pem)?;
        let names =
            ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"];
        let names: Vec<_> = names.map(str::to_owned).into_iter().chain([plan::API.to_string()]).collect();
        save("apiserver", authority.server(&names)?)?;
        save(FRONT_PROXY, authority.client(FRONT_PROXY, None)?)?;
        // Any key will do to sign tokens with.
        save("service-account", authority.client("service-account", None)?)
    }

    /// A kubeconfig with a certificate for a user, in a group if one is named.
    pub(crate) fn kubeconfig(&self, user: &str, group: Option<&str>, url: &str) -> Result<String> {
        Ok(self.authority.kubeconfig(url, user, group)?)
    }

    fn flags(&self) -> [(&'static str, Vec<(&'static str, String)>); 4] {
        let file = |name: &str| self.file(name).display().to_string();
        let etcd = "http://127.0.0.1:2379".to_owned();
        [
            (
                "etcd",
                vec![
                    ("data-dir", file("etcd")),
                    ("log-level", "warn".into()),
                    ("unsafe-no-fsync", "true".into()),
                    ("listen-client-urls", etcd.clone()),
                    ("advertise-client-urls", etcd.clone()),
                ],
            ),
            (
                "kube-apiserver",
                vec![
                    ("etcd-servers", etcd),
                    ("bind-address", plan::API.to_string()),
                    ("advertise-address", plan::API.to_string()),
                    ("secure-port", plan::API_PORT.to_string()),
                    ("cert-dir", file("apiserver")),
                    ("tls-cert-file", file("apiserver.crt")),
                    ("tls-private-key-file", file("apiserver.key")),
                    ("client-ca-file", file("ca.crt")),
                    ("service-account-issuer", "https://kubernetes.default.svc".into()),
                    ("service-account-key-file", file("service-account.crt")),
                    ("service-account-signing-key-file", file("service-account.key")),
                    ("service-cluster-ip-range", plan::SERVICE_NETS.join(",")),
                    ("authorization-mode", "Node,RBAC".into()),
                    ("enable-admission-plugins", "NodeRestriction".into()),
                    ("allow-privileged", "true".into()),
                    ("profiling", "false".into()),
                    ("shutdown-delay-duration", "0s".into()),
                    // How it shows others who serve parts of the API whom it asks for, and that it goes to them without a Service.
                    ("requestheader-client-ca-file", file("ca.crt")),
                    ("requestheader-allowed-names", FRONT_PROXY.into()),
                    ("requestheader-username-headers", "X-Remote-User".into()),
                    ("requestheader-group-headers", "X-Remote-Group".into()),
                    ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
                    ("proxy-client-cert-file", file("front-proxy.crt")),
                    ("proxy-client-key-file", file("front-proxy.key")),
                    ("enable-aggregator-routing", "true".into()),
                ],
            ),
            (
                "kube-controller-manager",
                vec![
                    ("kubeconfig", file("controller-manager.kubeconfig")),
                    // A Node of the lab knows its Pod CIDRs from the plan.
                    ("controllers", "*,-node-ipam-controller".into()),
                    ("root-ca-file", file("ca.crt")),
                    ("service-account-private-key-file", file("service-account.key")),
                    ("use-service-account-credentials", "true".into()),
                    ("service-cluster-ip-range", plan::SERVICE_NETS.join(",")),
                    ("secure-port", "0".into()),
                    ("leader-elect", "false".into()),
                ],
            ),
            (
                "kube-scheduler",
                vec![
                    ("kubeconfig", file("scheduler.kubeconfig")),
                    ("secure-port", "0".into()),
                    ("leader-elect", "false".into()),
                ],
            ),
        ]
    }

    fn launch(&mut self, underlay: &Underlay, name: &'static str, flags: &[(&str, String)]) -> Result<()> {
        let mut command = underlay.control.command(self.programs.join(name));
        command.args(flags.iter().map(|(flag, value)| format!("--{flag}={value}")));
        let log = std::fs::File::create(self.file(&format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&self.directory);
        kill_with_parent(&mut command);
        let child = Command::from(command).kill_on_drop(true).spawn();
        self.daemons.push((name, child.with_context(|| format!("cannot start {name}"))?));
        step(format!("{name} is starting"));
        Ok(())
    }

    /// The first sign of work of API server and controllers: the account that every Pod needs.
    async fn until_it_works(&mut self, home: &Home) -> Result<()> {
        let client = crate::client::connect(&home.kubeconfig()).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        let (deadline, mut pauses) = (Instant::now() + PATIENCE, Pauses::default());
        while accounts.get("default").await.is_err() {
            for (name, child) in &mut self.daemons {
                let log = self.directory.join(format!("{name}.log"));
                if let Some(status) = child.try_wait()? {
                    // Those who need the API server may give up before it is there.
                    bail!("{name} ended with {status}: {}", log_tail(&log));
                }
            }
            if Instant::now() > deadline {
                bail!("no account in the namespace `default` after {PATIENCE:?}: {}", self.last_words());
            }
            tokio::time::sleep_until(Instant::now() + pauses.next()).await;
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let logs = self.daemons.iter().map(|(name, _)| self.file(&format!("{name}.log")));
        logs.map(|log| format!("{}\n", log_tail(&log))).collect()
    }
}

/// Where `make kubernetes` puts its programs, if these are there.
pub(super) fn programs(names: &[&str]) -> Result<PathBuf> {
    let mut lines = GO_MOD.lines().map(str::trim);
    let version = lines.find_map(|line| {
        let rest = line.strip_prefix("require ").unwrap_or(line).strip_prefix("k8s.io/kubernetes ")?;
        rest.split_whitespace().next()
    });
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let directory =
        cache.unwrap_or_else(std::env::temp_dir).join("antrea-rs/kubernetes").join(version.unwrap_or_default());
    for name in names {
        if !directory.join(name).is_file() {
            bail!("{} is missing: run `make kubernetes`", directory.join(name).display());
        }
    }
    Ok(directory)
}
