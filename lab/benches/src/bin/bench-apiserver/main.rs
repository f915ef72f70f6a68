//! Pods created by 8 clients and watched by 100: the embedded API server compared with the real one and etcd.
//!
//! Both run as processes of their own and without controllers; clients use JSON over TLS with a client certificate.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail};
use apiserver::{ApiServer, Options};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use benches::{Figure, Goal, progress, report};
use serde_json::{Value, json};
use testkit::ControlPlane;

mod client;
mod load;
use client::Access;
use load::{Outcome, Size};

/// The argument that makes this program the server.
const SERVE: &str = "serve";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match env::args().nth(1).as_deref() {
        None => runtime.block_on(measure()),
        Some(SERVE) => runtime.block_on(serve()),
        Some(other) => bail!("unknown argument {other}: set the size with PODS, CLIENTS and WATCHERS"),
    }
}

/// Serves until standard input ends, which is when the parent process ends.
async fn serve() -> Result<()> {
    let server = ApiServer::start(Options { controllers: false, ..Options::default() }).await?;
    let (ca, user) = (server.ca_pem(), server.admin_kubeconfig()?);
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!({"url": server.url(), "ca": ca, "kubeconfig": user}))?;
    out.flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn size() -> Result<Size> {
    let number = |name: &str, usual: usize| match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text} is not a number")),
        Err(_) => Ok(usual),
    };
    Ok(Size { pods: number("PODS", 100_000)?, clients: number("CLIENTS", 8)?, watchers: number("WATCHERS", 100)? })
}

async fn measure() -> Result<()> {
    let size = size()?;
    let Size { pods, clients, watchers } = size;
    progress(&format!("{pods} Pods, created by {clients} clients, watched by {watchers} watchers"));
    let ours = embedded(size).await?;
    let peer = match ControlPlane::installed() {
        true => Some(real(size).await?),
        false => {
            progress("no real server to compare with: `make kubernetes` builds it");
            None
        }
    };
    let figure = |name, unit, of: fn(&Side) -> f64, goal| {
        report(&Figure { name, unit, ours: of(&ours), peer: peer.as_ref().map(of), goal: Some(goal) });
    };
    figure("create", "/s", |side| side.outcome.create, Goal::Least(2.0));
    figure("bytes-per-object", "B", |side| side.bytes, Goal::Ratio(0.5));
    figure("watch-p50", "s", |side| side.outcome.latencies.latencies.quantile(0.5), Goal::Ratio(1.0));
    figure("watch-p99", "s", |side| side.outcome.latencies.latencies.quantile(0.99), Goal::Ratio(1.0));
    Ok(())
}

/// The measurements of one server.
struct Side {
    outcome: Outcome,
    /// Growth of resident memory per Pod.
    bytes: f64,
}

async fn run(name: &str, access: &Access, size: Size, memory: impl Fn() -> Result<u64>) -> Result<Side> {
    let before = memory()?;
    let outcome = load::run(name, access, size).await?;
    let grown = memory()?.saturating_sub(before);
    let shared = &outcome.latencies;
    let (resumed, expired) = (shared.resumed.load(Relaxed), shared.expired.load(Relaxed));
    let (seen, all) = (shared.latencies.count(), size.pods * size.watchers);
    progress(&format!(
        "{name}: {:.0} Pods/s, {seen} of {all} events seen, {resumed} watches ended by the server, {expired} of them expired",
        outcome.create
    ));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(Side { outcome, bytes: grown as f64 / size.pods as f64 })
}

/// The server process, killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn embedded(size: Size) -> Result<Side> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(command.spawn()?);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().context("no output")?).read_line(&mut line)?;
    let reply: Value = serde_json::from_str(&line).context("the server did not start")?;
    let text = |key: &str| reply.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kubeconfig = text("kubeconfig");
    let data = |name: &str| {
        let encoded = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_default();
        Ok::<_, anyhow::Error>(String::from_utf8(STANDARD.decode(encoded.trim())?)?)
    };
    let access = Access::new(
        address(&text("url"))?,
        &text("ca"),
        &data("client-certificate-data:")?,
        &data("client-key-data:")?,
    )?;
    let pid = server.0.id();
    run("embedded", &access, size, || resident(pid)).await
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

async fn real(size: Size) -> Result<Side> {
    let options = testkit::kubernetes::Options { controllers: Vec::new(), ..testkit::kubernetes::Options::default() };
    let plane = ControlPlane::start(options)?;
    let (certificate, key) = plane.admin()?;
    let access = Access::new(address(&plane.url())?, &plane.ca()?, &certificate, &key)?;
    // A controller would create it, and Pods require it.
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    access.connect().await?.send("POST", accounts, account.into()).await?;
    run("real", &access, size, || Ok(plane.memory()?.iter().map(|(_, bytes)| bytes).sum())).await
}

fn address(url: &str) -> Result<SocketAddr> {
    url.strip_prefix("https://").unwrap_or(url).parse().with_context(|| format!("{url} has no address"))
}
