//! The gRPC service behind the socket: each call waits for its turn and runs in a task of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use tonic::{Request, Response, Status};

use super::Handler;
use crate::cni::lanes::{Lanes, Turn};
use crate::cni::wire::{self, cni_server::Cni};
use crate::cni::{Attachment, Code, Error, Release, convert};

pub(super) struct Service<H> {
    handler: Arc<H>,
    lanes: Arc<Lanes>,
}

impl<H: Handler> Service<H> {
    pub(super) fn new(handler: H, lanes: Arc<Lanes>) -> Self {
        Self { handler: Arc::new(handler), lanes }
    }

    /// Runs `work` to its end, even if the client disconnects; the turn ends with it.
    async fn run<T, F>(&self, what: String, turn: Turn, work: impl FnOnce(Arc<H>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.handler));
        let task = tokio::spawn(async move {
            let start = Instant::now();
            let outcome = work.await;
            let took = start.elapsed();
            match &outcome {
                Ok(_) => tracing::info!(?took, "{what}: done"),
                Err(error) => tracing::warn!(?took, code = error.code.number(), "{what}: {error}"),
            }
            drop(turn);
            outcome
        });
        // The task is never aborted while the runtime lives, so it has panicked.
        let bug = || Error::new(Code::Internal, "a bug in antrea-agent").with_details("its log has a panic message");
        task.await.unwrap_or_else(|_| Err(bug()))
    }

    async fn add(&self, request: wire::AddRequest) -> Result<Attachment, Error> {
        let call = convert::add(request)?;
        let turn = self.lanes.turn(&call.id.container).await?;
        let what = format!("CNI ADD {} {}", call.pod, call.id);
        self.run(what, turn, |handler| async move { handler.add(&call).await }).await
    }

    async fn del(&self, request: wire::DelRequest) -> Result<(), Error> {
        let release = Release::try_from(request)?;
        let turn = self.lanes.turn(&release.id.container).await?;
        let what = format!("CNI DEL {}", release.id);
        self.run(what, turn, |handler| async move { handler.del(&release).await }).await
    }

    async fn check(&self, request: wire::CheckRequest) -> Result<(), Error> {
        let (call, expected) = convert::check(request)?;
        let turn = self.lanes.turn(&call.id.container).await?;
        let what = format!("CNI CHECK {} {}", call.pod, call.id);
        self.run(what, turn, |handler| async move { handler.check(&call, &expected).await }).await
    }

    async fn gc(&self, request: wire::GcRequest) -> Result<(), Error> {
        let valid = convert::gc(request)?;
        let turn = self.lanes.turn_alone().await?;
        let what = format!("CNI GC, all but {} attachments", valid.len());
        self.run(what, turn, |handler| async move { handler.gc(&valid).await }).await
    }
}

/// Errors of calls are part of the reply; gRPC statuses are for errors of gRPC.
#[tonic::async_trait]
impl<H: Handler> Cni for Service<H> {
    async fn add(&self, request: Request<wire::AddRequest>) -> Result<Response<wire::AddReply>, Status> {
        Ok(Response::new(Service::add(self, request.into_inner()).await.into()))
    }

    async fn del(&self, request: Request<wire::DelRequest>) -> Result<Response<wire::Done>, Status> {
        Ok(Response::new(Service::del(self, request.into_inner()).await.into()))
    }

    async fn check(&self, request: Request<wire::CheckRequest>) -> Result<Response<wire::Done>, Status> {
        Ok(Response::new(Service::check(self, request.into_inner()).await.into()))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Result<Response<wire::Done>, Status> {
        // It changes nothing, so it needs no turn and is answered under overload too.
        Ok(Response::new(self.handler.status().await.into()))
    }

    async fn gc(&self, request: Request<wire::GcRequest>) -> Result<Response<wire::Done>, Status> {
        Ok(Response::new(Service::gc(self, request.into_inner()).await.into()))
    }
}
