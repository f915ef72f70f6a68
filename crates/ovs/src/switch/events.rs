//! What the switch says unasked, in order.

use openflow::control::Features;
use openflow::message::Message;
use tokio::sync::mpsc;
use tracing::warn;

/// Something that happened without being asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection was made; the switch may have been restarted and may hold anything.
    Up {
        /// Which connection, from 1.
        epoch: u64,
        /// What the switch said of itself.
        features: Features,
    },
    /// The connection ended.
    Down {
        /// Why.
        reason: String,
    },
    /// The switch sent a message that answers nothing.
    Message(Message),
    /// Here the reader was too slow, and events were lost: what it derives from them has to be asked for again.
    Missed,
}

/// The stream of events.
#[derive(Debug)]
pub struct Events {
    queue: mpsc::Receiver<Event>,
}

impl Events {
    /// The next event; `None` once the client has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.queue.recv().await
    }
}

/// The sending side, which never waits.
pub(super) struct EventSender {
    queue: mpsc::Sender<Event>,
    lost: u64,
}

/// A stream on which at most `backlog` events wait.
pub(super) fn channel(backlog: usize) -> (EventSender, Events) {
    // One place is kept for the mark that says that events were lost.
    let (sender, receiver) = mpsc::channel(backlog.max(1) + 1);
    (EventSender { queue: sender, lost: 0 }, Events { queue: receiver })
}

impl EventSender {
    pub(super) fn send(&mut self, event: Event) {
        if self.queue.capacity() > 1 {
            if self.lost > 0 {
                warn!(lost = self.lost, "the reader of OpenFlow events is back");
                self.lost = 0;
            }
            // Fails only if nobody reads, and then nobody misses it.
            let _ = self.queue.try_send(event);
            return;
        }
        if self.lost == 0 {
            warn!("events of the switch are lost, as nobody reads them");
            let _ = self.queue.try_send(Event::Missed);
        }
        self.lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u8) -> Event {
        Event::Message(Message::EchoReply(vec![n]))
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_where_it_missed_something() {
        let (mut sender, mut events) = channel(2);
        for n in 0..5 {
            sender.send(message(n));
        }
        assert_eq!(events.next().await, Some(message(0)));
        sender.send(message(5));
        for expected in [message(1), Event::Missed] {
            assert_eq!(events.next().await, Some(expected));
        }
        sender.send(message(6));
        assert_eq!(events.next().await, Some(message(6)));
        drop(sender);
        assert_eq!(events.next().await, None);
    }
}
