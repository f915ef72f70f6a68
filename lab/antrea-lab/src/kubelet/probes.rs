//! Startup, readiness and liveness probes of a container, sent from the Node.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::lifecycle::Probe;

/// Maximum number of bytes that are read of an HTTP response.
const MAX_RESPONSE: u64 = 10 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Option<IpAddr>,
    /// PID of its init process in the PID namespace of the Node.
    pub(crate) pid: u32,
    pub(crate) container: core::Container,
}

/// A result that the worker of the Pod has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProbeResult {
    /// The container passes the probe from now on, or fails it.
    Verdict(Probe, bool),
    /// A probe failed with another reason than the previous time.
    Failure(String),
}

/// Probes a container until the future is dropped, and calls `report` with each result.
pub(crate) async fn run(target: Target, report: impl Fn(ProbeResult)) {
    if let Some(probe) = &target.container.startup_probe
        && !repeat(&target, Probe::Startup, probe, &report).await
    {
        return;
    }
    let readiness = async {
        if let Some(probe) = &target.container.readiness_probe {
            repeat(&target, Probe::Readiness, probe, &report).await;
        }
    };
    let liveness = async {
        if let Some(probe) = &target.container.liveness_probe {
            repeat(&target, Probe::Liveness, probe, &report).await;
        }
    };
    tokio::join!(readiness, liveness);
}

/// Repeats a probe until its result is final: a startup probe passed, or a failed probe ends the container. Returns whether it passed.
async fn repeat(target: &Target, kind: Probe, probe: &core::Probe, report: &impl Fn(ProbeResult)) -> bool {
    let number = |value: Option<i32>, otherwise: u32| {
        value.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(otherwise)
    };
    let seconds = |value| Duration::from_secs(u64::from(number(value, 1)));
    let period = Duration::from_secs(u64::from(number(probe.period_seconds, 10)));
    let delay = u64::try_from(probe.initial_delay_seconds.unwrap_or_default()).unwrap_or_default();
    let mut threshold = Threshold::new(number(probe.success_threshold, 1), number(probe.failure_threshold, 3));
    let mut next = Instant::now() + Duration::from_secs(delay);
    let mut last = None;
    loop {
        tokio::time::sleep_until(next).await;
        next += period;
        let limit = seconds(probe.timeout_seconds);
        let outcome = match timeout(limit, ask(target, probe)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("no answer in {limit:?}")),
        };
        let passed = outcome.is_ok();
        let why = outcome.err().map(|error| format!("{kind:?} probe failed: {error:#}"));
        if let Some(why) = why.clone().filter(|_| why != last) {
            report(ProbeResult::Failure(why));
        }
        last = why;
        let Some(verdict) = threshold.count(passed) else { continue };
        report(ProbeResult::Verdict(kind, verdict));
        match (kind, verdict) {
            (Probe::Startup, _) => return verdict,
            (Probe::Liveness, false) => return false,
            (Probe::Liveness, true) | (Probe::Readiness, _) => {}
        }
    }
}

/// Counts consecutive results up to the thresholds of a probe.
struct Threshold {
    to_pass: u32,
    to_fail: u32,
    row: u32,
    last: Option<bool>,
    verdict: Option<bool>,
}

impl Threshold {
    fn new(to_pass: u32, to_fail: u32) -> Self {
        Self { to_pass, to_fail, row: 0, last: None, verdict: None }
    }

    /// Counts a result. Returns the verdict if it changes.
    fn count(&mut self, passed: bool) -> Option<bool> {
        self.row = if self.last == Some(passed) { self.row + 1 } else { 1 };
        self.last = Some(passed);
        let enough = if passed { self.to_pass } else { self.to_fail };
        if self.row < enough || self.verdict == Some(passed) {
            return None;
        }
        self.verdict = Some(passed);
        self.verdict
    }
}

async fn ask(target: &Target, probe: &core::Probe) -> Result<()> {
    let address = |host: Option<&String>| -> Result<String> {
        match host.filter(|host| !host.is_empty()) {
            Some(host) => Ok(host.clone()),
            None => Ok(target.address.context("the Pod has no address")?.to_string()),
        }
    };
    if let Some(exec) = &probe.exec {
        return run_inside(target.pid, exec.command.as_deref().unwrap_or_default()).await;
    }
    if let Some(tcp) = &probe.tcp_socket {
        let (host, port) = (address(tcp.host.as_ref())?, port(&target.container, &tcp.port)?);
        return TcpStream::connect((host.as_str(), port)).await.map(drop).with_context(|| format!("tcp {host}:{port}"));
    }
    if let Some(get) = &probe.http_get {
        if get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
            bail!("the lab supports http only: use `scheme: HTTP` or a tcpSocket probe");
        }
        let (host, port) = (address(get.host.as_ref())?, port(&target.container, &get.port)?);
        return fetch(&host, port, get).await.with_context(|| format!("http {host}:{port}"));
    }
    bail!("the lab supports exec, tcpSocket and httpGet probes only")
}

fn port(container: &core::Container, port: &IntOrString) -> Result<u16> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            ports.clone().find(|own| own.name.as_ref() == Some(name)).map(|own| own.container_port)
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).with_context(|| format!("there is no port {port:?}"))
}

async fn fetch(host: &str, port: u16, get: &core::HTTPGetAction) -> Result<()> {
    let mut stream = TcpStream::connect((host, port)).await?;
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe/lab\r\n");
    let headers = get.http_headers.as_deref().unwrap_or_default();
    if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
        request += &format!("Host: {host}:{port}\r\n");
    }
    for header in headers {
        request += &format!("{}: {}\r\n", header.name, header.value);
    }
    request += "\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut answer).await?;
    let code = status_code(&answer).context("the response is not HTTP")?;
    if !(200..400).contains(&code) {
        bail!("status {code}");
    }
    Ok(())
}

fn status_code(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()
}

async fn run_inside(pid: u32, command: &[String]) -> Result<()> {
    let mut inside = crate::nsenter::container(pid, None);
    inside.args(command);
    testkit::process::kill_with_parent(&mut inside);
    let mut inside = tokio::process::Command::from(inside);
    inside.stdin(Stdio::null()).kill_on_drop(true);
    let output = inside.output().await?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{}: {}", output.status, String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_changes_after_threshold_results_in_a_row() {
        let mut threshold = Threshold::new(1, 3);
        let verdicts =
            [true, true, false, false, true, false, false, false, false, true].map(|one| threshold.count(one));
        let none = None;
        assert_eq!(verdicts, [Some(true), none, none, none, none, none, none, Some(false), none, Some(true)]);
    }

    #[test]
    fn the_status_code_is_read_from_the_first_line() {
        assert_eq!(status_code(b"HTTP/1.1 204 No Content\r\n\r\n"), Some(204));
        assert_eq!(status_code(b"SSH-2.0-x\r\n"), None);
    }
}
