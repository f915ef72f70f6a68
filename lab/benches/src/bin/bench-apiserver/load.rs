//! The load: Pods created by some clients and watched by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use benches::latency::Latencies;
use benches::progress;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use memchr::memmem;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::Access;

/// Size of the load.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) pods: usize,
    pub(crate) clients: usize,
    pub(crate) watchers: usize,
}

/// The measurements of one run.
pub(crate) struct Outcome {
    /// Created Pods per second.
    pub(crate) create: f64,
    pub(crate) latencies: Arc<Shared>,
}

/// State that all tasks share.
pub(crate) struct Shared {
    begun: Instant,
    /// Creation time of each Pod, in nanoseconds since the start.
    sent: Vec<AtomicU64>,
    next: AtomicUsize,
    pub(crate) latencies: Latencies,
    /// Number of watches that the server ended, and that were resumed.
    pub(crate) resumed: AtomicUsize,
    /// Number of watches that could not be resumed because the revision was too old.
    pub(crate) expired: AtomicUsize,
}

/// If no watcher sees an event for this long, no more are expected.
const QUIET: Duration = Duration::from_secs(20);
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(index: usize) -> Bytes {
    let labels = json!({"app": format!("app-{}", index % 1000), "tier": "web", "version": "v1"});
    let container = json!({
        "name": "main", "image": "registry.example/web:1.2.3", "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "LEVEL", "value": "info"}], "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{index}"), "labels": labels},
        "spec": {"nodeName": format!("node-{}", index % 500), "containers": [container]},
    });
    pod.to_string().into()
}

/// Creates Pods until all are created.
async fn make(access: Access, shared: Arc<Shared>) -> Result<()> {
    let mut connection = access.connect().await?;
    loop {
        let index = shared.next.fetch_add(1, Relaxed);
        let Some(sent) = shared.sent.get(index) else { return Ok(()) };
        let body = pod(index);
        sent.store(u64::try_from(shared.begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        connection.send("POST", PODS, body).await?;
    }
}

/// The number that follows `key` in a line.
fn number_after(line: &[u8], key: &[u8]) -> Option<u64> {
    let digits = line.get(memmem::find(line, key)? + key.len()..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Watches from a revision without end; resumes when the server ends the watch.
async fn watch(access: Access, shared: Arc<Shared>, mut revision: u64) -> Result<()> {
    loop {
        let mut connection = access.connect().await?;
        let path = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={revision}");
        let mut body = connection.open("GET", &path, Bytes::new()).await?.into_body();
        let mut rest: Vec<u8> = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Some(data) = frame.data_ref() else { continue };
            let now = shared.begun.elapsed();
            for part in data.split_inclusive(|byte| *byte == b'\n') {
                // Most lines arrive in one piece.
                let line = match (rest.is_empty(), part.ends_with(b"\n")) {
                    (true, true) => part,
                    (_, whole) => {
                        rest.extend_from_slice(part);
                        if !whole {
                            continue;
                        }
                        rest.as_slice()
                    }
                };
                if line.starts_with(br#"{"type":"ERROR""#) {
                    shared.expired.fetch_add(1, Relaxed);
                    revision = latest(&access).await?;
                } else if let Some(at) = number_after(line, br#""resourceVersion":""#) {
                    revision = at;
                    let index = number_after(line, br#""name":"pod-"#).and_then(|index| usize::try_from(index).ok());
                    if let Some(sent) = index.and_then(|index| shared.sent.get(index)) {
                        shared.latencies.add(now.saturating_sub(Duration::from_nanos(sent.load(Relaxed))));
                    }
                }
                rest.clear();
            }
        }
        shared.resumed.fetch_add(1, Relaxed);
    }
}

/// The current revision of the server.
async fn latest(access: &Access) -> Result<u64> {
    let list = access.connect().await?.send("GET", "/api/v1/pods?limit=1", Bytes::new()).await?;
    number_after(&list, br#""resourceVersion":""#).context("a list without a revision")
}

/// Runs the load against a server.
pub(crate) async fn run(name: &str, access: &Access, size: Size) -> Result<Outcome> {
    let shared = Arc::new(Shared {
        begun: Instant::now(),
        sent: (0..size.pods).map(|_| AtomicU64::new(0)).collect(),
        next: AtomicUsize::new(0),
        latencies: Latencies::default(),
        resumed: AtomicUsize::new(0),
        expired: AtomicUsize::new(0),
    });
    let revision = latest(access).await?;
    let mut watchers = JoinSet::new();
    for _ in 0..size.watchers {
        watchers.spawn(watch(access.clone(), shared.clone(), revision));
    }
    let start = Instant::now();
    let mut makers = JoinSet::new();
    for _ in 0..size.clients {
        makers.spawn(make(access.clone(), shared.clone()));
    }
    let mut reported = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while !makers.is_empty() {
        tokio::select! {
            Some(done) = makers.join_next() => done??,
            Some(failed) = watchers.join_next() => failed??,
            _ = tick.tick() => {}
        }
        if reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            let made = shared.next.load(Relaxed).min(size.pods);
            progress(&format!("{name}: {made} Pods created, {} events seen", shared.latencies.count()));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let create = size.pods as f64 / start.elapsed().as_secs_f64();
    wait_for_watchers(name, &shared, size, &mut watchers).await?;
    Ok(Outcome { create, latencies: shared })
}

async fn wait_for_watchers(name: &str, shared: &Shared, size: Size, watchers: &mut JoinSet<Result<()>>) -> Result<()> {
    let all = size.pods as u64 * size.watchers as u64;
    let (mut seen, mut since) = (0, Instant::now());
    let mut reported = Instant::now();
    while seen < all && since.elapsed() < QUIET {
        let soon = tokio::time::Instant::now() + Duration::from_millis(50);
        tokio::select! {
            () = sleep_until(soon) => {}
            Some(failed) = watchers.join_next() => failed??,
        }
        let now = shared.latencies.count();
        if now > seen {
            (seen, since) = (now, Instant::now());
        }
        if reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            progress(&format!("{name}: {seen} of {all} events seen"));
        }
    }
    Ok(())
}
