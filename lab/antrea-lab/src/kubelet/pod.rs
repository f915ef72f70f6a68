//! The worker of one Pod: executes the effects of its lifecycle, and writes its status to the API.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::container_env::ContainerEnv;
use super::lifecycle::{Effect, Event, Lifecycle, Net, Restart, Slot, State};
use super::pod_table::{ContainerView, PodView};
use super::probes::ProbeResult;
use super::sandbox::Sandbox;
use super::status::{Conditions, Facts, MINE, status};
use super::{Context, PodObject, image, probes, run};
use crate::node::init::PODS;

/// When to write the status again after a failure.
const STATUS_RETRY: Duration = Duration::from_secs(1);

/// Messages of the tasks of a Pod to its worker.
enum Message {
    Lifecycle(Event),
    Connected(Box<Sandbox>),
    /// A container runs: its number, the PID of its init process, and that of its monitor.
    Running {
        slot: usize,
        pid: u32,
        monitor: u32,
    },
    /// A probe failed; becomes an event.
    Unhealthy(String),
}

struct Worker {
    context: Arc<Context>,
    pod: core::Pod,
    lifecycle: Lifecycle,
    conditions: Conditions,
    begun: Timestamp,
    sandbox: Option<Sandbox>,
    running: BTreeMap<usize, Running>,
    written: Option<core::PodStatus>,
    messages: mpsc::UnboundedSender<Message>,
}

struct Running {
    pid: u32,
    monitor: u32,
    probes: AbortHandle,
    /// Kills the container after the grace period.
    killer: Option<AbortHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.probes.abort();
        self.killer.iter().for_each(AbortHandle::abort);
    }
}

/// Runs a Pod until its object is deleted.
pub(crate) async fn run_pod(context: Arc<Context>, pod: core::Pod, mut seen: watch::Receiver<PodObject>) {
    let (messages, mut inbox) = mpsc::unbounded_channel();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) && pod.metadata.deletion_timestamp.is_none() {
        // It ended before this kubelet started; only its deletion is left.
        let _ = seen.wait_for(ends).await;
    }
    let lifecycle = lifecycle(&pod);
    let begun = Timestamp::now();
    let mut worker = Worker {
        context,
        pod,
        lifecycle,
        conditions: Conditions::default(),
        begun,
        sandbox: None,
        running: BTreeMap::new(),
        written: None,
        messages,
    };
    let first = if ends(&seen.borrow_and_update()) { Event::Delete } else { Event::Tick };
    let mut over = worker.step(first).await;
    while !over {
        let wake = worker.wake_at();
        let event = tokio::select! {
            Some(message) = inbox.recv() => worker.receive(message).await,
            Ok(()) = seen.changed() => {
                let seen = seen.borrow_and_update().clone();
                let ending = ends(&seen);
                if let PodObject::Present(pod) = seen {
                    worker.pod = *pod;
                }
                Some(if ending { Event::Delete } else { Event::Tick })
            }
            () = tokio::time::sleep_until(wake) => Some(Event::Tick),
        };
        if let Some(event) = event {
            over = worker.step(event).await;
        }
    }
}

fn ends(seen: &PodObject) -> bool {
    match seen {
        PodObject::Present(pod) => pod.metadata.deletion_timestamp.is_some(),
        PodObject::Deleted => true,
    }
}

fn lifecycle(pod: &core::Pod) -> Lifecycle {
    let spec = pod.spec.as_ref();
    let policy = match spec.and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    };
    let slot = |container: &core::Container, is_init: bool| {
        let (startup, readiness) = (container.startup_probe.is_some(), container.readiness_probe.is_some());
        let mut slot = Slot::new(&container.name, is_init, startup && !is_init, readiness && !is_init);
        if let Err(message) = command(container) {
            slot.state = State::Blocked { reason: "ErrImageNeverPull".to_owned(), message };
        }
        slot
    };
    let init =
        spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).map(|container| slot(container, true));
    let main = spec.iter().flat_map(|spec| &spec.containers).map(|container| slot(container, false));
    Lifecycle::new(policy, init.chain(main).collect())
}

fn command(container: &core::Container) -> Result<Vec<String>, String> {
    let image = container.image.as_deref().unwrap_or_default();
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    image::command(image, &words(&container.command), &words(&container.args))
}

impl Worker {
    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Directory of the Pod in memory.
    fn private(&self) -> PathBuf {
        PathBuf::from(PODS).join(self.uid())
    }

    fn container(&self, slot: usize) -> Option<&core::Container> {
        let spec = self.pod.spec.as_ref()?;
        spec.init_containers.iter().flatten().chain(&spec.containers).nth(slot)
    }

