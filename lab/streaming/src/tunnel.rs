//! A byte stream in binary messages of a WebSocket, for SPDY inside.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use crate::websocket::{self, CLOSE_NORMAL, Message, Opcode, Reader};
use crate::{CHUNK, LINGER};

/// The bytes inside a WebSocket. The task ends when both sides have closed, or when the stream is dropped.
pub(crate) fn open<S>(socket: S) -> DuplexStream
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (inside, here) = tokio::io::duplex(CHUNK);
    let _task: JoinHandle<()> = tokio::spawn(async move {
        if let Err(error) = pump(socket, here).await {
            tracing::debug!("the tunnel ended: {error}");
        }
    });
    inside
}

async fn pump<S: AsyncRead + AsyncWrite>(socket: S, inside: DuplexStream) -> io::Result<()> {
    let (from, mut to) = tokio::io::split(socket);
    let (mut inside_reader, mut inside_writer) = tokio::io::split(inside);
    let (pings, mut pinged) = tokio::sync::mpsc::channel::<bytes::Bytes>(crate::QUEUE);
    let receive = async move {
        let mut from = Reader::new(tokio::io::BufReader::new(from));
        loop {
            match from.next().await? {
                Some(Message::Data(data)) => inside_writer.write_all(&data).await?,
                Some(Message::Ping(data)) => drop(pings.send(data).await),
                Some(Message::Close) | None => return inside_writer.shutdown().await,
            }
        }
    };
    let send = async move {
        let mut buffer = vec![0; CHUNK];
        loop {
            tokio::select! {
                Some(data) = pinged.recv() => websocket::write(&mut to, Opcode::Pong, [&data, &[]]).await?,
                read = inside_reader.read(&mut buffer) => match read? {
                    0 => break,
                    length => {
                        let data = buffer.get(..length).unwrap_or_default();
                        websocket::write(&mut to, Opcode::Binary, [data, &[]]).await?;
                    }
                },
            }
        }
        websocket::write(&mut to, Opcode::Close, [&CLOSE_NORMAL, &[]]).await?;
        to.shutdown().await
    };
    tokio::pin!(receive, send);
    tokio::select! {
        received = &mut receive => {
            if let Err(error) = received {
                tracing::debug!("cannot read from the tunnel: {error}");
            }
            send.await
        }
        sent = &mut send => {
            sent?;
            // The client may still send, and has to see the end before the connection is closed.
            tokio::time::timeout(LINGER, receive).await.unwrap_or(Ok(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::tests::masked;

    #[tokio::test]
    async fn bytes_pass_in_messages_and_pings_are_answered() {
        let (here, mut client) = tokio::io::duplex(1024);
        let mut inside = open(here);
        let frames = [masked(true, Opcode::Binary, b"in"), masked(true, Opcode::Ping, b"?")].concat();
        client.write_all(&frames).await.unwrap();
        let mut read = [0; 2];
        inside.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"in");
        let mut pong = [0; 3];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong, [0x8a, 1, b'?']);
        inside.write_all(b"out").await.unwrap();
        inside.shutdown().await.unwrap();
        let mut rest = [0; 9];
        client.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, &[0x82, 3, b'o', b'u', b't', 0x88, 2, 3, 0xe8]);
        client.write_all(&masked(true, Opcode::Close, b"")).await.unwrap();
        assert_eq!(inside.read(&mut read).await.unwrap(), 0);
    }
}
