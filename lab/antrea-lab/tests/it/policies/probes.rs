//! Connection attempts, all at the same time: dropped packets cost one timeout in total.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, send, socket, sockopt,
};
use testkit::Netns;
use types::meta::Protocol;

/// Timeout of a connection attempt: TCP retransmits a SYN after a second.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1500);

/// A server that accepts connections and echoes datagrams. Ends with this value.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on these ports of all addresses, in a namespace.
    pub(crate) fn start(netns: &Netns, ports: &[u16]) -> Self {
        let listen = || {
            let any = |port: &u16| SocketAddr::from(([0u16; 8], *port));
            let tcp: Vec<TcpListener> = ports.iter().map(|port| TcpListener::bind(any(port)).unwrap()).collect();
            let udp: Vec<UdpSocket> = ports.iter().map(|port| UdpSocket::bind(any(port)).unwrap()).collect();
            tcp.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            udp.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            (tcp, udp)
        };
        let (tcp, udp) = netns.run(listen).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while !ended.load(Ordering::Relaxed) {
                let mut wanted: Vec<PollFd<'_>> =
                    tcp.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)).collect();
                wanted.extend(udp.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
                let _ = poll(&mut wanted, PollTimeout::from(100u8));
                for socket in &tcp {
                    while socket.accept().is_ok() {}
                }
                for socket in &udp {
                    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&buffer[..length], peer);
                    }
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Address, protocol and port of a probe.
pub(crate) type Target = (IpAddr, Protocol, u16);

/// The targets that can be reached from a namespace.
pub(crate) fn reached(from: &Netns, targets: &[Target]) -> BTreeSet<Target> {
    let started =
        || -> Vec<(Target, OwnedFd)> { targets.iter().filter_map(|target| Some((*target, begin(target)?))).collect() };
    let mut waiting = from.run(started).unwrap();
    let (end, mut reached) = (Instant::now() + PROBE_TIMEOUT, BTreeSet::new());
    while !waiting.is_empty() {
        let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else { break };
        let mut wanted: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|((_, protocol, _), socket)| {
                let flags = if *protocol == Protocol::Tcp { PollFlags::POLLOUT } else { PollFlags::POLLIN };
                PollFd::new(socket.as_fd(), flags)
            })
            .collect();
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        if poll(&mut wanted, left).unwrap_or_default() == 0 {
            continue;
        }
        let events: Vec<Option<PollFlags>> = wanted.iter().map(PollFd::revents).collect();
        let mut events = events.into_iter();
        waiting.retain(|(target, socket)| {
            let Some(event) = events.next().flatten().filter(|event| !event.is_empty()) else { return true };
            // An ICMP error counts as no connection.
            let error = getsockopt(socket, sockopt::SocketError).unwrap_or(1);
            if error == 0 && event.intersects(PollFlags::POLLIN | PollFlags::POLLOUT) {
                reached.insert(*target);
            }
            false
        });
    }
    reached
}

/// A connection that is on its way.
fn begin(&(ip, protocol, port): &Target) -> Option<OwnedFd> {
    let family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let kind = if protocol == Protocol::Tcp { SockType::Stream } else { SockType::Datagram };
    let socket = socket(family, kind, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None).unwrap();
    use std::os::fd::AsRawFd;
    let address = SockaddrStorage::from(SocketAddr::from((ip, port)));
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => {}
        Err(error) => {
            assert_ne!(std::io::Error::from(error).kind(), ErrorKind::InvalidInput);
            return None;
        }
    }
    if protocol == Protocol::Udp {
        send(socket.as_raw_fd(), b"hello", nix::sys::socket::MsgFlags::empty()).ok()?;
    }
    Some(socket)
}