    fn wake_at(&self) -> Instant {
        let unwritten = self.written.is_none().then_some(STATUS_RETRY);
        let due = self.lifecycle.wake_at().map(|at| {
            Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default() + Duration::from_millis(1)
        });
        // Without a deadline, any long time will do.
        Instant::now() + due.into_iter().chain(unwritten).min().unwrap_or(Duration::from_secs(3600))
    }

    async fn receive(&mut self, message: Message) -> Option<Event> {
        match message {
            Message::Lifecycle(event) => {
                match &event {
                    Event::Exited { slot, .. } => drop(self.running.remove(slot)),
                    Event::NotConnected(why) => self.warn("FailedCreatePodSandBox", why).await,
                    Event::NotDisconnected(why) => self.warn("FailedKillPod", why).await,
                    Event::NotStarted { message, .. } => self.warn("Failed", message).await,
                    _ => {}
                }
                Some(event)
            }
            Message::Connected(sandbox) => {
                self.sandbox = Some(*sandbox);
                Some(Event::Connected)
            }
            Message::Unhealthy(why) => {
                self.warn("Unhealthy", &why).await;
                None
            }
            Message::Running { slot, pid, monitor } => {
                let probes = self.probe(slot, pid);
                self.running.insert(slot, Running { pid, monitor, probes, killer: None });
                Some(Event::Started(slot))
            }
        }
    }

    async fn warn(&self, reason: &str, message: &str) {
        tracing::warn!("Pod {}/{}: {reason}: {message}", self.namespace(), self.name());
        self.context.event(&self.pod, "Warning", reason, message).await;
    }

    /// Applies an event, executes the effects, and writes the status. Returns whether the worker is done.
    async fn step(&mut self, event: Event) -> bool {
        for effect in self.lifecycle.step(Timestamp::now(), event) {
            match effect {
                Effect::Connect => self.connect(),
                Effect::Disconnect => self.disconnect(),
                Effect::Start(slot) => self.start(slot),
                Effect::Stop(slot) => self.stop(slot),
                Effect::Forget => {
                    self.forget().await;
                    return true;
                }
            }
        }
        self.publish();
        self.write_status().await;
        false
    }

    /// Publishes the state of the Pod for the kubelet's server.
    fn publish(&self) {
        let pid = |slot| self.running.get(&slot).map(|running| running.pid);
        let slots = self.lifecycle.slots.iter().enumerate();
        let view = PodView {
            uid: self.uid().to_owned(),
            containers: slots.map(|(index, slot)| ContainerView::new(slot, pid(index))).collect(),
            connected: self.lifecycle.net == Net::Up,
            netns: self.sandbox.as_ref().and_then(Sandbox::netns).map(ToOwned::to_owned),
        };
        self.context.pods.publish(self.namespace(), self.name(), view);
    }

    fn connect(&self) {
        let (messages, pod, context) = (self.messages.clone(), self.pod.clone(), self.context.clone());
        tokio::spawn(async move {
            let on_node = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
            let connected = if on_node {
                Ok(Sandbox::of_node(context.addresses()))
            } else {
                Sandbox::connect(&pod, context.checksums).await
            };
            let _ = messages.send(match connected {
                Ok(sandbox) => Message::Connected(Box::new(sandbox)),
                Err(error) => Message::Lifecycle(Event::NotConnected(format!("{error:#}"))),
            });
        });
    }

    fn disconnect(&self) {
        let (messages, sandbox) = (self.messages.clone(), self.sandbox.clone());
        tokio::spawn(async move {
            let outcome = match &sandbox {
                Some(sandbox) => sandbox.disconnect().await,
                None => Ok(()),
            };
            let _ = messages.send(Message::Lifecycle(match outcome {
                Ok(()) => Event::Disconnected,
                Err(error) => Event::NotDisconnected(format!("{error:#}")),
            }));
        });
    }

