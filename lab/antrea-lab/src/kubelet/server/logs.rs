//! Logs of containers: whole, in part, or as they are written.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use streaming::remote_command::{Outcome, Output, Session};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Context;
use super::super::pod_table::{ContainerView, Phase};
use super::{Body, Failure, Followed, failure, find};
use crate::container_log::{Printer, Selection, Source, complete, records};
use crate::query::parameter;

/// How often a log that is being followed is read.
const POLL: Duration = Duration::from_millis(100);
/// Number of pieces of a log that wait for a slow client.
const QUEUE: usize = 4;

/// Responds with a log.
pub(super) fn serve(
    context: &Arc<Context>,
    namespace: &str,
    pod: &str,
    name: &str,
    query: &str,
) -> Result<Response<Body>, Failure> {
    let selection = selection(query, Timestamp::now())?;
    let flag = |name| parameter(query, name).is_some_and(|value| value == "true" || value == "1");
    let followed = find(context, namespace, pod)?;
    let Some(container) = followed.borrow().container(name).cloned() else {
        return failure(StatusCode::NOT_FOUND, format!("container {name:?} not found in pod {pod:?}"));
    };
    let run = match (&container.phase, flag("previous")) {
        (_, true) => container.previous().ok_or_else(|| {
            let message = format!("previous terminated container {name:?} in pod {pod:?} not found");
            Failure(StatusCode::BAD_REQUEST, message)
        })?,
        (Phase::Waiting(reason), false) => {
            let message = format!("container {name:?} in pod {pod:?} is waiting to start: {reason}");
            return failure(StatusCode::BAD_REQUEST, message);
        }
        (_, false) => container.run,
    };
    let path = context.directory(namespace, pod).join(name).join(format!("{run}.log"));
    let log = Log::open(&path).map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let follow = flag("follow").then(|| Follow { pod: followed, container: name.to_owned(), run });
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        if let Err(error) = send(log, selection, follow, sender).await {
            tracing::warn!("cannot read a log: {error}");
        }
    });
    let pieces = futures::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    });
    Ok(Response::new(StreamBody::new(pieces).boxed_unsync()))
}

fn selection(query: &str, now: Timestamp) -> Result<Selection, Failure> {
    let number = |name: &str| match parameter(query, name).map(|text| text.parse::<u32>().map_err(|_| text)) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(text)) => {
            failure(StatusCode::UNPROCESSABLE_ENTITY, format!("{name}: {text:?} must be a number that is not negative"))
        }
    };
    let size = |number: Option<u32>| number.and_then(|number| usize::try_from(number).ok());
    let seconds = number("sinceSeconds")?.map(|seconds| now - SignedDuration::from_secs(i64::from(seconds)));
    let since = match parameter(query, "sinceTime") {
        None => seconds,
        Some(text) => match text.parse() {
            Ok(time) => Some(time),
            Err(_) => {
                return failure(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    format!("sinceTime: {text:?} must be a time in RFC 3339 format"),
                );
            }
        },
    };
    let timestamps = parameter(query, "timestamps").is_some_and(|value| value == "true" || value == "1");
    Ok(Selection { tail: size(number("tailLines")?), since, timestamps, limit: size(number("limitBytes")?) })
}

/// A log that is read from its beginning.
struct Log {
    file: File,
    /// The beginning of a record whose end is not written yet.
    rest: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, rest: Vec::new() })
    }

    /// The records that were written since the last call.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.file.read_to_end(&mut self.rest)?;
        let rest = self.rest.split_off(complete(&self.rest).len());
        Ok(std::mem::replace(&mut self.rest, rest))
    }
}

/// The run of a container whose log is followed.
struct Follow {
    pod: Followed,
    container: String,
    run: u32,
}

impl Follow {
    /// Waits until the log may have grown. Returns whether it can grow further.
    async fn wait(&mut self) -> bool {
        let again = Instant::now() + POLL;
        tokio::select! {
            () = tokio::time::sleep_until(again) => {}
            // Without a change, the Pod is gone.
            changed = self.pod.changed() => if changed.is_err() { return false },
        }
        let pod = self.pod.borrow_and_update();
        pod.container(&self.container).is_some_and(|container| container.is_writing(self.run))
    }
}

async fn send(
    mut log: Log,
    selection: Selection,
    mut follow: Option<Follow>,
    to: mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut printer = Printer::new(selection.clone());
    let first = log.read()?;
    let mut text = printer.print(selection.tail(&first));
    loop {
        if !text.is_empty() && to.send(text.into()).await.is_err() || printer.is_done() {
            return Ok(());
        }
        let Some(followed) = &mut follow else { return Ok(()) };
        let grows = tokio::select! {
            grows = followed.wait() => grows,
            () = to.closed() => return Ok(()),
        };
        text = printer.print(&log.read()?);
        if !grows {
            follow = None;
        }
    }
}

/// Sends what a container writes from now on, until it ends. Containers of the lab have no input.
pub(super) async fn attach(path: PathBuf, container: ContainerView, pod: Followed, mut session: Session) -> Outcome {
    let mut follow = Follow { pod, container: container.name, run: container.run };
    let copy = async {
        let mut log = Log::open(&path)?;
        log.read()?;
        let mut grows = true;
        while grows {
            grows = follow.wait().await;
            let new = log.read()?;
            for record in records(&new) {
                let output = match record.source {
                    Source::Stdout => Output::Stdout,
                    Source::Stderr => Output::Stderr,
                };
                let line: &[u8] = if record.ends_line { b"\n" } else { b"" };
                if session.output.send((output, [record.text, line].concat().into())).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok::<_, io::Error>(())
    };
    let gone = async { while session.input.recv().await.is_some() {} };
    tokio::select! {
        copied = copy => copied.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Exited(0)),
        () = gone => Outcome::Exited(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_request_are_read_and_invalid_ones_are_errors() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let chosen = selection("tailLines=3&sinceSeconds=60&timestamps=true&limitBytes=9", now).ok().unwrap();
        let since = Some("2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(chosen, Selection { tail: Some(3), since, timestamps: true, limit: Some(9) });
        for query in ["tailLines=-1", "sinceSeconds=x", "sinceTime=yesterday", "limitBytes="] {
            let Err(Failure(status, message)) = selection(query, now) else { panic!("{query}") };
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
            assert!(message.starts_with(query.split_once('=').unwrap().0), "{message}");
        }
    }
}
