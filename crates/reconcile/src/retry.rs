//! Something that has to succeed once.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::outage::Outage;

/// Repeats an attempt until it succeeds, with the delays and the log of a reconciler.
pub async fn retry<T, F, A>(what: &str, backoff: (Duration, Duration), mut attempt: impl FnMut() -> A) -> T
where
    F: fmt::Display,
    A: Future<Output = Result<T, F>>,
{
    let mut outage = Outage::new(backoff);
    loop {
        let delay = match attempt().await {
            Ok(value) => {
                outage.succeeded(what);
                return value;
            }
            Err(failure) => outage.failed(what, &[format!("{failure:#}")]),
        };
        sleep_until(Instant::now() + delay).await;
    }
}
