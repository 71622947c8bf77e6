//! How long to wait before the next try. Pure: the caller draws the random numbers and does the waiting.

use std::time::Duration;

/// Bound of the first wait. A coordinator that restarts is back within about that.
const FIRST: Duration = Duration::from_millis(250);
/// Bound of the longest wait. Ten thousand agents that all wait this long dial some two thousand times a second, which
/// a coordinator bears; a longer one would leave hosts idle after a repair.
const LONGEST: Duration = Duration::from_secs(10);
/// No wait is shorter, so that even unlucky numbers do not make a busy loop.
const SHORTEST: Duration = Duration::from_millis(20);

/// Exponential backoff with full jitter: the n-th wait is drawn evenly between [`SHORTEST`] and a bound that doubles
/// from [`FIRST`] up to [`LONGEST`], so that agents that lost a coordinator together do not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    bound: Duration,
}

impl Backoff {
    /// As after a success.
    pub const fn new() -> Self {
        Self { bound: FIRST }
    }

    /// The wait before the next try. `random` is any number, evenly drawn from all there are.
    pub fn next(&mut self, random: u64) -> Duration {
        let span = (self.bound - SHORTEST).as_micros();
        let part = (u128::from(random) * span) >> u64::BITS;
        self.bound = (self.bound * 2).min(LONGEST);
        SHORTEST + Duration::from_micros(part as u64)
    }

    /// Begins anew after a success.
    pub const fn reset(&mut self) {
        self.bound = FIRST;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bound_doubles_up_to_the_longest_and_begins_anew() {
        let mut backoff = Backoff::new();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(u64::MAX).as_millis()).collect();
        assert_eq!(waits, [249, 499, 999, 1999, 3999, 7999, 9999, 9999]);
        backoff.reset();
        assert_eq!(backoff.next(u64::MAX).as_millis(), 249);
    }

    #[test]
    fn the_unluckiest_number_still_waits() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.next(0), SHORTEST);
        assert_eq!(backoff.next(0), SHORTEST);
    }

    proptest! {
        #[test]
        fn every_wait_is_within_its_bounds(numbers in proptest::collection::vec(any::<u64>(), 1..100)) {
            let mut backoff = Backoff::new();
            for number in numbers {
                let bound = backoff.bound;
                let wait = backoff.next(number);
                prop_assert!(SHORTEST <= wait && wait <= bound);
            }
        }
    }
}
