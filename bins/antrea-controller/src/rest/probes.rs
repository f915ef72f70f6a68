//! Health and metrics. These functions are synchronous: they read what the engine publishes beside its queue, and so do not wait
//! for the brain.

use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;
use telemetry::metrics::{Kind, Page};
use tokio::time::Instant;

use super::{Answer, plain, respond};
use crate::engine::Engine;
use crate::sources::Sources;

fn unavailable(why: &str) -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Whether the engine runs and is not stuck.
pub(super) fn health(engine: &Engine) -> Answer {
    match engine.overview().and_then(|overview| overview.check(Instant::now())) {
        Ok(()) => plain(StatusCode::OK, "ok"),
        Err(error) => unavailable(&error.to_string()),
    }
}

/// Whether the brain has all objects, and their watches work.
pub(super) fn readiness(engine: &Engine, sources: &Sources) -> Answer {
    if let Some((plural, since)) = sources.silent(Instant::now()) {
        let why = format!("no answer from the Kubernetes API to the watch of {plural} for {} s", since.as_secs());
        return unavailable(&why);
    }
    match engine.overview() {
        Ok(overview) if overview.is_synced => plain(StatusCode::OK, "ok"),
        Ok(_) => unavailable("waiting for the initial list of Pods, Namespaces and NetworkPolicies"),
        Err(error) => unavailable(&error.to_string()),
    }
}

/// The metrics in the format of Prometheus.
pub(super) fn metrics(engine: &Engine) -> Answer {
    let overview = match engine.overview() {
        Ok(overview) => overview,
        Err(error) => return unavailable(&error.to_string()),
    };
    let counters = &engine.counters;
    let mut page = Page::default();
    let mut gauge = |name: &str, about: &str, value: usize| page.number(Kind::Gauge, (name, about), value);
    gauge("antrea_controller_network_policy_count", "Number of NetworkPolicies.", overview.stats.policies);
    gauge("antrea_controller_applied_to_group_count", "Number of AppliedToGroups.", overview.stats.applied_to_groups);
    gauge("antrea_controller_address_group_count", "Number of AddressGroups.", overview.stats.address_groups);
    gauge("antrea_controller_connected_agent_count", "Agents connected to this replica.", overview.agents);
    // Antrea has these queues; here an event is processed when it arrives.
    for name in ["address_group", "applied_to_group", "network_policy"] {
        gauge(
            &format!("antrea_controller_length_{name}_queue"),
            "Always 0: events are processed without this queue.",
            0,
        );
    }
    let mut counter = |name: &str, about: &str, value: u64| page.number(Kind::Counter, (name, about), value);
    let (policies, pods) = (counters.policies.load(Relaxed), counters.pods.load(Relaxed));
    counter("antrea_controller_network_policy_processed", "Processed NetworkPolicy events.", policies);
    counter("antrea_controller_address_group_processed", "Processed Pod and Namespace events.", pods);
    counter("antrea_controller_applied_to_group_processed", "Processed Pod and Namespace events.", pods);
    counter("antrea_controller_batches_sent_count", "Batches sent to agents.", counters.batches.load(Relaxed));
    counter(
        "antrea_controller_agents_refused_count",
        "Agent connections that were refused.",
        counters.refused.load(Relaxed),
    );
    let milliseconds = "Processing time of an event, in milliseconds.";
    for (name, took) in [
        ("network_policy", &counters.policy_took),
        ("address_group", &counters.pod_took),
        ("applied_to_group", &counters.pod_took),
    ] {
        let name = format!("antrea_controller_{name}_sync_duration_milliseconds");
        page.histogram((&name, milliseconds), [(&[][..], took)]);
    }
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.finish())
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::engine::tests::{Block, synced};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_busy_brain_delays_neither_health_nor_metrics() {
        let engine = synced().await;
        let _block = Block::start(&engine);
        assert!(engine.overview().unwrap().activity.is_some(), "the brain is busy all the time");
        assert_eq!(health(&engine).status(), StatusCode::OK);
        assert_eq!(readiness(&engine, &Sources::default()).status(), StatusCode::OK);
        let page = metrics(&engine).into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("antrea_controller_network_policy_count 0"), "{page}");
        assert!(engine.overview().unwrap().activity.is_some(), "the brain is busy all the time");
    }
}
