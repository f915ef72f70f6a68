//! One connection to the server, without its socket: which messages to send, and how to handle those received.

use std::collections::BTreeMap;
use std::time::Duration;

use ovsdb::frame::FrameError;
use ovsdb::monitor::{MONITOR_COND_SINCE, MonitorNotice, MonitorReply};
use ovsdb::replica::{Change, Replica, ReplicaError};
use ovsdb::rpc::{Message, Request, Response};
use ovsdb::value::DecodeError;
use serde_json::Value;
use thiserror::Error;
use tracing::debug;

use super::call::{Call, TransactError};

/// Transactions that may wait for their reply.
const MAX_IN_FLIGHT: usize = 64;

/// Bytes that may wait to be written before calls and messages are no longer accepted.
const MAX_OUTGOING: usize = 1 << 20;

/// Name of the monitor; a connection has one.
const MONITOR: &str = "antrea";

/// Why a connection ended.
#[derive(Debug, Error)]
pub(super) enum Disconnect {
    #[error("cannot connect to {0}: {1}")]
    Connect(String, #[source] std::io::Error),
    #[error("connection to ovsdb-server failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("ovsdb-server closed the connection")]
    Closed,
    #[error("ovsdb-server sent nothing for {0:?}")]
    Silent(Duration),
    #[error("ovsdb-server rejected the monitor request: {0}")]
    MonitorRefused(Value),
    #[error("ovsdb-server cancelled the monitor")]
    MonitorCancelled,
    #[error("ovsdb-server sent invalid JSON: {0}")]
    Frame(#[from] FrameError),
    #[error("ovsdb-server sent an invalid message: {0}")]
    Decode(#[from] DecodeError),
    #[error("ovsdb-server sent an update that contradicts the replica: {0}")]
    Replica(#[from] ReplicaError),
}

#[derive(Debug)]
enum Phase {
    /// The reply to this request has the initial rows.
    Monitoring(u64),
    Following,
}

#[derive(Debug)]
struct InFlight {
    call: Call,
    /// The total of written bytes after which the server has the whole request.
    end: u64,
}

#[derive(Debug)]
pub(super) struct Session {
    database: String,
    phase: Phase,
    next_id: u64,
    calls: BTreeMap<u64, InFlight>,
    outgoing: Vec<u8>,
    written: u64,
    probed: bool,
}

impl Session {
    /// Starts with a request for all changes since the replica's last transaction.
    pub(super) fn new(database: &str, replica: &Replica) -> Self {
        let mut session = Self {
            database: database.to_owned(),
            phase: Phase::Monitoring(0),
            next_id: 0,
            calls: BTreeMap::new(),
            outgoing: vec![],
            written: 0,
            probed: false,
        };
        let params = replica.monitored().encode(database, &MONITOR.into(), replica.last_transaction());
        session.request(MONITOR_COND_SINCE, params);
        session
    }

    /// The bytes to write next.
    pub(super) fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// The first `n` bytes of [`Session::outgoing`] were written.
    pub(super) fn wrote(&mut self, n: usize) {
        self.written += n as u64;
        self.outgoing.drain(..n.min(self.outgoing.len()));
    }

    /// Whether there is room for the replies to received messages.
    pub(super) fn may_receive(&self) -> bool {
        self.outgoing.len() < MAX_OUTGOING
    }

    /// Whether there is room for one more call. None is sent before the initial rows arrived.
    pub(super) fn may_submit(&self) -> bool {
        matches!(self.phase, Phase::Following) && self.calls.len() < MAX_IN_FLIGHT && self.may_receive()
    }

    /// Sends a call, unless its caller has given up.
    pub(super) fn submit(&mut self, call: Call) {
        if call.claim() {
            let params = call.transaction.encode(&self.database);
            let id = self.request("transact", params);
            let end = self.written + self.outgoing.len() as u64;
            self.calls.insert(id, InFlight { call, end });
        }
    }

    /// Data was received, so the server is alive.
    pub(super) fn mark_alive(&mut self) {
        self.probed = false;
    }

    /// Nothing was received for `interval`: sends a probe, or fails if one was sent before.
    pub(super) fn check_alive(&mut self, interval: Duration) -> Result<(), Disconnect> {
        if self.probed {
            return Err(Disconnect::Silent(interval * 2));
        }
        self.probed = true;
        self.request("echo", vec![]);
        Ok(())
    }

    /// Handles a message; returns the changes of the replica if the message has rows.
    pub(super) fn receive(&mut self, message: Value, replica: &mut Replica) -> Result<Option<Vec<Change>>, Disconnect> {
        match (Message::decode(message)?, &self.phase) {
            (Message::Response(response), Phase::Monitoring(id)) if response.id == *id => {
                let reply = MonitorReply::decode(&response.outcome.map_err(Disconnect::MonitorRefused)?)?;
                self.phase = Phase::Following;
                Ok(Some(replica.apply_reply(reply)?))
            }
            (Message::Response(response), _) => {
                self.answer(response);
                Ok(None)
            }
            (Message::Notification(notification), _) => match MonitorNotice::decode(&notification)? {
                Some(MonitorNotice::Update(update)) => Ok(Some(replica.apply_update(update)?)),
                Some(MonitorNotice::Cancelled { .. }) => Err(Disconnect::MonitorCancelled),
                None => {
                    debug!(method = notification.method, "ignored an unknown notification of ovsdb-server");
                    Ok(None)
                }
            },
            (Message::Request(request), _) => {
                self.send(&request.echo_reply().unwrap_or_else(|| request.refuse()).into());
                Ok(None)
            }
        }
    }

    /// Fails all calls in flight, each with whether its outcome is unknown.
    pub(super) fn end(self, lost: &Disconnect) {
        for in_flight in self.calls.into_values() {
            let error = if in_flight.end <= self.written {
                TransactError::OutcomeUnknown(lost.to_string())
            } else {
                // The server ignores a partial request.
                TransactError::NotSent(lost.to_string())
            };
            in_flight.call.finish(Err(error));
        }
    }

    fn answer(&mut self, response: Response) {
        // Other responses answer a probe.
        if let Some(in_flight) = response.id.as_u64().and_then(|id| self.calls.remove(&id)) {
            let outcome = in_flight.call.transaction.decode_reply(response.outcome);
            in_flight.call.finish(outcome.map_err(TransactError::from));
        }
    }

    fn request(&mut self, method: &str, params: Vec<Value>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&Request::new(id, method, params).into());
        id
    }

    fn send(&mut self, message: &Message) {
        self.outgoing.extend(message.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::transaction::{OperationResult, Transaction};
    use ovsdb::value::Uuid;
    use serde_json::json;

    use super::*;

    fn replica() -> Replica {
        Replica::new(ovsdb::tables::all())
    }

    fn flush(session: &mut Session) -> String {
        let text = String::from_utf8(session.outgoing().to_vec()).unwrap();
        session.wrote(text.len());
        text
    }

    fn following() -> Session {
        let mut session = Session::new("db", &replica());
        assert!(!session.may_submit());
        assert!(flush(&mut session).contains("monitor_cond_since"));
        let reply = json!({"id": 0, "result": [false, Uuid::NIL.to_string(), {}], "error": null});
        assert_eq!(session.receive(reply, &mut replica()).unwrap(), Some(vec![]));
        assert!(session.may_submit());
        session
    }

    fn call() -> (Call, tokio::sync::oneshot::Receiver<super::super::call::Outcome>) {
        let mut transaction = Transaction::new();
        transaction.comment("x");
        let (call, _, answer) = Call::new(transaction);
        (call, answer)
    }

    #[test]
    fn replies_reach_their_call_in_any_order() {
        let mut session = following();
        let ((first, mut one), (second, mut two)) = (call(), call());
        session.submit(first);
        session.submit(second);
        let sent = flush(&mut session);
        assert!(sent.contains(r#""id":1"#) && sent.contains(r#""id":2"#), "{sent}");
        session.receive(json!({"id": 2, "error": "no", "result": null}), &mut replica()).unwrap();
        session.receive(json!({"id": 7, "error": null, "result": []}), &mut replica()).unwrap();
        assert!(matches!(two.try_recv().unwrap(), Err(TransactError::Refused(_))));
        session.receive(json!({"id": 1, "error": null, "result": [{}]}), &mut replica()).unwrap();
        assert_eq!(one.try_recv().unwrap().unwrap(), [OperationResult::Done]);
    }

    #[test]
    fn the_outcome_is_unknown_only_if_the_whole_request_was_written() {
        for (beyond, first_unknown) in [(-1, false), (0, true), (3, true)] {
            let mut session = following();
            let ((first, mut one), (second, mut two)) = (call(), call());
            session.submit(first);
            let whole = session.outgoing().len();
            session.submit(second);
            session.wrote(whole.saturating_add_signed(beyond));
            session.end(&Disconnect::Closed);
            assert_eq!(one.try_recv().unwrap().unwrap_err().is_outcome_unknown(), first_unknown, "{beyond}");
            assert!(matches!(two.try_recv().unwrap().unwrap_err(), TransactError::NotSent(_)));
        }
    }

    #[test]
    fn an_abandoned_call_is_not_sent() {
        let mut session = following();
        let (abandoned, answer) = call();
        drop(answer);
        session.submit(abandoned);
        assert_eq!(flush(&mut session), "");
    }

    #[test]
    fn calls_in_flight_are_bounded() {
        let mut session = following();
        let mut answers = vec![];
        while session.may_submit() {
            let (call, answer) = call();
            session.submit(call);
            answers.push(answer);
        }
        assert_eq!(answers.len(), MAX_IN_FLIGHT);
    }

    #[test]
    fn probes_are_answered_and_a_silent_server_is_disconnected() {
        let mut session = following();
        session.receive(json!({"id": "echo", "method": "echo", "params": []}), &mut replica()).unwrap();
        assert_eq!(flush(&mut session), r#"{"error":null,"id":"echo","result":[]}"#);
        session.receive(json!({"id": 9, "method": "other", "params": []}), &mut replica()).unwrap();
        assert!(flush(&mut session).contains("unknown method"));
        let interval = Duration::from_secs(1);
        session.check_alive(interval).unwrap();
        assert!(flush(&mut session).contains("echo"));
        session.mark_alive();
        session.check_alive(interval).unwrap();
        assert!(matches!(session.check_alive(interval), Err(Disconnect::Silent(_))));
    }

    #[test]
    fn the_connection_ends_without_its_monitor() {
        let cancelled = json!({"id": null, "method": "monitor_canceled", "params": ["antrea"]});
        assert!(matches!(following().receive(cancelled, &mut replica()), Err(Disconnect::MonitorCancelled)));
        let refused = json!({"id": 0, "result": null, "error": {"error": "unknown database"}});
        let outcome = Session::new("db", &replica()).receive(refused, &mut replica());
        assert!(matches!(outcome, Err(Disconnect::MonitorRefused(_))));
    }
}
