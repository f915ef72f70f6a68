//! Requests of people to the lab that runs. Only root can connect: others may not write to the socket.

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::accepting::or_pause;
use crate::progress::News;
use crate::request::Wish;
use crate::state::Home;

/// What somebody wants, and who hears how it goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) wish: Wish,
    listener: OwnedWriteHalf,
}

/// The requests, one after the other.
pub(crate) struct Requests(mpsc::Receiver<Request>);

impl Requests {
    /// Takes requests at the lab's socket.
    pub(crate) fn listen(home: &Home) -> Result<Self> {
        let path = home.socket();
        let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            loop {
                match or_pause(listener.accept().await).await {
                    Ok((stream, _)) => drop(tokio::spawn(read(stream, sender.clone()))),
                    Err(error) => tracing::warn!("a request was not heard: {error}"),
                }
            }
        });
        Ok(Self(receiver))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Request {
        match self.0.recv().await {
            Some(request) => request,
            // Whoever listens has panicked; the lab lives on.
            None => std::future::pending().await,
        }
    }
}

async fn read(stream: UnixStream, requests: mpsc::Sender<Request>) {
    let (reader, mut listener) = stream.into_split();
    let line = BufReader::new(reader).lines().next_line().await.ok().flatten().unwrap_or_default();
    match serde_json::from_str(&line) {
        Ok(wish) => drop(requests.send(Request { wish, listener }).await),
        Err(error) => tell(&mut listener, &News::Failed(format!("cannot read the request {line:?}: {error}"))).await,
    }
}

impl Request {
    /// Tells whoever asked, if they still listen.
    pub(crate) async fn tell(&mut self, news: &News) {
        tell(&mut self.listener, news).await;
    }
}

async fn tell(listener: &mut OwnedWriteHalf, news: &News) {
    if let Ok(line) = serde_json::to_string(news) {
        let _ = listener.write_all(format!("{line}\n").as_bytes()).await;
    }
}
