//! Requests to many servers at once, which return the client address that they see.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use testkit::Netns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Timeout of one attempt.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Result of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Outcome {
    /// The server saw this client address.
    Seen(IpAddr),
    /// The connection was refused.
    Refused,
    /// There was no response within the timeout.
    Silent,
}

/// Sends all requests at once, from a namespace.
pub(crate) fn ask_all(from: &Netns, targets: &[(bool, SocketAddr)]) -> Vec<Outcome> {
    let ask = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tasks: Vec<_> = targets.iter().map(|(udp, to)| tokio::spawn(one(*udp, *to))).collect();
            let mut outcomes = Vec::new();
            for task in tasks {
                outcomes.push(task.await.unwrap());
            }
            outcomes
        })
    };
    from.run(ask).unwrap()
}

async fn one(udp: bool, to: SocketAddr) -> Outcome {
    let asked = async { if udp { by_udp(to).await } else { by_tcp(to).await } };
    match tokio::time::timeout(PROBE_TIMEOUT, asked).await {
        Ok(Ok(text)) => Outcome::Seen(text.parse::<SocketAddr>().unwrap().ip()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => Outcome::Refused,
        // Whatever else goes wrong is no answer.
        Ok(Err(_)) | Err(_) => Outcome::Silent,
    }
}

async fn by_tcp(to: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(b"GET /clientip HTTP/1.1\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(answer))
}

async fn by_udp(to: SocketAddr) -> std::io::Result<String> {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = UdpSocket::bind(any).await?;
    socket.connect(to).await?;
    socket.send(b"clientip").await?;
    let mut buffer = [0; 128];
    let length = socket.recv(&mut buffer).await?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
