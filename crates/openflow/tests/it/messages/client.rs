//! A controller that waits for each answer.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use openflow::control::Hello;
use openflow::error::ErrorMessage;
use openflow::framer::Framer;
use openflow::message::Message;
use openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody};
use testkit::Ovs;

pub(super) struct Client {
    stream: UnixStream,
    framer: Framer,
    /// What has come but was not waited for.
    waiting: VecDeque<(u32, Message)>,
    last_xid: u32,
}

impl Client {
    /// Connects, and exchanges hellos.
    pub(super) fn connect(ovs: &Ovs, bridge: &str) -> Self {
        let stream = UnixStream::connect(ovs.mgmt_socket(bridge)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client { stream, framer: Framer::new(), waiting: VecDeque::new(), last_xid: 0x100 };
        client.send(&Message::Hello(Hello::of15()));
        let hello = client.wait(|_, message| matches!(message, Message::Hello(_)));
        assert!(matches!(hello, Message::Hello(hello) if hello.supports(6)));
        client
    }

    /// Sends a message and returns its xid.
    pub(super) fn send(&mut self, message: &Message) -> u32 {
        self.last_xid += 1;
        let mut bytes = Vec::new();
        message.encode(self.last_xid, &mut bytes).unwrap();
        self.send_bytes(&bytes);
        self.last_xid
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request and waits for its reply or error.
    pub(super) fn call(&mut self, message: &Message) -> Message {
        let xid = self.send(message);
        self.reply(xid)
    }

    /// Waits for the reply or error with this xid.
    pub(super) fn reply(&mut self, xid: u32) -> Message {
        self.wait(|got, _| got == xid)
    }

    /// Sends a request that must fail, and waits for its error.
    pub(super) fn refused(&mut self, message: &Message) -> ErrorMessage {
        match self.call(message) {
            Message::Error(error) => error,
            other => panic!("{message} was not refused, but answered with {other}"),
        }
    }

    /// Sends a message that has no reply, and makes sure that there was no error.
    pub(super) fn done(&mut self, message: &Message) {
        let xid = self.send(message);
        let barrier = self.send(&Message::BarrierRequest);
        let first = self.wait(|got, _| got == xid || got == barrier);
        assert_eq!(first, Message::BarrierReply, "{message}");
    }

    /// Sends a request and waits for all parts of its answer.
    pub(super) fn parts(&mut self, request: MultipartRequest) -> Vec<ReplyBody> {
        let request = Message::MultipartRequest(request);
        let xid = self.send(&request);
        let mut parts = Vec::new();
        loop {
            match self.reply(xid) {
                Message::MultipartReply(MultipartReply { more, body }) => {
                    parts.push(body);
                    if !more {
                        return parts;
                    }
                }
                other => panic!("{request} was answered with {other}"),
            }
        }
    }

    /// Waits for a message of a kind; others stay for later.
    pub(super) fn wait(&mut self, mut wanted: impl FnMut(u32, &Message) -> bool) -> Message {
        let found = self.waiting.iter().position(|(xid, message)| wanted(*xid, message));
        if let Some((_, message)) = found.and_then(|i| self.waiting.remove(i)) {
            return message;
        }
        loop {
            let (xid, message) = self.receive();
            if wanted(xid, &message) {
                return message;
            }
            self.waiting.push_back((xid, message));
        }
    }

    fn receive(&mut self) -> (u32, Message) {
        loop {
            if let Some(bytes) = self.framer.next_message().unwrap() {
                let (xid, message) = Message::decode(bytes).unwrap();
                let mut again = Vec::new();
                message.encode(xid, &mut again).unwrap();
                assert_eq!(Message::decode(&again), Ok((xid, message.clone())), "what we make of our own bytes");
                return (xid, message);
            }
            let mut bytes = [0; 4096];
            let n = self.stream.read(&mut bytes).unwrap_or_else(|error| panic!("{error}; came: {:?}", self.waiting));
            assert!(n > 0, "the switch hung up");
            self.framer.feed(&bytes[..n]);
        }
    }
}
