//! Cuts connections whose reader stalls, so that unread data cannot hold memory. Upgraded connections, such as a
//! program beside a step, may be as slow as their reader.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Whether a connection may stall. Clones share the setting.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct StallPolicy(Arc<AtomicBool>);

impl StallPolicy {
    /// Allows stalls from now on.
    pub(in super::super) fn allow_stalls(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream that is cut when its reader stalls.
pub(super) struct StallGuard<T> {
    stream: T,
    limit: Duration,
    stall_policy: StallPolicy,
    /// Deadline of the current stall.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> StallGuard<T> {
    pub(super) fn new(stream: T, limit: Duration, stall_policy: StallPolicy) -> Self {
        Self {
            stream,
            limit,
            stall_policy,
            stalled: None,
        }
    }

    /// Tracks the result of a write.
    fn watch<R>(
        &mut self,
        tried: Poll<io::Result<R>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if tried.is_ready() || self.stall_policy.0.load(Ordering::Relaxed) {
            self.stalled = None;
            return tried;
        }
        let limit = self.limit;
        let cut = || Box::pin(sleep_until(Instant::now() + limit));
        let stalled = self.stalled.get_or_insert_with(cut);
        match stalled.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let message = "the other end takes nothing";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(tried, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(tried, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(tried, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(tried, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    const LIMIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn whoever_takes_nothing_is_cut_unless_he_may() {
        let (ours, _theirs) = tokio::io::duplex(8);
        let mut steady = StallGuard::new(ours, LIMIT, StallPolicy::default());
        let error = steady.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let (ours, _theirs) = tokio::io::duplex(8);
        let stall_policy = StallPolicy::default();
        stall_policy.allow_stalls();
        let mut steady = StallGuard::new(ours, LIMIT, stall_policy);
        let writing = tokio::time::timeout(LIMIT * 10, steady.write_all(&[0; 64]));
        assert!(writing.await.is_err(), "it waits");
    }
}
