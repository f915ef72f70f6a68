//! A pause after a failed `accept`.

use std::io;
use std::time::{Duration, Instant};

/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the result of `accept`, after a pause if it is an error: with too many open files, it would fail again at once.
pub(crate) async fn or_pause<T>(accepted: io::Result<T>) -> io::Result<T> {
    if accepted.is_err() {
        let next = Instant::now() + PAUSE;
        tokio::time::sleep_until(next.into()).await;
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_error_is_followed_by_a_pause() {
        let began = Instant::now();
        assert!(or_pause(Err::<(), _>(io::ErrorKind::Other.into())).await.is_err());
        assert!(began.elapsed() >= PAUSE);
        let accepted = tokio::time::timeout(Duration::ZERO, or_pause(Ok(()))).await;
        assert!(accepted.is_ok_and(|accepted| accepted.is_ok()));
    }
}
