//! The cells of Pods.

use serde_json::{Value, json};

use super::{age, cells::amount};
use crate::value::{at, items, text};

/// The values of a Pod's cells.
struct Summary {
    ready: usize,
    containers: usize,
    restarts: i64,
    /// Time of the last restart of a container.
    restarted: String,
    reason: String,
}

pub(super) fn ready(pod: &Value) -> Value {
    let Summary { ready, containers, .. } = summary(pod);
    format!("{ready}/{containers}").into()
}

pub(super) fn status(pod: &Value) -> Value {
    summary(pod).reason.into()
}

pub(super) fn restarts(pod: &Value) -> Value {
    let Summary { restarts, restarted, .. } = summary(pod);
    match restarted.as_str() {
        time if restarts != 0 && !time.is_empty() => format!("{restarts} ({} ago)", age(time)).into(),
        _ => restarts.to_string().into(),
    }
}

pub(super) fn gates(pod: &Value) -> Value {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates.iter().filter(|gate| condition(pod, text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len()).into()
}

/// The conditions of a row for a terminated Pod.
pub(in crate::table) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn condition(pod: &Value, kind: &str) -> bool {
    let found = items(pod, "status.conditions").iter().find(|found| text(found, "type") == kind);
    found.is_some_and(|found| text(found, "status") == "True")
}

fn summary(pod: &Value) -> Summary {
    let phase = text(pod, "status.phase");
    let why = text(pod, "status.reason");
    let sidecar = |name: &str| {
        let inits = items(pod, "spec.initContainers");
        inits.iter().any(|init| text(init, "name") == name && text(init, "restartPolicy") == "Always")
    };
    let sidecars = items(pod, "spec.initContainers").iter().filter(|init| sidecar(text(init, "name"))).count();
    let mut summary = Summary {
        ready: 0,
        containers: items(pod, "spec.containers").len() + sidecars,
        restarts: 0,
        restarted: String::new(),
        reason: if why.is_empty() { phase } else { why }.to_owned(),
    };
    if items(pod, "status.conditions").iter().any(|found| text(found, "reason") == "SchedulingGated") {
        summary.reason = "SchedulingGated".to_owned();
    }
    let beside = initialisation(pod, sidecar, &mut summary);
    if beside.is_none() || condition(pod, "Initialized") {
        summary.restarts = beside.unwrap_or(summary.restarts);
        running(pod, &mut summary);
    }
    if !at(pod, "metadata.deletionTimestamp").is_null() {
        if why == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !["Succeeded", "Failed"].contains(&phase) {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// The state of init containers. Returns the restarts of sidecars while initialisation is not finished.
fn initialisation(pod: &Value, sidecar: impl Fn(&str) -> bool, summary: &mut Summary) -> Option<i64> {
    let mut beside = 0;
    let all = items(pod, "spec.initContainers").len();
    for (index, status) in items(pod, "status.initContainerStatuses").iter().enumerate() {
        restarted(status, summary);
        let lasting = sidecar(text(status, "name"));
        if lasting {
            beside += amount(status, "restartCount");
        }
        let (ended, waits) = (at(status, "state.terminated"), text(status, "state.waiting.reason"));
        if at(ended, "exitCode") == 0 {
            continue;
        }
        if lasting && at(status, "started") == true {
            summary.ready += usize::from(at(status, "ready") == true);
            continue;
        }
        summary.reason = match (ended.is_null(), waits) {
            (false, _) => format!("Init:{}", end(ended)),
            (true, "" | "PodInitializing") => format!("Init:{index}/{all}"),
            (true, waits) => format!("Init:{waits}"),
        };
        return Some(beside);
    }
    summary.restarts = beside;
    None
}

fn running(pod: &Value, summary: &mut Summary) {
    let mut runs = false;
    for status in items(pod, "status.containerStatuses").iter().rev() {
        restarted(status, summary);
        let (ended, waits) = (at(status, "state.terminated"), text(status, "state.waiting.reason"));
        if !waits.is_empty() {
            summary.reason = waits.to_owned();
        } else if !ended.is_null() {
            summary.reason = end(ended);
        } else if at(status, "ready") == true && !at(status, "state.running").is_null() {
            runs = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && runs {
        summary.reason = if condition(pod, "Ready") { "Running" } else { "NotReady" }.to_owned();
    }
}

fn restarted(status: &Value, summary: &mut Summary) {
    summary.restarts += amount(status, "restartCount");
    let ended = text(status, "lastState.terminated.finishedAt");
    if ended > summary.restarted.as_str() {
        summary.restarted = ended.to_owned();
    }
}

/// The reason why a container terminated.
fn end(ended: &Value) -> String {
    match (text(ended, "reason"), amount(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", amount(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(inits: Value, containers: Value) -> Value {
        json!({
            "spec": {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}, {"name": "d"}]},
            "status": {"phase": "Running", "initContainerStatuses": inits, "containerStatuses": containers},
        })
    }

    fn cells(pod: &Value) -> [Value; 3] {
        [ready(pod), status(pod), restarts(pod)]
    }

    #[test]
    fn init_containers_determine_the_status_until_they_are_done() {
        let done = json!({"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}});
        let failed = json!({"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 1}}});
        let beside = json!({"name": "s", "restartCount": 4, "started": true, "ready": true, "state": {"running": {}}});
        let waits = json!({"name": "s", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}});
        assert_eq!(cells(&pod(json!([failed]), json!([]))), ["0/3", "Init:ExitCode:1", "2"]);
        assert_eq!(cells(&pod(json!([done, waits]), json!([]))), ["0/3", "Init:1/2", "1"]);
        assert_eq!(cells(&pod(json!([done, beside]), json!([]))), ["1/3", "Running", "4"]);
    }

    #[test]
    fn a_terminated_container_determines_the_status_unless_another_runs() {
        let runs = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
        let ended = json!({"restartCount": 3, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let killed = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        assert_eq!(cells(&pod(json!([]), json!([runs, ended]))), ["1/3", "NotReady", "3"]);
        assert_eq!(cells(&pod(json!([]), json!([killed]))), ["0/3", "Signal:9", "0"]);
    }
}
