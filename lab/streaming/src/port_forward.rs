//! Connects a client of `kubectl port-forward` to ports: a pair of SPDY streams for each connection.

use std::collections::BTreeMap;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::spdy::{Connection, Received, Stream};
use crate::{CHUNK, Transport, Upgrade, tunnel};

/// The protocols, for [`Upgrade::negotiate`].
pub const PROTOCOLS: &[(Transport, &str)] =
    &[(Transport::Tunnel, "portforward.k8s.io"), (Transport::Spdy, "portforward.k8s.io")];
/// Maximum number of streams that wait for the other one of their pair.
const MAX_WAITING: usize = 100;

/// Forwards connections until the client disconnects. `connect` opens a connection to a port.
pub async fn serve<S, C, F>(upgrade: &Upgrade, stream: S, connect: impl Fn(u16) -> F)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    C: AsyncRead + AsyncWrite + Send,
    F: Future<Output = io::Result<C>> + Send + 'static,
{
    let mut connection = match upgrade.transport {
        Transport::Tunnel => Connection::serve(tunnel::open(stream)),
        Transport::Spdy => Connection::serve(stream),
        Transport::Channels => return,
    };
    let mut waiting = Waiting::default();
    // All connections end with the client.
    let mut forwards = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.opened() => match stream.map(|stream| waiting.pair(stream)) {
                Some(Paired::Ready(pair)) => drop(forwards.spawn(forward(*pair, &connect))),
                Some(Paired::Waits) => {}
                Some(Paired::Invalid(stream)) => drop(stream.writer.reset().await),
                None => return,
            },
            Some(_) = forwards.join_next() => {}
        }
    }
}

/// The two streams of a connection.
struct Pair {
    port: u16,
    data: Stream,
    error: Stream,
}

/// The result of [`Waiting::pair`].
enum Paired {
    Ready(Box<Pair>),
    Waits,
    Invalid(Box<Stream>),
}

/// Streams of which the other one of the pair is not there yet, by the id of their connection.
#[derive(Default)]
struct Waiting(BTreeMap<String, Stream>);

impl Waiting {
    fn pair(&mut self, stream: Stream) -> Paired {
        let header = |stream: &Stream, name: &str| stream.headers.get(name).cloned().unwrap_or_default();
        let (id, kind) = (header(&stream, "requestid"), header(&stream, "streamtype"));
        let port = header(&stream, "port").parse().unwrap_or(0);
        if port == 0 || !["data", "error"].contains(&kind.as_str()) || self.0.len() >= MAX_WAITING {
            return Paired::Invalid(Box::new(stream));
        }
        match self.0.remove(&id) {
            None => {
                self.0.insert(id, stream);
                Paired::Waits
            }
            Some(other) if header(&other, "streamtype") == kind => Paired::Invalid(Box::new(stream)),
            Some(other) => {
                let (data, error) = if kind == "data" { (stream, other) } else { (other, stream) };
                Paired::Ready(Box::new(Pair { port, data, error }))
            }
        }
    }
}

/// Forwards one connection, and reports its failure in the error stream.
fn forward<C, F>(pair: Pair, connect: impl Fn(u16) -> F) -> impl Future<Output = ()> + Send + 'static
where
    C: AsyncRead + AsyncWrite + Send,
    F: Future<Output = io::Result<C>> + Send + 'static,
{
    let Pair { port, data, error } = pair;
    let connected = connect(port);
    async move {
        let outcome = match connected.await {
            Ok(connected) => copy(data, connected).await,
            Err(error) => {
                let _ = data.writer.finish().await;
                Err(error)
            }
        };
        // The client may have disconnected.
        if let Err(reason) = outcome {
            let message = format!("error forwarding port {port}: {reason}");
            let _ = error.writer.write(message.into()).await;
        }
        let _ = error.writer.finish().await;
    }
}

/// Copies both ways until both are at their end, or until the client gives up.
async fn copy<C: AsyncRead + AsyncWrite>(stream: Stream, connected: C) -> io::Result<()> {
    let Stream { mut reader, writer, .. } = stream;
    let (mut from, mut to) = tokio::io::split(connected);
    let receive = async {
        loop {
            match reader.next().await {
                Received::Data(data) => to.write_all(&data).await?,
                Received::End => {
                    to.shutdown().await?;
                    // The other direction decides about the end.
                    return std::future::pending().await;
                }
                Received::Reset => return Ok(()),
            }
        }
    };
    let send = async {
        loop {
            let mut data = BytesMut::with_capacity(CHUNK);
            if from.read_buf(&mut data).await? == 0 {
                return writer.finish().await;
            }
            writer.write(data.freeze()).await?;
        }
    };
    tokio::select! {
        ended = receive => ended,
        ended = send => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::tests::{Client, client, data};
    use http::HeaderMap;
    use tokio::io::DuplexStream;

    fn upgrade() -> Upgrade {
        let mut headers = HeaderMap::new();
        let all =
            [("connection", "upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "portforward.k8s.io")];
        for (name, value) in all {
            headers.insert(name, value.parse().unwrap());
        }
        Upgrade::negotiate(&headers, PROTOCOLS).unwrap()
    }

    /// A client of a server that reads everything from a connection and sends it back; nothing listens on port 1.
    fn start() -> Client {
        let (here, there) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let connect = async |port: u16| {
                if port == 1 {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (near, mut far) = tokio::io::duplex(1024);
                tokio::spawn(async move {
                    let mut all = Vec::new();
                    far.read_to_end(&mut all).await.unwrap();
                    far.write_all(&all).await.unwrap();
                });
                Ok::<DuplexStream, _>(near)
            };
            serve(&upgrade(), here, connect).await;
        });
        client(there)
    }

    fn headers<'a>(kind: &'a str, port: &'a str) -> [(&'a str, &'a str); 3] {
        [("streamtype", kind), ("port", port), ("requestid", "0")]
    }

    #[tokio::test]
    async fn data_reaches_the_port_and_the_answer_comes_back() {
        let mut client = start();
        client.open(1, &headers("error", "80"), true).await;
        client.open(3, &headers("data", "80"), false).await;
        client.send(3, "echo", true).await;
        let received = data(&mut client, 2).await;
        assert_eq!((&received[&3][..], &received[&1][..]), ("echo", ""));
    }

    #[tokio::test]
    async fn a_refused_connection_is_an_error_in_the_error_stream() {
        let mut client = start();
        client.open(1, &headers("error", "1"), true).await;
        client.open(3, &headers("data", "1"), false).await;
        let received = data(&mut client, 2).await;
        assert_eq!(received[&1], "error forwarding port 1: connection refused");
    }

    #[tokio::test]
    async fn streams_without_a_port_or_a_partner_are_reset() {
        let mut client = start();
        client.open(1, &headers("data", "0"), false).await;
        client.open(3, &headers("other", "80"), false).await;
        client.open(5, &headers("data", "80"), false).await;
        client.open(7, &headers("data", "80"), false).await;
        let mut reset = Vec::new();
        while reset.len() < 3 {
            reset.extend(client.reset().await);
        }
        assert_eq!(reset, [1, 3, 7]);
    }
}
