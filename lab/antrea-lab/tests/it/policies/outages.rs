//! Agents and controllers are killed while policies change: allowed connections go on, denied packets never pass.
//!
//! A few times in `make test`; `make lab-long` sets `POLICY_KILLS` for many.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::until;
use types::meta::Protocol;

use super::probes::reached;
use crate::agent::network;
use crate::endurance::{Stops, kill as kill_in, times};
use crate::lab::{Kube, Lab, TIMEOUT};
use crate::streams::{Noticed, Stream};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// Interval and minimum number of datagrams to a port that policies deny.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);
const MIN_PROBES: usize = 500;

/// Sends datagrams that policies deny, and counts those that arrive.
pub(crate) struct DeniedSender {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl DeniedSender {
    pub(crate) fn start(from: &Netns, to: &Netns, address: &str) -> Self {
        // Each sender has a receiver of its own, which sees its packets only.
        let inside = to.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        let port = inside.local_addr().unwrap().port();
        let outside = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        outside.connect((address, port)).unwrap();
        inside.set_read_timeout(Some(PROBE_INTERVAL * 20)).unwrap();
        outside.set_read_timeout(Some(PROBE_INTERVAL)).unwrap();
        let (stop, sent, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let (stops, hears): (_, Arc<AtomicUsize>) = (Arc::clone(&stop), Arc::clone(&received));
        let listens = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                if inside.recv(&mut [0; 8]).is_ok() {
                    hears.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let (stops, counts) = (Arc::clone(&stop), Arc::clone(&sent));
        let sender = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                counts.fetch_add(usize::from(outside.send(b"probe").is_ok()), Ordering::Relaxed);
                // No answer is expected: the timeout is the interval.
                let _ = outside.recv(&mut [0; 8]);
            }
        });
        Self { stop, sent, received, threads: vec![listens, sender] }
    }

    pub(crate) fn sender(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    /// How often it was sent, and how often that was received.
    pub(crate) fn end(mut self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        (self.sender(), self.received())
    }
}

impl Drop for DeniedSender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn labelled(node: &str, app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}]}})
}

fn allow(to: &str, from: &str) -> Value {
    let peer = json!({"podSelector": {"matchLabels": {"app": from}}});
    json!({"spec": {"podSelector": {"matchLabels": {"app": to}}, "policyTypes": ["Ingress"], "ingress": [{"from": [peer]}]}})
}

fn set_policy(api: &Kube, name: &str, policy: Value) {
    api.put("default", "networking.k8s.io/v1", "NetworkPolicy", name, policy);
}

/// Whether a Node's agent is connected to a controller.
pub(crate) fn follows(lab: &Lab, node: &str) -> bool {
    let ask = "curl -s -H \"Authorization: Bearer $(cat /var/run/antrea/loopback-client-token)\" \
               http://127.0.0.1:10350/v1/agentinfo";
    let answer = lab.node(node, &["sh", "-c", ask]).unwrap_or_default();
    serde_json::from_str(&answer).is_ok_and(|state: Value| state["controller"].is_string())
}

/// Ends when every agent follows a controller.
fn until_followed(lab: &Lab) {
    for node in NODES {
        let follows = || follows(lab, node).then_some(());
        until(format_args!("the agent of {node} follows a controller"), TIMEOUT, follows).unwrap();
    }
}

/// Policies about the same Pods come, change and go.
fn churn(lab: &Lab, stop: &AtomicBool) -> usize {
    let (api, mut steps) = (lab.api(), 0);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("churn-{}", steps % 3);
        set_policy(&api, &name, allow("web", if steps % 2 == 0 { "missing" } else { "client" }));
        if steps % 5 == 4 {
            api.remove("default", "networking.k8s.io/v1", "NetworkPolicy", &name);
        }
        steps += 1;
        // As fast as the API is; agents follow as they can.
        std::thread::yield_now();
    }
    steps
}

#[test]
fn killed_agents_and_controllers_neither_allow_denied_nor_drop_allowed_packets() {
    let kills = times("POLICY_KILLS", 4);
    let (lab, api) = network("outages", 2, &["--controllers", "2"]);
    set_policy(&api, "web", allow("web", "client"));
    let pods = [("web", "node-1"), ("client", "node-2"), ("stranger", "node-2"), ("near", "node-1")];
    let ready = pods.map(|(name, node)| {
        api.put("default", "v1", "Pod", name, labelled(node, name));
        (node, name)
    });
    let [web, client, stranger, near] = ready.map(|(node, name)| {
        let address = api.until_ready(name).remove(0);
        (lab.netns(node, name), address)
    });
    let target = (web.1.parse().unwrap(), Protocol::Tcp, 7);
    let server = web.0.run(|| std::net::TcpListener::bind("0.0.0.0:7")).unwrap().unwrap();
    until("the client is let in", TIMEOUT, || reached(&client.0, &[target]).contains(&target).then_some(())).unwrap();
    assert!(reached(&stranger.0, &[target]).is_empty(), "and the stranger is not");
    drop(server);

    let streams = [
        Stream::udp("allowed", &client.0, &web.0, &web.1),
        Stream::tcp("allowed", &client.0, &web.0, &web.1),
        Stream::udp("without policies", &near.0, &client.0, &client.1),
    ];
    let knocker = DeniedSender::start(&stranger.0, &web.0, &web.1);
    let stop = AtomicBool::new(false);
    let steps = std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let churn = scope.spawn(|| churn(&lab, &stop));
        for number in 0..kills {
            until_followed(&lab);
            match number % 3 {
                0 => drop(kill_in(&lab, NODES[number / 3 % 2], "antrea-agent")),
                1 => {
                    let running =
                        until("two controllers", TIMEOUT, || Some(lab.controllers()).filter(|all| all.len() == 2));
                    kill(Pid::from_raw(running.unwrap()[number / 3 % 2]), Signal::SIGKILL).unwrap();
                }
                _ => {
                    for pid in lab.controllers() {
                        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
                    }
                    kill_in(&lab, NODES[number / 3 % 2], "antrea-agent");
                }
            }
        }
        until_followed(&lab);
        until("enough sender", TIMEOUT, || (knocker.sender() >= MIN_PROBES).then_some(())).unwrap();
        drop(stops);
        churn.join().unwrap()
    });
    let (sender, received) = knocker.end();
    println!(
        "{kills} kills, {steps} changes of policies; {sender} packets that are not allowed, {received} of them received"
    );
    assert_eq!(received, 0, "of {sender}");
    for stream in streams {
        let Noticed { what, sent, lost, longest, outcome } = stream.end();
        println!("{what}: {sent} messages, {} lost, at most {longest:.0?} between two echoes", lost.len());
        assert_eq!((lost, outcome), (Vec::new(), Ok(())), "{what}");
    }

    // One of two controllers dies, and a new policy is in force all the same.
    let running = until("two controllers", TIMEOUT, || Some(lab.controllers()).filter(|all| all.len() == 2)).unwrap();
    let killed = Instant::now();
    kill(Pid::from_raw(running[0]), Signal::SIGKILL).unwrap();
    set_policy(
        &api,
        "client",
        json!({"spec": {"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Ingress"]}}),
    );
    let _server = client.0.run(|| std::net::TcpListener::bind("0.0.0.0:7")).unwrap().unwrap();
    let target = (client.1.parse().unwrap(), Protocol::Tcp, 7);
    until("the new policy is enforced", TIMEOUT, || reached(&near.0, &[target]).is_empty().then_some(())).unwrap();
    println!("a policy made as a controller died was seen enforced after {:.1?}", killed.elapsed());
}
