//! Over a WebSocket: the first byte of each message is the number of a channel.

use std::io;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::{Input, Outcome, Output, Session, V5, resize};
use crate::websocket::{self, CLOSE_NORMAL, Message, Opcode, Reader};
use crate::{LINGER, QUEUE};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// In version 5, a message on this channel closes the one that follows.
const CLOSE: u8 = 255;

pub(super) async fn serve<S, R>(protocol: &str, stream: S, run: impl FnOnce(Session) -> R) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    R: Future<Output = Outcome>,
{
    let (from, mut to) = tokio::io::split(stream);
    let (inputs, input) = mpsc::channel(QUEUE);
    let (output, outputs) = mpsc::channel(QUEUE);
    let (pings, pinged) = mpsc::channel(QUEUE);
    let receives = tokio::spawn(receive(from, inputs, pings, protocol == V5));
    let (outcome, sent) = tokio::join!(run(Session { input, output }), send(&mut to, outputs, pinged));
    let end = async {
        sent?;
        message(&mut to, STATUS, outcome.status().to_string().as_bytes()).await?;
        websocket::write(&mut to, Opcode::Close, [&CLOSE_NORMAL, &[]]).await?;
        to.shutdown().await
    };
    let end = end.await;
    let abort = receives.abort_handle();
    if end.is_err() || tokio::time::timeout(LINGER, receives).await.is_err() {
        abort.abort();
    }
    end
}

/// Sends output until the command has ended. After an error, the command sees that its client has disconnected.
async fn send<S: AsyncWrite>(
    to: &mut WriteHalf<S>,
    mut outputs: mpsc::Receiver<(Output, Bytes)>,
    mut pinged: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            Some(data) = pinged.recv() => websocket::write(to, Opcode::Pong, [&data, &[]]).await?,
            output = outputs.recv() => match output {
                Some((Output::Stdout, data)) => message(to, STDOUT, &data).await?,
                Some((Output::Stderr, data)) => message(to, STDERR, &data).await?,
                None => return Ok(()),
            },
        }
    }
}

async fn message<S: AsyncWrite>(to: &mut WriteHalf<S>, channel: u8, data: &[u8]) -> io::Result<()> {
    websocket::write(to, Opcode::Binary, [&[channel], data]).await
}

/// Receives until the client closes the connection.
async fn receive<S: AsyncRead>(
    from: ReadHalf<S>,
    inputs: mpsc::Sender<Input>,
    pings: mpsc::Sender<Bytes>,
    closes: bool,
) {
    let mut from = Reader::new(BufReader::new(from));
    loop {
        let input = match from.next().await {
            Ok(Some(Message::Data(message))) => read(message, closes),
            Ok(Some(Message::Ping(data))) => {
                let _ = pings.send(data).await;
                None
            }
            Ok(Some(Message::Close) | None) => return,
            Err(error) => {
                tracing::debug!("cannot read from the client: {error}");
                return;
            }
        };
        if let Some(input) = input {
            // After the end of the command, input is discarded.
            let _ = inputs.send(input).await;
        }
    }
}

/// The input in a message. Unknown channels are ignored.
fn read(mut message: Bytes, closes: bool) -> Option<Input> {
    let channel = message.try_get_u8().ok()?;
    match channel {
        // Some clients open a channel with an empty message.
        STDIN => (!message.is_empty()).then_some(Input::Stdin(message)),
        RESIZE => resize(&message),
        CLOSE if closes => (*message == [STDIN]).then_some(Input::StdinEnd),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Size;
    use super::*;
    use crate::websocket::tests::masked;
    use tokio::io::{AsyncReadExt, DuplexStream};

    async fn frame(client: &mut DuplexStream) -> Vec<u8> {
        let _ = client.read_u8().await.unwrap();
        let mut payload = vec![0; usize::from(client.read_u8().await.unwrap())];
        client.read_exact(&mut payload).await.unwrap();
        payload
    }

    fn binary(payload: &[u8]) -> Vec<u8> {
        masked(true, Opcode::Binary, payload)
    }

    #[test]
    fn a_message_names_its_channel() {
        let read = |message: &'static [u8], closes| read(Bytes::from_static(message), closes);
        assert_eq!(read(b"\0hi", true), Some(Input::Stdin("hi".into())));
        let size = Size { width: 80, height: 25 };
        assert_eq!(read(b"\x04{\"Width\":80,\"Height\":25}", true), Some(Input::Resize(size)));
        assert_eq!(read(b"\xff\0", true), Some(Input::StdinEnd));
        for (message, closes) in [
            (&b""[..], true),
            (b"\0", true),
            (b"\x04{", true),
            (b"\xff", true),
            (b"\xff\x01", true),
            (b"\xff\0", false),
            (b"\x09x", true),
        ] {
            assert_eq!(read(message, closes), None, "{message:?}");
        }
    }

    #[tokio::test]
    async fn input_output_and_exit_code_reach_the_other_side() {
        let (here, mut client) = tokio::io::duplex(1024);
        let served = tokio::spawn(serve(V5, here, async |mut session: Session| {
            assert_eq!(session.input.recv().await, Some(Input::Stdin("in".into())));
            assert_eq!(session.input.recv().await, Some(Input::StdinEnd));
            session.output.send((Output::Stdout, "out".into())).await.unwrap();
            session.output.send((Output::Stderr, "err".into())).await.unwrap();
            Outcome::Exited(7)
        }));
        client.write_all(&[binary(b"\0in"), binary(b"\xff\0")].concat()).await.unwrap();
        assert_eq!(frame(&mut client).await, b"\x01out");
        assert_eq!(frame(&mut client).await, b"\x02err");
        let mut head = [0; 4];
        client.read_exact(&mut head).await.unwrap();
        let mut status = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]]))];
        client.read_exact(&mut status).await.unwrap();
        assert_eq!(status[0], STATUS);
        let status: serde_json::Value = serde_json::from_slice(&status[1..]).unwrap();
        assert_eq!(status["details"]["causes"][0]["message"], "7");
        assert_eq!(frame(&mut client).await, CLOSE_NORMAL);
        client.write_all(&masked(true, Opcode::Close, &CLOSE_NORMAL)).await.unwrap();
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_command_sees_that_its_client_has_disconnected() {
        let (here, client) = tokio::io::duplex(1024);
        let served = tokio::spawn(serve(V5, here, async |mut session: Session| {
            assert_eq!(session.input.recv().await, None);
            Outcome::Exited(0)
        }));
        drop(client);
        assert!(served.await.unwrap().is_err());
    }
}
