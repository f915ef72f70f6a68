//! A fair queue of packets to reject.
//!
//! Each port has a short queue, and ports take turns. A port that floods fills its own queue and loses the rest; a packet of
//! another port waits for at most one turn of each port. The total rate is limited, so that the agent has time for other work.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum queue length of one port; a client whose packet is lost retransmits it.
const PER_PORT: usize = 16;
/// Maximum number of ports with queued packets.
const PORTS: usize = 1024;
/// The cost of one rejection: a thousand per second are sent.
const EACH: Duration = Duration::from_millis(1);
/// Maximum number of rejections in a burst.
const BURST: u32 = 64;

/// Queued packets by ingress port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusals<P> {
    queues: BTreeMap<u32, VecDeque<P>>,
    /// Ports with queued packets, in the order of their turns.
    turns: VecDeque<u32>,
    /// Time until which the budget is spent; a burst may spend it in advance.
    spent: Duration,
}

/// Why there is no packet to reject now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// The queue is empty.
    Empty,
    /// The budget is spent until this time.
    Until(Duration),
}

impl<P> Default for Refusals<P> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), turns: VecDeque::new(), spent: Duration::ZERO }
    }
}

impl<P> Refusals<P> {
    /// Queues a packet of a port; returns whether there was room.
    pub fn push(&mut self, port: u32, packet: P) -> bool {
        if !self.queues.contains_key(&port) {
            if self.queues.len() >= PORTS {
                return false;
            }
            self.turns.push_back(port);
        }
        let queue = self.queues.entry(port).or_default();
        let has_room = queue.len() < PER_PORT;
        if has_room {
            queue.push_back(packet);
        }
        has_room
    }

    /// The next packet to reject and its port. `now` is the time since any fixed moment.
    pub fn next(&mut self, now: Duration) -> Result<(u32, P), NotNow> {
        let port = self.turns.front().copied().ok_or(NotNow::Empty)?;
        let spent = self.spent.max(now.saturating_sub(EACH * BURST));
        if spent > now {
            return Err(NotNow::Until(spent));
        }
        self.turns.pop_front();
        let queue = self.queues.get_mut(&port).ok_or(NotNow::Empty)?;
        let packet = queue.pop_front().ok_or(NotNow::Empty)?;
        if queue.is_empty() {
            self.queues.remove(&port);
        } else {
            self.turns.push_back(port);
        }
        self.spent = spent + EACH;
        Ok((port, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All packets rejected between two moments, polled every half millisecond.
    fn refused(waiting: &mut Refusals<u32>, from: u64, to: u64) -> Vec<u32> {
        let moments = (from * 2..to * 2).map(|half| Duration::from_micros(half * 500));
        moments
            .flat_map(|now| std::iter::from_fn(|| waiting.next(now).ok()).collect::<Vec<_>>())
            .map(|(port, _)| port)
            .collect()
    }

    #[test]
    fn a_port_that_floods_delays_its_own_packets_and_no_others() {
        let mut waiting = Refusals::default();
        let mut worst = 0;
        for millisecond in 0..1000 {
            // Port 1 sends ten thousand packets per second, port 2 sends one now and then.
            (0..10).for_each(|_| _ = waiting.push(1, 1));
            if millisecond % 50 == 49 {
                assert!(waiting.push(2, 2), "there is room for it");
                let before = refused(&mut waiting, millisecond, millisecond + 4);
                worst = worst.max(before.iter().position(|port| *port == 2).unwrap());
            } else {
                let _ = refused(&mut waiting, millisecond, millisecond + 1);
            }
        }
        assert!(worst <= 1, "{worst} packets of the flood came first");
    }

    #[test]
    fn a_thousand_a_second_are_refused_from_any_ports_and_a_burst_more() {
        let mut waiting = Refusals::default();
        let fill = |waiting: &mut Refusals<u32>| {
            for port in 0..200 {
                (0..PER_PORT).for_each(|_| _ = waiting.push(port, port));
            }
        };
        fill(&mut waiting);
        assert_eq!(std::iter::from_fn(|| waiting.next(Duration::from_secs(9)).ok()).count(), 65);
        assert_eq!(
            waiting.next(Duration::from_secs(9)),
            Err(NotNow::Until(Duration::from_secs(9) + Duration::from_millis(1)))
        );
        let mut count = 0;
        for second in 10..20 {
            fill(&mut waiting);
            count += refused(&mut waiting, second * 1000, second * 1000 + 1000).len();
        }
        assert!((9_900..10_200).contains(&count), "{count}");
    }

    #[test]
    fn the_queue_is_bounded_and_rejected_packets_free_their_places() {
        let mut waiting = Refusals::default();
        let taken = (0..2000).flat_map(|port| [port; 20]).filter(|port| waiting.push(*port, *port)).count();
        assert_eq!(taken, PORTS * PER_PORT);
        assert!(!waiting.push(2000, 2000));
        let all = refused(&mut waiting, 0, 20_000);
        assert_eq!((all.len(), waiting.next(Duration::from_secs(99))), (taken, Err(NotNow::Empty)));
        assert!(waiting.push(2000, 2000));
    }
}
