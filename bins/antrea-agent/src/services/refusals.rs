//! Refuses connections to Services without endpoints: sends TCP resets and ICMP errors to clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use node::{NotNow, Refusals, refusal};
use openflow::action::Action;
use openflow::message::Message;
use openflow::packet::{PacketIn2, PacketOut};
use openflow::port::Port;
use ovs::switch::{PacketSink, Switch};
use pipeline::USERDATA_NO_ENDPOINT;
use tokio::sync::Notify;
use tracing::debug;

/// Maximum number of refusals per request to the switch.
const BATCH: usize = 64;

/// Packets that wait for a refusal.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Refusals<Vec<u8>>>,
    arrived: Notify,
}

impl Inbox {
    /// Receives packets from the switch. Packets of a port that exceeds its share are dropped; clients retransmit.
    pub(crate) fn sink(self: &Arc<Self>) -> PacketSink {
        let inbox = Arc::clone(self);
        PacketSink::new(move |packet| inbox.take_in(*packet))
    }

    fn take_in(&self, packet: PacketIn2) {
        let port = packet.in_port().filter(|_| packet.userdata.first() == Some(&USERDATA_NO_ENDPOINT));
        if let Some(port) = port
            && self.waiting().push(port.0, packet.packet)
        {
            self.arrived.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Refusals<Vec<u8>>> {
        // The queues stay consistent even if a thread panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends refusals until the agent stops.
pub(crate) async fn answer(switch: Switch, inbox: Arc<Inbox>) {
    let started = Instant::now();
    loop {
        let mut answers = Vec::new();
        let not_now = loop {
            match inbox.waiting().next(started.elapsed()) {
                Ok((port, frame)) => answers.extend(answer_to(Port(port), &frame)),
                Err(not_now) => break Some(not_now),
            }
            if answers.len() >= BATCH {
                break None;
            }
        };
        if !answers.is_empty()
            && let Err(error) = switch.apply(answers).await
        {
            debug!(%error, "cannot send refusals of Services without endpoints");
        }
        match not_now {
            Some(NotNow::Empty) => inbox.arrived.notified().await,
            Some(NotNow::Until(moment)) => tokio::time::sleep_until((started + moment).into()).await,
            None => {}
        }
    }
}

/// The refusal, sent to the ingress port directly: the tables would not recognise it, since the connection is not tracked.
fn answer_to(port: Port, frame: &[u8]) -> Option<Message> {
    let frame = refusal(frame)?;
    Some(Message::PacketOut(PacketOut::new(Port::CONTROLLER, vec![Action::Output(port)], frame)))
}
