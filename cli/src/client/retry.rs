//! Retries of calls. Every call can be repeated safely, so the only question is how long a user waits.

use std::time::{Duration, Instant};

/// Time to retry a call that fails transiently.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryLimit {
    /// For this long, as users wait at a prompt.
    For(Duration),
    /// Until the cluster is gone for good.
    Endless,
}

impl RetryLimit {
    /// For reads at a prompt: long enough for a restart of the coordinator.
    pub(crate) const READ: RetryLimit = RetryLimit::For(Duration::from_secs(3));
    /// For changes: longer, since a script would have to start over.
    pub(crate) const CHANGE: RetryLimit = RetryLimit::For(Duration::from_secs(15));

    pub(super) fn is_spent(self, since: Instant) -> bool {
        match self {
            RetryLimit::For(limit) => since.elapsed() >= limit,
            RetryLimit::Endless => false,
        }
    }
}

/// Pauses between tries: doubling from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// For calls to a coordinator: a restart takes some tens of milliseconds, an outage any time.
    pub(crate) const fn for_calls() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(2))
    }

    /// From `first` to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(self.longest);
        pause
    }

    /// Starts again with the first pause after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(150));
        let pauses = [backoff.next(), backoff.next(), backoff.next()].map(|d| d.as_millis());
        assert_eq!(pauses, [50, 100, 150]);
        backoff.reset();
        assert_eq!(backoff.next().as_millis(), 50);
    }
}
