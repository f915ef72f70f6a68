//! The status of a Pod, computed from its lifecycle.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::lifecycle::{Exit, Lifecycle, Net, Slot, State};

/// Inputs of the status that are not part of the lifecycle.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) node_addresses: Vec<String>,
    pub(crate) pod_addresses: Vec<String>,
    pub(crate) begun: Timestamp,
    /// Images of the containers, by name.
    pub(crate) images: BTreeMap<String, String>,
    /// Conditions of other writers.
    pub(crate) others: Vec<core::PodCondition>,
}

/// Transition times of the conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions(BTreeMap<&'static str, (bool, Timestamp)>);

/// The conditions that the kubelet writes.
pub(crate) const MINE: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];

/// The current status of a Pod.
pub(crate) fn status(life: &Lifecycle, facts: &Facts, conditions: &mut Conditions, now: Timestamp) -> core::PodStatus {
    let over = matches!(life.phase(), "Succeeded" | "Failed");
    let ready = !over && life.is_ready();
    let net = matches!(life.net, Net::Up);
    let initialized = life.is_initialized();
    let unready = if over { "PodCompleted" } else { "ContainersNotReady" };
    let wanted = [
        (net, None),
        (initialized, (!initialized).then_some("ContainersNotInitialized")),
        (ready, (!ready).then_some(unready)),
        (ready, (!ready).then_some(unready)),
    ];
    let mut list = facts.others.clone();
    for (kind, (value, reason)) in MINE.into_iter().zip(wanted) {
        let since = conditions.0.entry(kind).or_insert((value, now));
        if since.0 != value {
            *since = (value, now);
        }
        list.push(core::PodCondition {
            type_: kind.to_owned(),
            status: if value { "True" } else { "False" }.to_owned(),
            last_transition_time: Some(Time(since.1)),
            reason: reason.map(ToOwned::to_owned),
            ..core::PodCondition::default()
        });
    }
    let containers = |init: bool| -> Option<Vec<core::ContainerStatus>> {
        let slots: Vec<_> = life.slots.iter().filter(|slot| slot.is_init == init).collect();
        (!slots.is_empty()).then(|| slots.into_iter().map(|slot| container(slot, life, facts)).collect())
    };
    let ips = |addresses: &[String]| (!addresses.is_empty()).then(|| addresses.to_vec());
    core::PodStatus {
        phase: Some(life.phase().to_owned()),
        conditions: Some(list),
        host_ip: facts.node_addresses.first().cloned(),
        host_ips: ips(&facts.node_addresses).map(|ips| ips.into_iter().map(|ip| core::HostIP { ip }).collect()),
        pod_ip: facts.pod_addresses.first().cloned(),
        pod_ips: ips(&facts.pod_addresses).map(|ips| ips.into_iter().map(|ip| core::PodIP { ip }).collect()),
        start_time: Some(Time(facts.begun)),
        container_statuses: containers(false),
        init_container_statuses: containers(true),
        qos_class: Some("BestEffort".to_owned()),
        ..core::PodStatus::default()
    }
}

fn container(slot: &Slot, life: &Lifecycle, facts: &Facts) -> core::ContainerStatus {
    let waiting = |reason: &str, message: &str| core::ContainerState {
        waiting: Some(core::ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: (!message.is_empty()).then(|| message.to_owned()),
        }),
        ..core::ContainerState::default()
    };
    let state = match &slot.state {
        State::Waiting | State::Starting => match &life.net {
            Net::Failed { message, .. } => waiting("ContainerCreating", message),
            Net::Up if !slot.is_init && !life.is_initialized() => waiting("PodInitializing", ""),
            _ => waiting("ContainerCreating", ""),
        },
        State::Blocked { reason, message } | State::BackOff { reason, message, .. } => waiting(reason, message),
        State::Running { since, .. } => core::ContainerState {
            running: Some(core::ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..core::ContainerState::default()
        },
        State::Done(exit) => terminated(exit),
    };
    let image = facts.images.get(&slot.name).cloned().unwrap_or_default();
    core::ContainerStatus {
        name: slot.name.clone(),
        image_id: image.clone(),
        image,
        ready: if slot.is_init { matches!(&slot.state, State::Done(exit) if exit.code == 0) } else { slot.is_ready() },
        started: Some(matches!(slot.state, State::Running { started: true, .. })),
        restart_count: slot.restarts.cast_signed(),
        last_state: slot.last.as_ref().map(terminated),
        state: Some(state),
        ..core::ContainerStatus::default()
    }
}

fn terminated(exit: &Exit) -> core::ContainerState {
    let reason = if exit.code == 0 { "Completed" } else { "Error" };
    core::ContainerState {
        terminated: Some(core::ContainerStateTerminated {
            exit_code: exit.code,
            reason: Some(reason.to_owned()),
            started_at: Some(Time(exit.since)),
            finished_at: Some(Time(exit.until)),
            ..core::ContainerStateTerminated::default()
        }),
        ..core::ContainerState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lifecycle::{Event, Restart};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_status_has_the_reason_for_waiting_the_ready_time_and_the_exit_code() {
        let mut life = Lifecycle::new(Restart::Never, vec![Slot::new("a", false, false, false)]);
        let facts = Facts {
            node_addresses: vec!["192.168.1.11".into()],
            pod_addresses: vec!["10.10.1.2".into(), "fd00::2".into()],
            begun: at(0),
            images: BTreeMap::from([("a".into(), "nginx".into())]),
            others: vec![],
        };
        let mut conditions = Conditions::default();
        life.step(at(1), Event::Tick);
        life.step(at(1), Event::NotConnected("no addresses left".into()));
        let waiting = |status: &core::PodStatus| {
            let state = status.container_statuses.clone().unwrap()[0].state.clone().unwrap();
            state.waiting.map(|waiting| waiting.message.unwrap_or_default())
        };
        let first = status(&life, &facts, &mut conditions, at(1));
        assert_eq!((first.phase.as_deref(), waiting(&first).as_deref()), (Some("Pending"), Some("no addresses left")));

        for (second, event) in [(2, Event::Tick), (3, Event::Connected), (4, Event::Started(0))] {
            life.step(at(second), event);
        }
        let ready = |status: &core::PodStatus| {
            let found = status.conditions.iter().flatten().find(|found| found.type_ == "Ready").unwrap();
            (found.status.clone(), found.last_transition_time.clone().unwrap().0)
        };
        for now in [5, 6] {
            let running = status(&life, &facts, &mut conditions, at(now));
            assert_eq!(ready(&running), ("True".to_owned(), at(5)));
            assert_eq!(running.pod_ips.unwrap().len(), 2);
        }
        life.step(at(7), Event::Exited { slot: 0, code: 3 });
        let over = status(&life, &facts, &mut conditions, at(7));
        assert_eq!((over.phase.as_deref(), ready(&over)), (Some("Failed"), ("False".to_owned(), at(7))));
        let end = over.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
        assert_eq!((end.exit_code, end.reason.as_deref()), (3, Some("Error")));
    }
}
