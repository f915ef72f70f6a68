//! An attack: attacker, action, and the effect that must not occur.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::field::{Field, Mode};

/// The kind of attacker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attacker {
    /// A Pod with no rights beyond those of every Pod.
    Pod,
    /// A Pod that sends arbitrary frames (NET_RAW, NET_ADMIN).
    RawPod,
    /// A host on the Nodes' network.
    Neighbour,
    /// A host behind the router.
    Outside,
    /// A user with the right to create Services or EndpointSlices.
    ServiceCreator,
    /// A user with the right to create and change policies in a namespace.
    NamespaceEditor,
    /// A user with the right to create Nodes.
    NodeRegistrar,
    /// A client with a stolen token of an agent.
    AgentToken,
    /// A process on a Node that calls the CNI plugin, or changes files and databases.
    NodeProcess,
}

impl fmt::Display for Attacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pod => "Pod",
            Self::RawPod => "Pod, NET_RAW",
            Self::Neighbour => "Node network",
            Self::Outside => "outside",
            Self::ServiceCreator => "Service creator",
            Self::NamespaceEditor => "namespace editor",
            Self::NodeRegistrar => "Node registrar",
            Self::AgentToken => "agent token",
            Self::NodeProcess => "Node process",
        })
    }
}

/// One thing that is sent.
pub(super) enum Shot {
    /// A frame of a Pod.
    Pod(&'static str, Vec<u8>),
    /// A datagram of a Pod, by its kernel.
    PodUdp(&'static str, SocketAddr, Vec<u8>),
    /// A frame of the host on the Nodes' network.
    Neighbour(Vec<u8>),
    /// A frame of the host outside.
    Outside(Vec<u8>),
}

/// How an attack is executed, and how its effect is detected.
pub(super) enum Deed {
    /// These carry a mark, which no isolated Pod may get.
    Shots(fn(&Field, &[u8]) -> Vec<Shot>),
    /// Executes the attack and detects its effect itself. The number is the scale: 1 in the short version.
    Steps(fn(&Field, usize) -> Effect),
}

/// The effect of an attack.
#[derive(Default)]
pub(super) struct Effect {
    /// Number of frames, requests or calls.
    pub(super) sent: usize,
    /// Number of forbidden effects.
    pub(super) forbidden: usize,
    /// Description of the effects, and other figures.
    pub(super) note: String,
}

impl Effect {
    pub(super) fn new(sent: usize, forbidden: usize, note: impl Into<String>) -> Self {
        Self { sent, forbidden, note: note.into() }
    }
}

pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) attacker: Attacker,
    pub(super) deed: Deed,
    /// Whether `make test` runs it too.
    pub(super) short: bool,
    /// Modes in which the attack has an effect, as docs/security.md says.
    pub(super) undefended: &'static [Mode],
}

impl Attack {
    pub(super) const fn shots(name: &'static str, attacker: Attacker, shots: fn(&Field, &[u8]) -> Vec<Shot>) -> Self {
        Self { name, attacker, deed: Deed::Shots(shots), short: true, undefended: &[] }
    }

    pub(super) const fn steps(name: &'static str, attacker: Attacker, steps: fn(&Field, usize) -> Effect) -> Self {
        Self { name, attacker, deed: Deed::Steps(steps), short: true, undefended: &[] }
    }

    /// Takes too long for `make test`.
    pub(super) const fn long(self) -> Self {
        Self { short: false, ..self }
    }

    pub(super) const fn undefended(self, undefended: &'static [Mode]) -> Self {
        Self { undefended, ..self }
    }

    /// Executes the attack. Returns its time.
    pub(super) fn run(&self, field: &Field, number: usize, size: usize) -> (Effect, Instant, Instant) {
        field.drain();
        let begun = Instant::now();
        let effect = catch_unwind(AssertUnwindSafe(|| match self.deed {
            Deed::Shots(shots) => {
                let mark = format!("red-team{number:04}");
                let shots = shots(field, mark.as_bytes());
                shots.iter().for_each(|shot| field.shoot(shot));
                let found = field.marked(field.victims(), mark.as_bytes());
                Effect::new(shots.len(), found.len(), names(&found))
            }
            Deed::Steps(steps) => steps(field, size),
        }));
        // A failed attempt becomes a row of the table, and the next attack runs.
        let effect = effect.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map_or("see above", String::as_str);
            Effect::new(0, 1, format!("panic: {}", text.lines().next().unwrap_or_default()))
        });
        (effect, begun, Instant::now())
    }
}

/// Each of these once.
fn names(found: &[&str]) -> String {
    let mut names = found.to_vec();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("delivered to {}", names.join(", ")) }
}

impl Field {
    pub(super) fn shoot(&self, shot: &Shot) {
        let udp = |to: &SocketAddr, data: &[u8]| {
            let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            // A refusal by the own kernel is as good as one by the network.
            let _ = socket.send_to(data, to);
        };
        match shot {
            Shot::Pod(name, frame) => drop(self.pod(name).tap.send(frame)),
            Shot::PodUdp(name, to, data) => self.pod(name).netns.run(|| udp(to, data)).unwrap(),
            Shot::Neighbour(frame) => drop(self.neighbour_tap.send(frame)),
            Shot::Outside(frame) => drop(self.outside_tap.send(frame)),
        }
    }
}
