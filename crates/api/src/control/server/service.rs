//! One task an agent: it asks for a batch, hands it on in parts as fast as the agent takes them, and hears reports meanwhile.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;
use types::control::Batch;

use super::grpc::{Messages, Said, Told, framed};
use super::visits::Visit;
use super::{Controller, Feed, Patience, Refusal};
use crate::control::decode;
use crate::control::parts::Parts;
use crate::control::wire::{self, from_agent::Kind};

/// Where the stream is.
pub(super) const PATH: &str = "/antrea.control.v1.Control/Follow";

/// Lets agents in.
pub(super) struct Service<C> {
    controller: Arc<C>,
    patience: Patience,
}

impl<C> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self { controller: Arc::clone(&self.controller), patience: self.patience }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Token(why) => Self::unauthenticated(why),
            Refusal::Forbidden(why) => Self::permission_denied(why),
            Refusal::Unavailable(why) => Self::unavailable(why),
        }
    }
}

impl<C: Controller> Service<C> {
    pub(super) fn new(controller: Arc<C>, patience: Patience) -> Self {
        Self { controller, patience }
    }

    /// The stream to an agent that comes with this request, if it is let in.
    pub(super) async fn follow(self, request: Request<Incoming>, visit: &Visit) -> Result<Response<Told>, Status> {
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let token = token.ok_or_else(|| Status::unauthenticated("needs a token: `authorization: Bearer TOKEN`"))?;
        let mut incoming = Messages::of(request.into_body());
        let late = |_| Status::deadline_exceeded("the agent did not say which Node it is of");
        let hello = timeout(self.patience.hello, incoming.next()).await.map_err(late)??;
        let Some(wire::FromAgent { kind: Some(Kind::Hello(wire::Hello { node })) }) = hello else {
            return Err(Status::invalid_argument("the first message of an agent is a hello with its Node"));
        };
        let feed = self.controller.admit(&token, &node).await?;
        visit.admitted();
        incoming.admitted();
        // One part is on its way to HTTP/2, which stops taking them when the agent does.
        let (parts, outgoing) = mpsc::channel(1);
        let agent = Agent { controller: self.controller, node, patience: self.patience };
        tokio::spawn(agent.run(feed, incoming, parts));
        Ok(Told::answer(outgoing))
    }
}

struct Agent<C> {
    controller: Arc<C>,
    node: String,
    patience: Patience,
}

impl<C: Controller> Agent<C> {
    async fn run(self, feed: C::Feed, incoming: Messages, parts: mpsc::Sender<Box<Said>>) {
        let node = &self.node;
        let told = async {
            match timeout(self.life(), self.tell(feed, &parts)).await {
                Ok(status) => status,
                Err(_) => {
                    Status::aborted("an agent has to show again from time to time who it is; it may come again at once")
                }
            }
        };
        tokio::select! {
            status = told => {
                tracing::info!(%node, "the stream to an agent is ended: {}", status.message());
                // It hears why, unless it takes nothing.
                let _ = parts.try_send(Box::new(Err(status)));
            }
            why = self.hear(incoming) => tracing::debug!(%node, "an agent has gone: {why}"),
            () = parts.closed() => tracing::debug!(%node, "an agent has gone"),
        }
    }

    /// How long it is told without being asked again who it is. Agents that came at once do not all come again at once.
    fn life(&self) -> Duration {
        let mut hasher = DefaultHasher::new();
        self.node.hash(&mut hasher);
        let share = hasher.finish() % 1024;
        self.patience.admitted + self.patience.admitted.mul_f64(share as f64 / 1024.0)
    }

    async fn tell(&self, mut feed: C::Feed, parts: &mpsc::Sender<Box<Said>>) -> Status {
        while let Some(batch) = feed.next().await {
            // It has memory of its own, which is there as long as there is something to send.
            if let Err(status) = Box::pin(self.send(batch, parts)).await {
                return status;
            }
        }
        Status::aborted("the Node has another stream")
    }

    async fn send(&self, batch: Batch, parts: &mpsc::Sender<Box<Said>>) -> Result<(), Status> {
        for part in Parts::of(batch) {
            let sent = timeout(self.patience.slow, parts.send(Box::new(Ok(framed(&part))))).await;
            let slow = |_| {
                Status::resource_exhausted(format!(
                    "the agent took nothing for {} s; it may come again for a snapshot",
                    self.patience.slow.as_secs_f64()
                ))
            };
            sent.map_err(slow)?.map_err(|_| Status::cancelled("the agent has gone"))?;
        }
        Ok(())
    }

    async fn hear(&self, mut incoming: Messages) -> String {
        loop {
            match incoming.next().await {
                Ok(Some(wire::FromAgent { kind: Some(Kind::Reports(reports)) })) => match decode::reports(reports) {
                    Ok(reports) => Box::pin(self.controller.report(&self.node, reports)).await,
                    Err(error) => return error.to_string(),
                },
                // A kind of a newer version.
                Ok(Some(_)) => {}
                Ok(None) => return "it has ended the stream".to_owned(),
                Err(status) => return status.message().to_owned(),
            }
        }
    }
}
