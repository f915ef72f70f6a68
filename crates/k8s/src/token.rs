//! The token file of a client, which the kubelet renews.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;

use crate::client::TokenError;

/// The file is read again after this time. A kubelet renews a token long before it expires.
const REREAD_AFTER: Duration = Duration::from_secs(30);

/// The header with the token of a file. It is read again by the monotonic clock: kube uses the wall clock, and keeps an expired
/// token after the clock was set back.
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    pub(crate) fn open(path: &Path, now: Instant) -> Result<Self, TokenError> {
        let header = read(path).map_err(|error| TokenError::File(path.to_owned(), error))?;
        Ok(Self { path: path.to_owned(), last: Mutex::new((header, now)) })
    }

    /// The value of the header `Authorization`. The last token stays in use while the file cannot be read.
    pub(crate) fn header(&self, now: Instant) -> HeaderValue {
        // The value stays consistent even if a thread panics while it holds the lock.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(last.1) >= REREAD_AFTER {
            let header = read(&self.path).unwrap_or_else(|_| last.0.clone());
            *last = (header, now);
        }
        last.0.clone()
    }
}

fn read(path: &Path) -> io::Result<HeaderValue> {
    let token = std::fs::read_to_string(path)?;
    if token.trim().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_token_is_used_soon_and_a_missing_file_keeps_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let (path, start) = (directory.path().join("token"), Instant::now());
        assert!(TokenFile::open(&path, start).is_err());
        std::fs::write(&path, "first\n").unwrap();
        let file = TokenFile::open(&path, start).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(file.header(start + REREAD_AFTER / 2), "Bearer first");
        assert_eq!(file.header(start + REREAD_AFTER), "Bearer second");
        for (content, after) in [("", 2), ("a\nb", 3)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(file.header(start + REREAD_AFTER * after), "Bearer second", "{content:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.header(start + REREAD_AFTER * 4), "Bearer second");
        std::fs::write(&path, "third").unwrap();
        assert_eq!(file.header(start + REREAD_AFTER * 5), "Bearer third");
    }
}
