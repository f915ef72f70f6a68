//! Requests to the API without which a Node cannot start.

use std::time::Duration;

use anyhow::{Result, anyhow};
use testkit::wait::scaled;
use tokio::time::{Instant, sleep_until, timeout};

use crate::node::daemon::Backoff;

/// How long to repeat a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of all attempts together.
    total: Duration,
    /// Of one attempt: a connection may be lost without notice.
    attempt: Duration,
}

/// Limits at the start of a Node.
pub(super) const START: Limits = Limits { total: Duration::from_secs(60), attempt: Duration::from_secs(10) };

/// Repeats a request with growing pauses until it succeeds. `what` completes the sentence "cannot ...".
pub(super) async fn retry<A>(what: &str, limits: Limits, mut request: impl FnMut() -> A) -> Result<()>
where
    A: Future<Output = Result<()>>,
{
    let (total, attempt) = (scaled(limits.total), scaled(limits.attempt));
    let (start, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        let answer = timeout(attempt, request()).await.unwrap_or_else(|_| Err(anyhow!("no answer within {attempt:?}")));
        let Err(error) = answer else { return Ok(()) };
        let pause = backoff.next();
        if start.elapsed() + pause > total {
            return Err(error.context(format!("cannot {what} within {total:?}")));
        }
        tracing::warn!("cannot {what}: {error:#}; retrying in {pause:?}");
        sleep_until(Instant::now() + pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SHORT: Limits = Limits { total: Duration::from_secs(1), attempt: Duration::from_millis(50) };

    #[tokio::test]
    async fn a_request_that_fails_or_is_not_answered_is_sent_again() {
        let sent = Cell::new(0);
        let request = async || match sent.replace(sent.get() + 1) {
            0 => Err(anyhow!("connection refused")),
            1 => std::future::pending().await,
            _ => Ok(()),
        };
        retry("write the status of Node node-1", SHORT, request).await.unwrap();
        assert_eq!(sent.get(), 3);
    }

    #[tokio::test]
    async fn a_node_does_not_wait_for_the_api_for_ever() {
        let (start, sent) = (Instant::now(), Cell::new(0));
        let request = async || {
            sent.set(sent.get() + 1);
            Err(anyhow!("connection refused"))
        };
        let error = format!("{:#}", retry("write the status of Node node-1", SHORT, request).await.unwrap_err());
        assert!(error.starts_with("cannot write the status of Node node-1 within "), "{error}");
        assert!(error.ends_with(": connection refused"), "{error}");
        // The pauses grow.
        assert!(sent.get() < 10 && start.elapsed() <= scaled(SHORT.total), "{sent:?}");
    }
}
