//! Handles request bodies that a handler leaves unread. On HTTP/1.1 the next request follows the body: hyper closes a
//! connection with an unread body without saying so in the answer, and the caller's next call would fail. A short rest
//! is therefore read and discarded before the answer; with a longer one the answer announces the end of the connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, EXPECT};
use axum::response::Response;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

/// Most bytes that are discarded, and how long they are waited for.
const PASSED_OVER_BYTES: u64 = 64 * 1024;
const PASS_OVER_LIMIT: Duration = Duration::from_secs(1);

/// A body that returns itself if it is dropped before its end.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Option<Incoming>,
    unread: Arc<Mutex<Option<Incoming>>>,
}

/// Receives an unread body.
#[derive(Debug)]
pub(super) struct UnreadBody {
    body: Arc<Mutex<Option<Incoming>>>,
    /// Whether the caller waits for `100 Continue`, which reading the body would send.
    waits_to_be_asked: bool,
}

/// Wraps the body of a request, so that its unread rest comes back.
pub(super) fn lend(request: hyper::Request<Incoming>) -> (hyper::Request<TrackedBody>, UnreadBody) {
    let body = Arc::default();
    let unread = UnreadBody {
        body: Arc::clone(&body),
        waits_to_be_asked: request.headers().contains_key(EXPECT),
    };
    let lent = |incoming| TrackedBody {
        body: Some(incoming),
        unread: body,
    };
    (request.map(lent), unread)
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(none, Body::size_hint)
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = unread;
    }
}

impl UnreadBody {
    /// Discards the unread rest, or has the answer announce the end of the connection.
    pub(super) async fn settle(self, response: &mut Response) {
        let body = self.take();
        let Some(body) = body else { return };
        let asked_for = !self.waits_to_be_asked && body.size_hint().lower() <= PASSED_OVER_BYTES;
        if !asked_for || !is_passed_over(body).await {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
    }

    fn take(&self) -> Option<Incoming> {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.take()
    }
}

/// Whether the body ended within the limits.
async fn is_passed_over(mut body: Incoming) -> bool {
    let passing = async {
        let mut left = PASSED_OVER_BYTES;
        loop {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            let bytes = match frame {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            };
            match left.checked_sub(bytes as u64) {
                Some(still) => left = still,
                None => return false,
            }
        }
    };
    timeout(PASS_OVER_LIMIT, passing).await.unwrap_or(false)
}
