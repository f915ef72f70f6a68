//! One task per agent: sends batches in parts, as fast as the agent reads them, and receives reports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;
use types::control::Batch;

use super::grpc::{Messages, StreamBody, StreamItem, framed};
use super::limits::Slot;
use super::{Controller, Feed, Refusal, Timeouts};
use crate::control::decode;
use crate::control::parts::Parts;
use crate::control::wire::{self, from_agent::Kind};

/// The gRPC method of the stream.
pub(super) const PATH: &str = "/antrea.control.v1.Control/Follow";

/// Accepts streams of agents.
pub(super) struct Service<C> {
    controller: Arc<C>,
    timeouts: Timeouts,
}

impl<C> Clone for Service<C> {
    fn clone(&self) -> Self {
        Self { controller: Arc::clone(&self.controller), timeouts: self.timeouts }
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
    pub(super) fn new(controller: Arc<C>, timeouts: Timeouts) -> Self {
        Self { controller, timeouts }
    }

    /// Opens the stream that a request asks for, if the agent is accepted.
    pub(super) async fn follow(self, request: Request<Incoming>, slot: &Slot) -> Result<Response<StreamBody>, Status> {
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let token =
            token.ok_or_else(|| Status::unauthenticated("missing token; send `authorization: Bearer TOKEN`"))?;
        let mut incoming = Messages::of(request.into_body());
        let late = |_| Status::deadline_exceeded("the agent did not send a hello with its Node name in time");
        let hello = timeout(self.timeouts.hello, incoming.next()).await.map_err(late)??;
        let Some(wire::FromAgent { kind: Some(Kind::Hello(wire::Hello { node })) }) = hello else {
            return Err(Status::invalid_argument("the first message must be a hello with the Node name"));
        };
        let feed = self.controller.admit(&token, &node).await?;
        slot.release();
        incoming.admitted();
        // One part is in flight to HTTP/2, which applies the back pressure of the agent.
        let (parts, outgoing) = mpsc::channel(1);
        let agent = Agent { controller: self.controller, node, timeouts: self.timeouts };
        tokio::spawn(agent.run(feed, incoming, parts));
        Ok(StreamBody::answer(outgoing))
    }
}

struct Agent<C> {
    controller: Arc<C>,
    node: String,
    timeouts: Timeouts,
}

impl<C: Controller> Agent<C> {
    async fn run(self, feed: C::Feed, incoming: Messages, parts: mpsc::Sender<Box<StreamItem>>) {
        let node = &self.node;
        let sending = async {
            match timeout(self.lifetime(), self.send_batches(feed, &parts)).await {
                Ok(status) => status,
                Err(_) => Status::aborted("the agent has to authenticate again; it can reconnect immediately"),
            }
        };
        tokio::select! {
            status = sending => {
                tracing::info!(%node, "closed the stream to the agent: {}", status.message());
                // The agent gets the status, unless it does not read.
                let _ = parts.try_send(Box::new(Err(status)));
            }
            why = self.receive_reports(incoming) => tracing::debug!(%node, "agent disconnected: {why}"),
            () = parts.closed() => tracing::debug!(%node, "agent disconnected"),
        }
    }

    /// The time until the agent has to authenticate again. Agents that connected together do not all reconnect together.
    fn lifetime(&self) -> Duration {
        let mut hasher = DefaultHasher::new();
        self.node.hash(&mut hasher);
        let share = hasher.finish() % 1024;
        self.timeouts.admitted + self.timeouts.admitted.mul_f64(share as f64 / 1024.0)
    }

    async fn send_batches(&self, mut feed: C::Feed, parts: &mpsc::Sender<Box<StreamItem>>) -> Status {
        while let Some(batch) = feed.next().await {
            // Boxed, so that its memory is freed after sending.
            if let Err(status) = Box::pin(self.send(batch, parts)).await {
                return status;
            }
        }
        Status::aborted("replaced by a newer stream of the same Node")
    }

    async fn send(&self, batch: Batch, parts: &mpsc::Sender<Box<StreamItem>>) -> Result<(), Status> {
        for part in Parts::of(batch) {
            let sent = timeout(self.timeouts.slow, parts.send(Box::new(Ok(framed(&part))))).await;
            let slow = |_| {
                Status::resource_exhausted(format!(
                    "the agent read nothing for {} s; it can reconnect and gets a snapshot",
                    self.timeouts.slow.as_secs_f64()
                ))
            };
            sent.map_err(slow)?.map_err(|_| Status::cancelled("the agent disconnected"))?;
        }
        Ok(())
    }

    async fn receive_reports(&self, mut incoming: Messages) -> String {
        loop {
            match incoming.next().await {
                Ok(Some(wire::FromAgent { kind: Some(Kind::Reports(reports)) })) => match decode::reports(reports) {
                    Ok(reports) => Box::pin(self.controller.report(&self.node, reports)).await,
                    Err(error) => return error.to_string(),
                },
                // A message of a newer version.
                Ok(Some(_)) => {}
                Ok(None) => return "it closed the stream".to_owned(),
                Err(status) => return status.message().to_owned(),
            }
        }
    }
}
