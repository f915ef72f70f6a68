//! Permanent traffic between Pods, with a report of losses and delays.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::Netns;
use testkit::wait::scaled;

/// How often something is sent.
pub(crate) const TICK: Duration = Duration::from_millis(20);
/// Maximum time of an echo; later ones count as lost.
const LATE: Duration = Duration::from_secs(3);

/// When each message was sent, and when its echo came.
type Echoes = Arc<Mutex<Vec<(Instant, Option<Instant>)>>>;

/// Messages from one Pod to another and back, one each tick.
pub(crate) struct Stream {
    pub(crate) what: String,
    stop: Arc<AtomicBool>,
    echoes: Echoes,
    client: Option<JoinHandle<Result<(), String>>>,
}

impl Stream {
    /// Datagrams, each of which is echoed, or lost.
    pub(crate) fn udp(what: &str, from: &Netns, to: &Netns, address: &str) -> Self {
        Self::udp_every(TICK, what, from, to, address)
    }

    /// Like [`Stream::udp`], with another interval.
    pub(crate) fn udp_every(tick: Duration, what: &str, from: &Netns, to: &Netns, address: &str) -> Self {
        let address: SocketAddr = format!("{address}:7").parse().unwrap();
        let server = to.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        let client = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        client.connect(address).unwrap();
        server.set_read_timeout(Some(tick)).unwrap();
        Self::start(format!("{what}, UDP"), move |stop, echoes| {
            let over = Arc::new(AtomicBool::new(false));
            let ended = Arc::clone(&over);
            let echo = std::thread::spawn(move || {
                let mut buffer = [0; 8];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((length, peer)) = server.recv_from(&mut buffer) {
                        let _ = server.send_to(&buffer[..length], peer);
                    }
                }
            });
            let receive = |left: Duration| {
                client.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
                let mut buffer = [0; 8];
                // An error is a refusal of an earlier datagram, or the time that is over: both are losses, not ends.
                Ok(client.recv(&mut buffer).ok().map(|_| u64::from_be_bytes(buffer)))
            };
            let outcome = exchange(tick, stop, echoes, |number| drop(client.send(&number.to_be_bytes())), receive);
            over.store(true, Ordering::Relaxed);
            let _ = echo.join();
            outcome
        })
    }

    /// One connection, which ends with an error or not at all.
    pub(crate) fn tcp(what: &str, from: &Netns, to: &Netns, address: &str) -> Self {
        let address: SocketAddr = format!("{address}:7").parse().unwrap();
        Self::tcp_through(what, from, to, address, address)
    }

    /// One connection to `address` of a Pod through a Service at `frontend`.
    pub(crate) fn tcp_through(what: &str, from: &Netns, to: &Netns, address: SocketAddr, frontend: SocketAddr) -> Self {
        let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut buffer = [0; 8];
            while peer.read_exact(&mut buffer).and_then(|()| peer.write_all(&buffer)).is_ok() {}
        });
        let mut client = from.run(|| TcpStream::connect(frontend)).unwrap().unwrap();
        client.set_nodelay(true).unwrap();
        Self::start(format!("{what}, TCP"), move |stop, echoes| {
            let mut reader = client.try_clone().map_err(|error| error.to_string())?;
            let (mut failed, mut buffer, mut filled) = (None, [0; 8], 0);
            let send = |number: u64| failed = client.write_all(&number.to_be_bytes()).err().or(failed.take());
            let receive = |left: Duration| {
                reader.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
                match reader.read(&mut buffer[filled..]) {
                    Ok(0) => Err("the other side has closed it".to_owned()),
                    Ok(length) => {
                        filled = (filled + length) % buffer.len();
                        Ok((filled == 0).then(|| u64::from_be_bytes(buffer)))
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            };
            let outcome = exchange(TICK, stop, echoes, send, receive);
            outcome.and(failed.map_or(Ok(()), |error| Err(error.to_string())))
        })
    }

    fn start(
        what: String,
        client: impl FnOnce(&Arc<AtomicBool>, &Echoes) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let (stop, echoes) = (Arc::new(AtomicBool::new(false)), Echoes::default());
        let thread = std::thread::spawn({
            let (stop, echoes) = (Arc::clone(&stop), Arc::clone(&echoes));
            move || client(&stop, &echoes)
        });
        Self { what, stop, echoes, client: Some(thread) }
    }

    /// The first echo that came after a moment, if there was one already.
    pub(crate) fn first_after(&self, moment: Instant) -> Option<Instant> {
        let echoes = self.echoes.lock().unwrap();
        echoes.iter().filter_map(|(_, came)| *came).filter(|came| *came > moment).min()
    }

    /// How many messages were sent between two moments, and how many of them are without an echo after a while.
    pub(crate) fn between(&self, begin: Instant, end: Instant) -> (usize, usize) {
        let count = || {
            let echoes = self.echoes.lock().unwrap();
            let sent = echoes.iter().filter(|(sent, _)| (begin..=end).contains(sent));
            sent.fold((0, 0), |(all, lost), (_, came)| (all + 1, lost + usize::from(came.is_none())))
        };
        let _ = testkit::wait::until("echoes", LATE, || (count().1 == 0).then_some(()));
        count()
    }

    /// Stops the stream. Returns the number of messages, those without an echo, and the longest time between two echoes.
    pub(crate) fn end(mut self) -> Noticed {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.client.take().unwrap().join().unwrap();
        let echoes = self.echoes.lock().unwrap();
        let mut came: Vec<Instant> = echoes.iter().filter_map(|(_, came)| *came).collect();
        came.sort();
        let longest = came.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        let start = echoes.first().map_or_else(Instant::now, |(sent, _)| *sent);
        let lost = echoes.iter().filter(|(_, came)| came.is_none()).map(|(sent, _)| *sent - start).collect();
        Noticed { what: self.what.clone(), sent: echoes.len(), lost, longest, outcome }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The report of a stream.
#[derive(Debug)]
pub(crate) struct Noticed {
    pub(crate) what: String,
    pub(crate) sent: usize,
    /// When messages without an echo were sent, since the first.
    pub(crate) lost: Vec<Duration>,
    pub(crate) longest: Duration,
    pub(crate) outcome: Result<(), String>,
}

/// Sends a number each tick until `stop` is set, and then waits for the remaining echoes.
fn exchange(
    tick: Duration,
    stop: &AtomicBool,
    echoes: &Echoes,
    mut send: impl FnMut(u64),
    mut receive: impl FnMut(Duration) -> Result<Option<u64>, String>,
) -> Result<(), String> {
    let (mut waits_until, mut next) = (None, Instant::now());
    loop {
        let now = Instant::now();
        // The kernel rounds timeouts up: without the time of the tick before, each would be late.
        next = (next + tick).max(now);
        if !stop.load(Ordering::Relaxed) {
            let number = {
                let mut echoes = echoes.lock().unwrap();
                echoes.push((now, None));
                echoes.len() as u64 - 1
            };
            send(number);
        } else {
            let end = *waits_until.get_or_insert(now + scaled(LATE));
            if now > end || echoes.lock().unwrap().iter().all(|(_, came)| came.is_some()) {
                return Ok(());
            }
        }
        while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if let Some(number) = receive(left)? {
                let mut echoes = echoes.lock().unwrap();
                echoes[usize::try_from(number).unwrap()].1.get_or_insert_with(Instant::now);
            }
        }
    }
}
