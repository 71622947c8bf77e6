//! The time that the core is given: the wall clock at the start, and from then on the steady clock, so that it never
//! goes back, whatever is done to the machine's clock, and never before the last record in the log. Nothing else in the
//! coordinator reads the wall clock than [`wall`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_common::time::Time;

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Time,
    since: Instant,
}

impl Clock {
    /// Starts at the wall clock's time, or at `last_record` where the wall clock stands before it.
    pub fn start(last_record: Time) -> Self {
        Self {
            start: wall().max(last_record),
            since: Instant::now(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Time::from_unix_millis(self.start.unix_millis().saturating_add(elapsed))
    }

    /// How long from now until `at`; zero where it has passed.
    pub fn until(&self, at: Time) -> Duration {
        Duration::from_millis(at.since(self.now()).millis())
    }
}

/// What the machine's clock shows, for what expires while no input comes. A machine whose clock was never set stands
/// before 1970 in the worst case: that counts as 1970.
pub(crate) fn wall() -> Time {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_unix_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::time::Span;

    #[test]
    fn a_clock_set_back_does_not_take_the_log_back() {
        let ahead = wall() + Span::from_secs(3600);
        let clock = Clock::start(ahead);
        assert!(clock.now() >= ahead);
        assert!(clock.now().since(ahead) < Span::from_secs(60));
        assert!(Clock::start(Time::default()).now() < ahead);
    }

    #[test]
    fn what_has_passed_is_not_waited_for() {
        let clock = Clock::start(Time::default());
        assert_eq!(clock.until(Time::default()), Duration::ZERO);
        assert!(clock.until(clock.now() + Span::from_secs(60)) > Duration::from_secs(50));
    }
}
