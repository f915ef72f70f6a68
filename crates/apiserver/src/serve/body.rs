//! The bodies of answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use hyper::body::Incoming;
use tokio::sync::mpsc;

/// All at once, bit by bit, or what somebody else sends.
pub(crate) enum Body {
    Full(Bytes),
    Stream(mpsc::Receiver<Bytes>),
    Foreign(Incoming),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(receiver) => {
                receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Foreign(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stream(_) => false,
            Self::Foreign(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Full(bytes) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => http_body::SizeHint::default(),
            Self::Foreign(body) => body.size_hint(),
        }
    }
}

/// Nothing goes wrong on the way to an answer: failures are answers.
pub(crate) type Never = Infallible;

/// What is wrong with text that is not JSON, in the words of the real server.
pub(super) fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let lines: Vec<_> = body.split(|byte| *byte == b'\n').collect();
    let line = lines.get(error.line().saturating_sub(1)).copied().unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied().unwrap_or_default();
    let shown = char::from(found);
    let text = error.to_string();
    let place = if text.contains("key must be a string") {
        "looking for beginning of object key string"
    } else if text.contains("expected `:`") {
        "after object key"
    } else if text.contains("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.contains("expected `,` or `]`") {
        "after array element"
    } else if text.contains("trailing comma") {
        "looking for beginning of object key string"
    } else if text.contains("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{shown}' {place}")
}

/// The start of a body, for messages.
pub(super) fn dump(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let start: String = text.chars().take(30).collect();
    if start.len() < text.len() { format!("{start} ...") } else { start }
}
