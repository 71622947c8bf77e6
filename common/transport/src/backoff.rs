//! Pauses between connection attempts. The caller draws random numbers and waits.

use std::time::Duration;

/// Upper bound of the first pause; a restarting coordinator is back within about that time.
const FIRST: Duration = Duration::from_millis(250);
/// Upper bound of all pauses. Ten thousand agents with this bound dial some two thousand times a second, which a
/// coordinator can handle; longer pauses would leave hosts idle after a repair.
const LONGEST: Duration = Duration::from_secs(10);
/// Lower bound of all pauses, which prevents a busy loop.
const SHORTEST: Duration = Duration::from_millis(20);

/// Exponential backoff with full jitter: each pause is uniform between [`SHORTEST`] and a bound that doubles from
/// [`FIRST`] to [`LONGEST`], so that agents that lost a coordinator together do not return together.
#[derive(Clone, Debug)]
pub struct Backoff {
    bound: Duration,
}

impl Backoff {
    /// Starts with the shortest bound.
    pub const fn new() -> Self {
        Self { bound: FIRST }
    }

    /// The next pause. `random` must be uniform over all of `u64`.
    pub fn next(&mut self, random: u64) -> Duration {
        let span = (self.bound - SHORTEST).as_micros();
        let part = (u128::from(random) * span) >> u64::BITS;
        self.bound = (self.bound * 2).min(LONGEST);
        SHORTEST + Duration::from_micros(part as u64)
    }

    /// Returns to the shortest bound after a success.
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
