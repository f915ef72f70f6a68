//! The plugin's side of the socket: one connection for each call.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::time;
use tonic::Status;

use super::wire::cni_client::CniClient;
use super::wire::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
use super::{Attachment, Code, Command, Error};
use crate::channel::Channel;

/// Timeout of a call. Runtimes give up after two minutes or later, and then do not report why it failed.
pub const TIMEOUT: Duration = Duration::from_secs(90);

/// Sends a command to the agent that listens at `socket`, and returns the attachment of an ADD.
///
/// An agent that does not run, or does not answer within `timeout`, is an error with a hint where to look and the code
/// for "try again later"; STATUS has a code of its own for this.
pub async fn call(socket: &Path, command: &Command, timeout: Duration) -> Result<Option<Attachment>, Error> {
    let outcome = time::timeout(timeout, converse(socket, command)).await.unwrap_or_else(|_| {
        let message = format!("antrea-agent did not answer within {} s", timeout.as_secs_f64());
        Err(Error::try_again(message, hint(socket)))
    });
    match command {
        Command::Status => outcome.map_err(|error| match error.code {
            Code::TryAgainLater => Error { code: Code::NotAvailable, ..error },
            _ => error,
        }),
        _ => outcome,
    }
}

async fn converse(socket: &Path, command: &Command) -> Result<Option<Attachment>, Error> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(socket, &error))?;
    let lost = |error: hyper::Error| lost(socket, &error);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(lost)?;
    tokio::spawn(connection);
    // HTTP/2 requires an authority; a unix socket has none.
    let origin = http::Uri::from_static("http://antrea-agent");
    let mut client = CniClient::with_origin(Channel(sender), origin);
    let failed = |status: Status| failed(socket, &status);
    match command {
        Command::Add(call) => {
            let reply = client.add(AddRequest { call: Some(call.into()) }).await.map_err(failed)?;
            Result::from(reply.into_inner()).map(Some)
        }
        Command::Del(release) => {
            let done = client.del(DelRequest::from(release)).await.map_err(failed)?;
            Result::from(done.into_inner()).map(|()| None)
        }
        Command::Check(call, expected) => {
            let request = CheckRequest { call: Some(call.into()), expected: Some(expected.into()) };
            let done = client.check(request).await.map_err(failed)?;
            Result::from(done.into_inner()).map(|()| None)
        }
        Command::Status => {
            let done = client.status(StatusRequest {}).await.map_err(failed)?;
            Result::from(done.into_inner()).map(|()| None)
        }
        Command::Gc(valid) => {
            let request = GcRequest { valid: valid.iter().map(Into::into).collect() };
            let done = client.gc(request).await.map_err(failed)?;
            Result::from(done.into_inner()).map(|()| None)
        }
    }
}

fn unreachable(socket: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let details = format!("{}: {error}; container runtimes run plugins as root", socket.display());
        return Error::new(Code::Io, "cannot connect to antrea-agent").with_details(details);
    }
    Error::try_again("antrea-agent is not running or not ready yet", format!("{error}: {}", hint(socket)))
}

fn lost(socket: &Path, error: &hyper::Error) -> Error {
    Error::try_again("lost the connection to antrea-agent", format!("{error}: {}", hint(socket)))
}

fn failed(socket: &Path, status: &Status) -> Error {
    match status.code() {
        tonic::Code::Unimplemented => Error::try_again(
            "antrea-agent does not know this call",
            "antrea-cni and antrea-agent are of different versions; an upgrade may be under way",
        ),
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled => {
            Error::try_again("lost the connection to antrea-agent", format!("{}: {}", status.message(), hint(socket)))
        }
        code => Error::new(Code::Rpc, format!("antrea-agent rejected the call: {code}")).with_details(status.message()),
    }
}

fn hint(socket: &Path) -> String {
    format!(
        "the agent of this Node listens at {}; look at `kubectl get pods -n kube-system -l component=antrea-agent -o wide` and at \
         its log",
        socket.display()
    )
}