    fn start(&self, slot: usize) {
        let Some(container) = self.container(slot).cloned() else { return };
        let restarts = self.lifecycle.slots.get(slot).map_or(0, |slot| slot.restarts);
        let addresses = self.sandbox.as_ref().map(|sandbox| sandbox.addresses.clone()).unwrap_or_default();
        let start = run::Start {
            env: ContainerEnv {
                client: self.context.client.clone(),
                pod: self.pod.clone(),
                directory: self.private(),
                addresses,
                node_address: self.context.node.ipv4.to_string(),
                api: self.context.api(),
            },
            command: command(&container).unwrap_or_default(),
            layers: self.private().join("containers").join(&container.name).join(restarts.to_string()),
            directory: self.context.directory(self.namespace(), self.name()).join(&container.name),
            netns: self.sandbox.as_ref().and_then(Sandbox::netns).map(ToOwned::to_owned),
            restarts,
            container,
        };
        // `logs --previous` counts the logs, so each run has one. An error here occurs again at the start, and is reported there.
        let log = start.directory.join(format!("{restarts}.log"));
        let _ = std::fs::create_dir_all(&start.directory).and_then(|()| std::fs::File::create(log));
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let event = match start.begin().await {
                Ok(running) => {
                    let monitor = running.monitor;
                    let _ = messages.send(Message::Running { slot, pid: running.pid, monitor });
                    Event::Exited { slot, code: running.end().await }
                }
                Err((reason, error)) => {
                    Event::NotStarted { slot, reason: reason.to_owned(), message: format!("{error:#}") }
                }
            };
            let _ = messages.send(Message::Lifecycle(event));
        });
    }

    fn probe(&self, slot: usize, pid: u32) -> AbortHandle {
        let messages = self.messages.clone();
        let address = self.sandbox.as_ref().and_then(|sandbox| sandbox.addresses.first()?.parse().ok());
        let is_init = self.lifecycle.slots.get(slot).is_none_or(|slot| slot.is_init);
        let target = self.container(slot).filter(|_| !is_init).map(|container| probes::Target {
            address,
            pid,
            container: container.clone(),
        });
        let task = tokio::spawn(async move {
            let Some(target) = target else { return };
            probes::run(target, |finding| {
                // Fails only if the worker has ended.
                let _ = messages.send(match finding {
                    ProbeResult::Failure(why) => Message::Unhealthy(why),
                    ProbeResult::Verdict(probe, passed) => Message::Lifecycle(Event::Probed { slot, probe, passed }),
                });
            })
            .await;
        });
        task.abort_handle()
    }

    fn stop(&mut self, slot: usize) {
        let spec = self.pod.spec.as_ref();
        let usual = spec.and_then(|spec| spec.termination_grace_period_seconds);
        let grace = self.pod.metadata.deletion_grace_period_seconds.or(usual).unwrap_or(30);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let Some(running) = self.running.get_mut(&slot) else { return };
        running.probes.abort();
        let monitor = running.monitor;
        run::terminate(monitor);
        let killer = tokio::spawn(async move {
            tokio::time::sleep_until(Instant::now() + grace).await;
            run::kill(monitor);
        });
        running.killer = Some(killer.abort_handle());
    }

    /// Removes the files of the Pod, and deletes its object.
    async fn forget(&mut self) {
        let directory = self.context.directory(self.namespace(), self.name());
        for path in [self.private(), directory] {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!("cannot remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
        self.context.pods.remove(self.namespace(), self.name(), self.uid());
        let pods: Api<core::Pod> = Api::namespaced(self.context.client.clone(), self.namespace());
        let preconditions = Preconditions { uid: self.pod.metadata.uid.clone(), resource_version: None };
        let now = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
        let mut backoff = crate::node::daemon::Backoff::default();
        loop {
            match pods.delete(self.name(), &now).await {
                Ok(_) => return,
                // Already deleted, or replaced by a Pod of the same name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => tracing::warn!("Pod {}/{} cannot be deleted: {error}", self.namespace(), self.name()),
            }
            tokio::time::sleep_until(Instant::now() + backoff.next()).await;
        }
    }

    async fn write_status(&mut self) {
        let now = Timestamp::now();
        let addresses = self.sandbox.as_ref().map(|sandbox| sandbox.addresses.clone()).unwrap_or_default();
        let containers =
            self.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let conditions = self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let facts = Facts {
            node_addresses: self.context.addresses(),
            pod_addresses: if self.lifecycle.net == Net::Gone { Vec::new() } else { addresses },
            begun: self.begun,
            images: containers
                .map(|container| (container.name.clone(), container.image.clone().unwrap_or_default()))
                .collect(),
            others: conditions.filter(|condition| !MINE.contains(&condition.type_.as_str())).cloned().collect(),
        };
        let status = status(&self.lifecycle, &facts, &mut self.conditions, now);
        if self.written.as_ref() == Some(&status) {
            return;
        }
        match self.write(&status).await {
            Ok(()) => self.written = Some(status),
            Err(error) => {
                tracing::warn!("{error:#}");
                self.written = None;
            }
        }
    }

    async fn write(&self, status: &core::PodStatus) -> Result<()> {
        let pods: Api<core::Pod> = Api::namespaced(self.context.client.clone(), self.namespace());
        let patch = json!({"metadata": {"uid": self.uid()}, "status": status});
        match pods.patch_status(self.name(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            // The Pod was deleted or replaced, which the watch reports.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            result => result.map(drop).with_context(|| format!("cannot write the status of Pod {}", self.name())),
        }
    }
}
