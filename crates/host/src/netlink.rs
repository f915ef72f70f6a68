//! Netlink sockets: requests, their acknowledgements, and dumps.
//!
//! Messages are framed here, and `netlink-packet-route` encodes and decodes their contents. Foreign objects are skipped before
//! decoding where possible, because it does not understand all of them.

pub(crate) mod address;
pub(crate) mod link;
pub(crate) mod neighbour;
pub(crate) mod route;
pub(crate) mod rule;

use libc::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, c_int};
use netlink_packet_core::{Emitable, NlasIterator};
use netlink_sys::Socket;
use nix::errno::Errno;

/// Flag of a dump during which the listed objects changed.
const NLM_F_DUMP_INTR: c_int = 0x10;
/// Attribute with the kernel's explanation of an error.
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Begin and end of a netfilter transaction.
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const HEADER: usize = 16;
/// Length of an error message: its number, and the header of the request.
const ERROR: usize = 4 + HEADER;
/// Size of the largest message of a dump.
const BUFFER: usize = 64 << 10;
/// Number of requests sent at a time, so that their acknowledgements fit into the socket's buffer.
const CHUNK: usize = 64;
/// Number of attempts for a dump during which objects change.
const DUMP_ATTEMPTS: usize = 10;

/// An error from the kernel, with its explanation if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) reason: Option<String>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, reason: None }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)).into()
    }
}

/// A request: what to do, how (`NLM_F_*`), and the encoded object.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(kind: u16, flags: c_int, body: &impl Emitable) -> Self {
        let mut bytes = vec![0; body.buffer_len()];
        body.emit(&mut bytes);
        Self::raw(kind, flags, bytes)
    }

    pub(crate) fn raw(kind: u16, flags: c_int, body: Vec<u8>) -> Self {
        let flags = u16::try_from(flags | NLM_F_REQUEST).unwrap_or_default();
        Self { kind, flags, body }
    }

    fn encode(&self, sequence: u32, flags: c_int, to: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or_default();
        let flags = self.flags | u16::try_from(flags).unwrap_or_default();
        to.extend(length.to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(flags.to_ne_bytes());
        to.extend(sequence.to_ne_bytes());
        to.extend(0_u32.to_ne_bytes());
        to.extend(&self.body);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

/// Mask for the kind of an attribute, without the flag for nested attributes.
const ATTRIBUTE_KIND: u16 = 0x3fff;

/// The messages in a received buffer.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let length = usize::try_from(word(0)?).ok()?;
        let message = Message { kind: half(4)?, flags: half(6)?, sequence: word(8)?, body: bytes.get(HEADER..length)? };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The contents of the first attribute of a kind.
pub(crate) fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut at = attributes;
    // By hand, as what the iterator finds does not outlive it.
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        let length = usize::from(attribute.length());
        if attribute.kind() & ATTRIBUTE_KIND == kind {
            return at.get(4..length);
        }
        at = at.get(length.next_multiple_of(4)..)?;
    }
    None
}

impl Message<'_> {
    /// The result in an acknowledgement.
    fn verdict(&self) -> Result<(), Refusal> {
        match self.body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
            None | Some(0) => Ok(()),
            Some(code) => Err(Refusal { errno: Errno::from_raw(-code), reason: self.reason() }),
        }
    }

    fn reason(&self) -> Option<String> {
        let attributes = NlasIterator::new(self.body.get(ERROR..)?);
        let text = attributes.flatten().find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)?;
        Some(String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned())
    }
}

