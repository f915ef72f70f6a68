//! Requests in flight, by xid.

use std::collections::BTreeMap;

use openflow::header::TooLong;
use openflow::message::Message;
use openflow::multipart::{MultipartRequest, ReplyBody};
use openflow::wire::DecodeError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::RequestError;

/// The channel to the caller.
pub(super) type Reply = oneshot::Sender<Result<Answer, RequestError>>;

/// A request of a caller.
#[derive(Debug)]
pub(super) enum Call {
    /// A message with a single reply.
    Request { message: Message, reply: Reply },
    /// Messages without replies, followed by a barrier.
    Apply { messages: Vec<Message>, reply: Reply },
    /// A request with a reply in parts.
    Multipart { request: MultipartRequest, reply: Reply },
}

impl Call {
    /// Ends the call with an error.
    pub(super) fn fail(self, error: RequestError) {
        let (Call::Request { reply, .. } | Call::Apply { reply, .. } | Call::Multipart { reply, .. }) = self;
        // The caller may have given up.
        let _ = reply.send(Err(error));
    }
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// The reply to a request.
    Message(Message),
    /// All parts of a multipart reply.
    Parts(Vec<ReplyBody>),
    /// The switch has processed the messages.
    Done,
}

/// A call in flight.
#[derive(Debug)]
struct InFlight {
    reply: Reply,
    deadline: Instant,
    /// The first xid of the call; the last is the key.
    first: u32,
    /// Whether its last message is a barrier that was added to wait for the others.
    barrier: bool,
    /// The first message that was rejected.
    refused: Option<RequestError>,
    parts: Vec<ReplyBody>,
}

/// All calls in flight, by the xid of their last message: a call's xids are consecutive.
#[derive(Debug, Default)]
pub(super) struct Pending {
    calls: BTreeMap<u32, InFlight>,
    next_xid: u32,
}

impl Pending {
    /// Writes a call's messages to `out`; the call fails if there is no reply before `deadline`.
    pub(super) fn start(&mut self, call: Call, deadline: Instant, out: &mut Vec<u8>) {
        let mark = out.len();
        let barrier = matches!(call, Call::Apply { .. });
        let (messages, reply) = match call {
            Call::Request { message, reply } => (vec![message], reply),
            Call::Multipart { request, reply } => (vec![Message::MultipartRequest(request)], reply),
            Call::Apply { mut messages, reply } => {
                messages.push(Message::BarrierRequest);
                (messages, reply)
            }
        };
        // A call's xids are consecutive, also after a wrap-around.
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        self.next_xid = if self.next_xid.checked_add(count).is_none() { 0 } else { self.next_xid };
        let first = self.next_xid + 1;
        let mut last = first;
        for message in &messages {
            last = self.take_xid();
            if let Err(error) = message.encode(last, out) {
                out.truncate(mark);
                let _ = reply.send(Err(error.into()));
                return;
            }
        }
        self.calls.insert(last, InFlight { reply, deadline, first, barrier, refused: None, parts: Vec::new() });
    }

    /// Appends a message without a caller.
    pub(super) fn send(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let xid = self.take_xid();
        message.encode(xid, out)
    }

    /// Handles a message that is the reply to a call; returns any other.
    pub(super) fn answer(
        &mut self,
        xid: u32,
        message: Result<Message, DecodeError>,
    ) -> Option<Result<Message, DecodeError>> {
        let Some((last, first)) = self.calls.range(xid..).next().map(|(last, call)| (*last, call.first)) else {
            return Some(message);
        };
        if xid < first {
            return Some(message);
        }
        match message {
            Ok(Message::Error(error)) => {
                let index = usize::try_from(xid - first).unwrap_or(usize::MAX);
                let refused = RequestError::Refused { index, error };
                if xid == last {
                    self.finish(last, Err(refused));
                } else if let Some(call) = self.calls.get_mut(&last) {
                    call.refused.get_or_insert(refused);
                }
            }
            Ok(Message::MultipartReply(part)) if xid == last => {
                if let Some(call) = self.calls.get_mut(&last) {
                    call.parts.push(part.body);
                    if !part.more {
                        let parts = std::mem::take(&mut call.parts);
                        self.finish(last, Ok(Answer::Parts(parts)));
                    }
                }
            }
            Ok(Message::BarrierReply) if xid == last && self.calls.get(&last).is_some_and(|call| call.barrier) => {
                let refused = self.calls.get_mut(&last).and_then(|call| call.refused.take());
                self.finish(last, refused.map_or(Ok(Answer::Done), Err));
            }
            Ok(message) if xid == last => self.finish(last, Ok(Answer::Message(message))),
            Err(error) if xid == last => self.finish(last, Err(error.into())),
            other => return Some(other),
        }
        None
    }

    /// The earliest deadline of all calls.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.deadline).min()
    }

    /// Fails calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, error: impl Fn() -> RequestError) {
        let late: Vec<u32> = self.calls.iter().filter(|(_, c)| c.deadline <= now).map(|(xid, _)| *xid).collect();
        for xid in late {
            self.finish(xid, Err(error()));
        }
    }

    /// Fails all calls: the connection is lost.
    pub(super) fn fail_all(&mut self, error: impl Fn() -> RequestError) {
        for (_, call) in std::mem::take(&mut self.calls) {
            let _ = call.reply.send(Err(error()));
        }
    }

    /// The number of calls in flight.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    fn finish(&mut self, xid: u32, result: Result<Answer, RequestError>) {
        if let Some(call) = self.calls.remove(&xid) {
            let _ = call.reply.send(result);
        }
    }

    /// Never zero: the switch uses that for asynchronous messages.
    fn take_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.next_xid
    }
}
