//! Requests that wait for their answers, by xid.

use std::collections::BTreeMap;

use openflow::header::TooLong;
use openflow::message::Message;
use openflow::multipart::{MultipartRequest, ReplyBody};
use openflow::wire::DecodeError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::RequestError;

/// Where an answer goes.
pub(super) type Reply = oneshot::Sender<Result<Answer, RequestError>>;

/// What somebody wants of the switch.
#[derive(Debug)]
pub(super) enum Call {
    /// One message that one message answers.
    Request { message: Message, reply: Reply },
    /// Messages that nothing answers.
    Apply { messages: Vec<Message>, reply: Reply },
    /// A request that is answered in parts.
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

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    /// The message that answers.
    Message(Message),
    /// All parts of the answer.
    Parts(Vec<ReplyBody>),
    /// It was carried out.
    Done,
}

#[derive(Debug)]
struct Waiting {
    reply: Reply,
    deadline: Instant,
    /// The first xid of the call; the last is the key.
    first: u32,
    /// Whether its last message is a barrier that was added to see the others done.
    fenced: bool,
    /// The first message that was refused.
    refused: Option<RequestError>,
    parts: Vec<ReplyBody>,
}

/// All calls that wait, by the xid of their last message: a call's xids are consecutive.
#[derive(Debug, Default)]
pub(super) struct Pending {
    calls: BTreeMap<u32, Waiting>,
    next_xid: u32,
}

impl Pending {
    /// Writes a call's messages to `out` and waits for their answer until `deadline`.
    pub(super) fn start(&mut self, call: Call, deadline: Instant, out: &mut Vec<u8>) {
        let mark = out.len();
        let fenced = matches!(call, Call::Apply { .. });
        let (messages, reply) = match call {
            Call::Request { message, reply } => (vec![message], reply),
            Call::Multipart { request, reply } => (vec![Message::MultipartRequest(request)], reply),
            Call::Apply { mut messages, reply } => {
                messages.push(Message::BarrierRequest);
                (messages, reply)
            }
        };
        // A call's xids are consecutive, also where they start over.
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
        self.calls.insert(last, Waiting { reply, deadline, first, fenced, refused: None, parts: Vec::new() });
    }

    /// Appends a message that nobody waits for.
    pub(super) fn send(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let xid = self.take_xid();
        message.encode(xid, out)
    }

    /// Takes a message if it answers a call; gives it back if it answers none.
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
            Ok(Message::BarrierReply) if xid == last && self.calls.get(&last).is_some_and(|call| call.fenced) => {
                let refused = self.calls.get_mut(&last).and_then(|call| call.refused.take());
                self.finish(last, refused.map_or(Ok(Answer::Done), Err));
            }
            Ok(message) if xid == last => self.finish(last, Ok(Answer::Message(message))),
            Err(error) if xid == last => self.finish(last, Err(error.into())),
            other => return Some(other),
        }
        None
    }

    /// When the next call has waited long enough.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.deadline).min()
    }

    /// Ends calls whose time has come.
    pub(super) fn expire(&mut self, now: Instant, error: impl Fn() -> RequestError) {
        let late: Vec<u32> = self.calls.iter().filter(|(_, c)| c.deadline <= now).map(|(xid, _)| *xid).collect();
        for xid in late {
            self.finish(xid, Err(error()));
        }
    }

    /// Ends all calls, as no answer can come any more.
    pub(super) fn fail_all(&mut self, error: impl Fn() -> RequestError) {
        for (_, call) in std::mem::take(&mut self.calls) {
            let _ = call.reply.send(Err(error()));
        }
    }

    /// How many calls wait.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    fn finish(&mut self, xid: u32, result: Result<Answer, RequestError>) {
        if let Some(call) = self.calls.remove(&xid) {
            let _ = call.reply.send(result);
        }
    }

    /// Zero is left out: the switch uses it for what it says unasked.
    fn take_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.next_xid
    }
}
