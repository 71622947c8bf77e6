//! Token buckets: limits how often something may happen.

use std::time::{Duration, Instant};

/// Rate at which a bucket fills, and its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Tokens added per second.
    pub(crate) per_second: f64,
    /// Tokens that the bucket holds at most.
    pub(crate) burst: f64,
}

/// A token bucket, full at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    left: f64,
    seen: Instant,
}

impl Bucket {
    pub(crate) fn full(rate: Rate, now: Instant) -> Self {
        Self {
            left: rate.burst,
            seen: now,
        }
    }

    /// Whether the bucket is full.
    pub(crate) fn is_full(&self, rate: Rate, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.seen).as_secs_f64();
        self.left + passed * rate.per_second >= rate.burst
    }

    /// Takes one token.
    ///
    /// # Errors
    /// The time after which a token will be there.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.seen).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.seen = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.left) / rate.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_as_many_as_come_in() {
        let rate = Rate {
            per_second: 2.0,
            burst: 3.0,
        };
        let begin = Instant::now();
        let mut bucket = Bucket::full(rate, begin);
        let taken = |bucket: &mut Bucket, after: u64| {
            let now = begin + Duration::from_millis(after);
            bucket.take(rate, now)
        };
        for _ in 0..3 {
            assert_eq!(taken(&mut bucket, 0), Ok(()));
        }
        assert_eq!(taken(&mut bucket, 0), Err(Duration::from_millis(500)));
        assert_eq!(taken(&mut bucket, 500), Ok(()));
        assert!(taken(&mut bucket, 600).is_err());
        for _ in 0..3 {
            assert_eq!(
                taken(&mut bucket, 100_000),
                Ok(()),
                "never more than it holds"
            );
        }
        assert!(taken(&mut bucket, 100_000).is_err());
    }
}