/// A netlink socket. It stays in the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket for links, addresses, routes and neighbours.
    pub(crate) fn route() -> Result<Self, Refusal> {
        let netlink = Self::open(netlink_sys::protocols::NETLINK_ROUTE)?;
        // Makes the kernel filter dumps by the request.
        netlink.socket.set_netlink_get_strict_chk(true)?;
        Ok(netlink)
    }

    /// A socket for nftables and conntrack.
    pub(crate) fn netfilter() -> Result<Self, Refusal> {
        Self::open(netlink_sys::protocols::NETLINK_NETFILTER)
    }

    fn open(protocol: isize) -> Result<Self, Refusal> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.set_ext_ack(true)?;
        // An error does not repeat the request, so its explanation follows the header at once.
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Sends one request and waits for its acknowledgement.
    pub(crate) fn request(&mut self, request: Request) -> Result<(), Refusal> {
        self.requests(&[request]).pop().unwrap_or(Ok(()))
    }

    /// Sends requests one after the other, also after one that failed; returns a result for each.
    pub(crate) fn requests(&mut self, requests: &[Request]) -> Vec<Result<(), Refusal>> {
        requests.chunks(CHUNK).flat_map(|chunk| self.chunk(chunk)).collect()
    }

    fn chunk(&mut self, requests: &[Request]) -> Vec<Result<(), Refusal>> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            request.encode(self.sequence, NLM_F_ACK, &mut bytes);
        }
        let mut results: Vec<Option<Result<(), Refusal>>> = vec![None; requests.len()];
        if let Err(refusal) = self.send(&bytes).and_then(|()| self.acknowledgements(first, &mut results)) {
            results.iter_mut().for_each(|result| _ = result.get_or_insert(Err(refusal.clone())));
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(Errno::EBADMSG.into()))).collect()
    }

    fn acknowledgements(&mut self, first: u32, results: &mut [Option<Result<(), Refusal>>]) -> Result<(), Refusal> {
        while results.iter().any(Option::is_none) {
            self.receive()?;
            for message in messages(&self.buffer).filter(|message| c_int::from(message.kind) == NLMSG_ERROR) {
                let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(result) = results.get_mut(index) {
                    *result = Some(message.verdict());
                }
            }
        }
        Ok(())
    }

    /// Sends `all` as one netfilter transaction. The kernel acknowledges its last request.
    pub(crate) fn transaction(&mut self, all: &[Request]) -> Result<(), Refusal> {
        let Some((last, before)) = all.split_last() else { return Ok(()) };
        let mut bytes = Vec::new();
        let first = self.sequence.wrapping_add(1);
        let mut add = |request: &Request, flags| {
            self.sequence = self.sequence.wrapping_add(1);
            request.encode(self.sequence, flags, &mut bytes);
            self.sequence
        };
        // Addressed to nftables (10), in network byte order.
        let mark = |kind| Request::raw(kind, 0, vec![0, 0, 0, 10]);
        add(&mark(NFNL_MSG_BATCH_BEGIN), 0);
        before.iter().for_each(|request| _ = add(request, 0));
        let answered = add(last, NLM_F_ACK);
        add(&mark(NFNL_MSG_BATCH_END), 0);
        self.send(&bytes)?;
        // An error refers to any of the messages; otherwise the last one is acknowledged.
        loop {
            self.receive()?;
            for message in messages(&self.buffer).filter(|message| c_int::from(message.kind) == NLMSG_ERROR) {
                if message.sequence.wrapping_sub(first) <= answered.wrapping_sub(first) {
                    message.verdict()?;
                    if message.sequence == answered {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Asks for one object; nothing when there is none (`ENODEV`, `ENOENT`).
    pub(crate) fn get<T>(
        &mut self,
        request: &Request,
        read: impl Fn(Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        request.encode(self.sequence, 0, &mut bytes);
        self.send(&bytes)?;
        loop {
            self.receive()?;
            for message in messages(&self.buffer).filter(|message| message.sequence == self.sequence) {
                if c_int::from(message.kind) != NLMSG_ERROR {
                    let unreadable =
                        || Refusal { errno: Errno::EBADMSG, reason: Some("an answer that makes no sense".into()) };
                    return read(message).map(Some).ok_or_else(unreadable);
                }
                match message.verdict() {
                    Err(Refusal { errno: Errno::ENODEV | Errno::ENOENT, .. }) => return Ok(None),
                    verdict => verdict?,
                }
            }
        }
    }

    /// Asks for all objects that are like the one in the request, and reads those that `read` understands.
    pub(crate) fn dump<T>(
        &mut self,
        request: &Request,
        read: impl Fn(Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        for _ in 0..DUMP_ATTEMPTS {
            let (all, consistent) = self.dump_once(request, &read)?;
            if consistent {
                return Ok(all);
            }
        }
        Err(Refusal { errno: Errno::EINTR, reason: Some("the listed objects keep changing".into()) })
    }

    fn dump_once<T>(
        &mut self,
        request: &Request,
        read: impl Fn(Message<'_>) -> Option<T>,
    ) -> Result<(Vec<T>, bool), Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        request.encode(self.sequence, NLM_F_DUMP, &mut bytes);
        self.send(&bytes)?;
        let (mut all, mut consistent) = (Vec::new(), true);
        loop {
            self.receive()?;
            for message in messages(&self.buffer).filter(|message| message.sequence == self.sequence) {
                consistent &= c_int::from(message.flags) & NLM_F_DUMP_INTR == 0;
                match c_int::from(message.kind) {
                    NLMSG_DONE => return message.verdict().map(|()| (all, consistent)),
                    NLMSG_ERROR => message.verdict()?,
                    _ => all.extend(read(message)),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Refusal> {
        Ok(self.socket.send(bytes, 0).map(drop)?)
    }

    fn receive(&mut self) -> Result<(), Refusal> {
        self.buffer.clear();
        let length = loop {
            match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        match length <= self.buffer.len() {
            true => Ok(()),
            false => Err(Refusal { errno: Errno::EMSGSIZE, reason: Some("the answer is too long".into()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two messages, as the kernel sends them.
    fn two() -> Vec<u8> {
        let mut bytes = Vec::new();
        Request::raw(7, 0, vec![1, 2, 3]).encode(5, 0, &mut bytes);
        Request::raw(NLMSG_ERROR.try_into().unwrap(), 0, refusal()).encode(6, 0, &mut bytes);
        bytes
    }

    /// An error, the header of the request that it is about, and a reason.
    fn refusal() -> Vec<u8> {
        let reason = [&[12, 0, 1, 0], b"because\0".as_slice()].concat();
        [(-libc::EEXIST).to_ne_bytes().as_slice(), &[0; HEADER], &reason].concat()
    }

    #[test]
    fn consecutive_messages_are_split() {
        let bytes = two();
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(all.iter().map(|message| (message.kind, message.sequence)).collect::<Vec<_>>(), [(7, 5), (2, 6)]);
        assert_eq!(all[0].body, [1, 2, 3]);
        assert_eq!(all[1].verdict(), Err(Refusal { errno: Errno::EEXIST, reason: Some("because".into()) }));
    }

    #[test]
    fn malformed_messages_end_the_iteration() {
        let bytes = two();
        for length in 0..bytes.len() {
            for message in messages(&bytes[..length]) {
                let _ = message.verdict();
            }
        }
        for (at, value) in (0..bytes.len()).flat_map(|at| [(at, 0), (at, 3), (at, 0xff)]) {
            let mut changed = bytes.clone();
            changed[at] = value;
            for message in messages(&changed) {
                let _ = message.verdict();
            }
        }
    }
}
