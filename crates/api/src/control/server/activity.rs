//! Tracks the requests of a connection, to close idle ones.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The open requests of a connection; an agent's stream is one.
#[derive(Clone, Default)]
pub(super) struct Activity(Arc<Counted>);

#[derive(Default)]
struct Counted {
    requests: AtomicUsize,
    changed: Notify,
}

impl Activity {
    /// Counts a request until the returned value is dropped.
    pub(super) fn begin(&self) -> Busy {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.changed.notify_one();
        Busy(self.clone())
    }

    /// Returns when there was no request for `first`, or, after the first one, for `then`.
    pub(super) async fn has_ended(&self, first: Duration, then: Duration) {
        let mut limit = first;
        loop {
            let changed = self.0.changed.notified();
            if self.0.requests.load(Ordering::Relaxed) > 0 {
                changed.await;
            } else if timeout(limit, changed).await.is_err() {
                return;
            }
            limit = then;
        }
    }
}

/// An open request; dropping it ends it.
pub(super) struct Busy(Activity);

impl Busy {
    /// Wraps the response body: the request is open until the body was read.
    pub(super) fn body<B>(self, body: B) -> Answer<B> {
        Answer { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.0.changed.notify_one();
    }
}

/// A response body of an open request.
pub(super) struct Answer<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
