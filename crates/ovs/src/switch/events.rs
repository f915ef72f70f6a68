//! Asynchronous messages of the switch and changes of the connection, in order.

use openflow::control::Features;
use openflow::message::Message;
use tokio::sync::mpsc;
use tracing::warn;

/// A change of the connection, or an asynchronous message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Connected; the switch may have been restarted, so its flows are unknown.
    Up {
        /// Number of the connection, from 1.
        epoch: u64,
        /// The switch's features reply.
        features: Features,
    },
    /// The connection was lost.
    Down {
        /// The error that ended it.
        reason: String,
    },
    /// The switch sent a message that is no reply.
    Message(Message),
    /// The reader was too slow and missed events here: state that it derives from events has to be requested again.
    Missed,
}

/// The stream of events, bounded.
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

/// A stream with room for `backlog` events.
pub(super) fn channel(backlog: usize) -> (EventSender, Events) {
    // One place is reserved for `Event::Missed`.
    let (sender, receiver) = mpsc::channel(backlog.max(1) + 1);
    (EventSender { queue: sender, lost: 0 }, Events { queue: receiver })
}

impl EventSender {
    pub(super) fn send(&mut self, event: Event) {
        if self.queue.capacity() > 1 {
            if self.lost > 0 {
                warn!(lost = self.lost, "OpenFlow events are read again");
                self.lost = 0;
            }
            // Fails only without a reader.
            let _ = self.queue.try_send(event);
            return;
        }
        if self.lost == 0 {
            warn!("dropping OpenFlow events: the reader is too slow");
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
    async fn a_slow_reader_gets_an_event_where_it_missed_others() {
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
