//! Answers for clients of Services that have no endpoints, in the place of the endpoint that is not there.

use std::time::{Duration, Instant};

use node::refusal;
use openflow::action::Action;
use openflow::message::Message;
use openflow::packet::{PacketIn2, PacketOut};
use openflow::port::Port;
use ovs::switch::Switch;
use pipeline::USERDATA_NO_ENDPOINT;
use tokio::sync::mpsc;
use tracing::debug;

/// Answers at a time.
const BATCH: usize = 64;
/// Answers a second. A client whose packet gets none tries again, and a flood of them must not keep the agent from its work.
const RATE: u32 = 1000;

/// Answers for ever.
pub(crate) async fn answer(switch: Switch, mut packets: mpsc::Receiver<Box<PacketIn2>>) {
    let mut budget = Budget { left: RATE, since: Instant::now() };
    let mut batch = Vec::new();
    while packets.recv_many(&mut batch, BATCH).await > 0 {
        let answers: Vec<Message> =
            batch.drain(..).filter_map(|packet| answer_to(&packet)).filter(|_| budget.take()).collect();
        if answers.is_empty() {
            continue;
        }
        if let Err(error) = switch.apply(answers).await {
            debug!(%error, "clients of Services without endpoints were not told so");
        }
    }
}

/// Back where it came from, past the tables: nobody there knows the connection.
fn answer_to(packet: &PacketIn2) -> Option<Message> {
    let port = packet.in_port().filter(|_| packet.userdata.first() == Some(&USERDATA_NO_ENDPOINT))?;
    let frame = refusal(&packet.packet)?;
    Some(Message::PacketOut(PacketOut::new(Port::CONTROLLER, vec![Action::Output(port)], frame)))
}

struct Budget {
    left: u32,
    since: Instant,
}

impl Budget {
    fn take(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self { left: RATE, since: Instant::now() };
        }
        let granted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        granted
    }
}
