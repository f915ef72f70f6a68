//! Over SPDY: a stream for each of input, output, error output, sizes and status, which the client opens.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Input, Outcome, Output, Session, Wants, resize};
use crate::QUEUE;
use crate::spdy::{Connection, Received, Stream, Writer};

/// How long to wait for the client to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams of a client.
#[derive(Default)]
struct Streams {
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
    status: Option<Stream>,
}

impl Streams {
    /// Waits until the client has opened the streams that its request asks for.
    async fn open(connection: &mut Connection, wants: Wants) -> io::Result<Self> {
        let mut streams = Self::default();
        while !streams.is_complete(wants) {
            let Some(stream) = connection.opened().await else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let slot = match stream.headers.get("streamtype").map(String::as_str) {
                Some("stdin") => &mut streams.stdin,
                Some("stdout") => &mut streams.stdout,
                Some("stderr") => &mut streams.stderr,
                Some("resize") => &mut streams.resize,
                Some("error") => &mut streams.status,
                _ => {
                    stream.writer.reset().await?;
                    continue;
                }
            };
            *slot = Some(stream);
        }
        Ok(streams)
    }

    fn is_complete(&self, wants: Wants) -> bool {
        let has = |stream: &Option<Stream>, wanted: bool| stream.is_some() || !wanted;
        has(&self.stdin, wants.stdin)
            && has(&self.stdout, wants.stdout)
            && has(&self.stderr, wants.stderr && !wants.tty)
            && has(&self.resize, wants.tty)
            && self.status.is_some()
    }
}

pub(super) async fn serve<S, R>(stream: S, wants: Wants, run: impl FnOnce(Session) -> R) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    R: Future<Output = Outcome>,
{
    let mut connection = Connection::serve(stream);
    let streams = tokio::time::timeout(OPEN_TIMEOUT, Streams::open(&mut connection, wants)).await??;
    let (inputs, input) = mpsc::channel(QUEUE);
    let (output, outputs) = mpsc::channel(QUEUE);
    let writer = |stream: &Option<Stream>| stream.as_ref().map(|stream| stream.writer.clone());
    let (stdout, stderr, status) = (writer(&streams.stdout), writer(&streams.stderr), writer(&streams.status));
    let mut receives = JoinSet::new();
    if let Some(stdin) = streams.stdin {
        receives.spawn(receive_stdin(stdin, inputs.clone()));
    }
    if let Some(sizes) = streams.resize {
        receives.spawn(receive_sizes(sizes, inputs.clone()));
    }
    // The connection ends with the client, and the input with the connection.
    let ends = async {
        while connection.opened().await.is_some() {}
        receives.shutdown().await;
        drop(inputs);
        std::future::pending().await
    };
    let outcome =
        async { tokio::join!(run(Session { input, output }), send(outputs, stdout.as_ref(), stderr.as_ref())) };
    let (outcome, sent) = tokio::select! {
        outcome = outcome => outcome,
        never = ends => never,
    };
    sent?;
    for writer in [stdout, stderr].into_iter().flatten() {
        writer.finish().await?;
    }
    if let Some(status) = status {
        status.write(outcome.status().to_string().into()).await?;
        status.finish().await?;
    }
    connection.close().await;
    Ok(())
}

async fn send(
    mut outputs: mpsc::Receiver<(Output, Bytes)>,
    stdout: Option<&Writer>,
    stderr: Option<&Writer>,
) -> io::Result<()> {
    while let Some((output, data)) = outputs.recv().await {
        let to = match output {
            Output::Stdout => stdout,
            Output::Stderr => stderr,
        };
        if let Some(to) = to {
            to.write(data).await?;
        }
    }
    Ok(())
}

async fn receive_stdin(mut stream: Stream, inputs: mpsc::Sender<Input>) {
    loop {
        let (input, ended) = match stream.reader.next().await {
            Received::Data(data) => (Input::Stdin(data), false),
            Received::End | Received::Reset => (Input::StdinEnd, true),
        };
        if inputs.send(input).await.is_err() || ended {
            return;
        }
    }
}

/// Each size is a JSON object; a frame may contain a part of one.
async fn receive_sizes(mut stream: Stream, inputs: mpsc::Sender<Input>) {
    let mut text = Vec::new();
    while let Received::Data(data) = stream.reader.next().await {
        text.extend(data);
        while let Some(end) = text.iter().position(|byte| *byte == b'}') {
            let one: Vec<u8> = text.drain(..=end).collect();
            if let Some(input) = resize(&one) {
                let _ = inputs.send(input).await;
            }
        }
        if text.len() > crate::CHUNK {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Size;
    use super::*;
    use crate::spdy::tests::{client, data};

    const WANTS: Wants = Wants { stdin: true, stdout: true, stderr: true, tty: false };

    #[tokio::test]
    async fn input_output_and_exit_code_reach_the_other_side() {
        let (here, there) = tokio::io::duplex(1024);
        let served = tokio::spawn(serve(here, WANTS, async |mut session: Session| {
            assert_eq!(session.input.recv().await, Some(Input::Stdin("in".into())));
            assert_eq!(session.input.recv().await, Some(Input::StdinEnd));
            session.output.send((Output::Stderr, "err".into())).await.unwrap();
            session.output.send((Output::Stdout, "out".into())).await.unwrap();
            Outcome::Failed("no such file".into())
        }));
        let mut client = client(there);
        for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
            client.open(stream, &[("streamtype", kind)], false).await;
        }
        client.send(3, "in", true).await;
        let received = data(&mut client, 3).await;
        assert_eq!((&received[&5][..], &received[&7][..]), ("out", "err"));
        assert!(received[&1].contains("no such file"), "{received:?}");
        drop(client);
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn sizes_are_read_from_parts_and_a_lost_client_ends_the_input() {
        let (here, there) = tokio::io::duplex(1024);
        let wants = Wants { stdin: false, stdout: true, stderr: false, tty: true };
        let served = tokio::spawn(serve(here, wants, async |mut session: Session| {
            let size = Size { width: 80, height: 25 };
            assert_eq!(session.input.recv().await, Some(Input::Resize(size)));
            assert_eq!(session.input.recv().await, None);
            Outcome::Exited(0)
        }));
        let mut client = client(there);
        for (stream, kind) in [(1, "error"), (3, "stdout"), (5, "resize")] {
            client.open(stream, &[("streamtype", kind)], false).await;
        }
        client.send(5, "{\"Width\":80,", false).await;
        client.send(5, "\"Height\":25}\n", false).await;
        for _ in 0..3 {
            client.reader.next().await.unwrap().unwrap();
        }
        drop(client);
        // The status may have been sent before the connection was lost.
        let _ = served.await.unwrap();
    }
}
