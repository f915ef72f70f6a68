//! Accepts requests of `join` and `leave`. Only root can connect to the socket.

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::accept::or_pause;
use crate::progress::Progress;
use crate::request::Change;
use crate::state::Home;

/// A request, and the connection for its progress messages.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) change: Change,
    listener: OwnedWriteHalf,
}

/// The queue of requests.
pub(crate) struct Requests(mpsc::Receiver<Request>);

impl Requests {
    /// Accepts requests on the lab's socket.
    pub(crate) fn listen(home: &Home) -> Result<Self> {
        let path = home.socket();
        let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            loop {
                match or_pause(listener.accept().await).await {
                    Ok((stream, _)) => drop(tokio::spawn(read(stream, sender.clone()))),
                    Err(error) => tracing::warn!("cannot accept a request: {error}"),
                }
            }
        });
        Ok(Self(receiver))
    }

    pub(crate) async fn next(&mut self) -> Request {
        match self.0.recv().await {
            Some(request) => request,
            // The task that accepts requests has panicked; the lab goes on.
            None => std::future::pending().await,
        }
    }
}

async fn read(stream: UnixStream, requests: mpsc::Sender<Request>) {
    let (reader, mut listener) = stream.into_split();
    let line = BufReader::new(reader).lines().next_line().await.ok().flatten().unwrap_or_default();
    match serde_json::from_str(&line) {
        Ok(change) => drop(requests.send(Request { change, listener }).await),
        Err(error) => {
            send(&mut listener, &Progress::Failed(format!("cannot read the request {line:?}: {error}"))).await;
        }
    }
}

impl Request {
    /// Sends a progress message, if the client is still connected.
    pub(crate) async fn send(&mut self, progress: &Progress) {
        send(&mut self.listener, progress).await;
    }
}

async fn send(listener: &mut OwnedWriteHalf, progress: &Progress) {
    if let Ok(line) = serde_json::to_string(progress) {
        let _ = listener.write_all(format!("{line}\n").as_bytes()).await;
    }
}
