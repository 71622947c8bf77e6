//! The clock of the core: wall-clock time at the start, then the monotonic clock, so that time never goes back,
//! whatever is done to the machine's clock, and is never before the last record in the log. Only [`wall`] reads the
//! wall clock elsewhere.
//!
//! If the machine's clock is set back, this clock runs at half speed until both agree; timeouts then take longer and
//! never fire early. If the machine's clock is ahead, its time is adopted at the next start: a jump while running would
//! declare live nodes lost. The part of the time between two starts that nothing proves to have passed is a jump
//! ([`evidence`]) and does not count as waiting time.

pub(crate) mod evidence;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_common::time::{Span, Time};

/// Smallest difference to the machine's clock that is logged.
const TOLD_FROM: Duration = Duration::from_secs(60);
/// Difference that is ignored; a logged difference counts as gone below it.
const EVEN_WITHIN: Duration = Duration::from_secs(1);

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Time since 1970 at the last call.
    time: Duration,
    asked: Instant,
    logged: ClockDrift,
    jumped: Span,
}

/// The difference between the machine's clock and this one, as logged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockDrift {
    No,
    Behind,
    Ahead,
}

impl Clock {
    /// Starts at the wall clock's time, or at `last_record` if the wall clock is earlier, and counts all the time
    /// between the two as passed.
    pub fn start(last_record: Time) -> Self {
        let last = Duration::from_millis(last_record.unix_millis());
        Self {
            time: machine().max(last),
            asked: Instant::now(),
            logged: ClockDrift::No,
            jumped: Span::ZERO,
        }
    }

    /// Starts as [`Clock::start`] does, with the evidence of elapsed time that the data directory holds.
    pub fn start_over(data_dir: &Path, last_record: Time) -> Self {
        let mut clock = Self::start(last_record);
        clock.jumped = evidence::jump(data_dir, last_record, clock.now());
        clock
    }

    /// Starts at `time`, whatever the machine's clock shows.
    #[cfg(test)]
    pub(crate) fn showing(time: Time) -> Self {
        let mut clock = Self::start(time);
        clock.time = Duration::from_millis(time.unix_millis());
        clock
    }

    /// Returns the part of the time between the last record and the start that is not known to have passed.
    pub fn jumped(&self) -> Span {
        self.jumped
    }

    /// Returns the current time.
    pub fn now(&mut self) -> Time {
        let asked = Instant::now();
        let passed = asked.duration_since(self.asked);
        (self.time, self.asked) = (next(self.time, passed, machine()), asked);
        time_of(self.time)
    }

    /// Returns the time from now until `at` at full speed; zero if it has passed.
    pub fn until(&mut self, at: Time) -> Duration {
        Duration::from_millis(at.since(self.now()).millis())
    }

    /// Logs, once per change, that the machine's clock and this one differ.
    pub fn tell(&mut self) {
        let machine = machine();
        let stray = stray(self.logged, self.time, machine);
        if stray == self.logged {
            return;
        }
        self.logged = stray;
        let apart = Span::from_millis(millis(self.time.abs_diff(machine)));
        match stray {
            ClockDrift::No => {
                tracing::info!("the machine's clock and the coordinator's time agree again")
            }
            ClockDrift::Behind => tracing::warn!(
                "the machine's clock is {apart} behind the coordinator's time, which its records have reached already: that \
                 runs at half its pace until they agree, and what waits for a time waits longer"
            ),
            ClockDrift::Ahead => tracing::warn!(
                "the machine's clock is {apart} ahead of the coordinator's time: check it; the coordinator takes it over at its \
                 next start"
            ),
        }
    }
}

/// Returns the time after `passed` on the monotonic clock.
fn next(time: Duration, passed: Duration, machine: Duration) -> Duration {
    let even = time + passed;
    if even > machine + EVEN_WITHIN {
        return time + passed / 2;
    }
    even
}

fn stray(logged: ClockDrift, time: Duration, machine: Duration) -> ClockDrift {
    let now = match machine < time {
        true => ClockDrift::Behind,
        false => ClockDrift::Ahead,
    };
    // Half speed ends within the second.
    let limit = if logged == now {
        2 * EVEN_WITHIN
    } else {
        TOLD_FROM
    };
    if time.abs_diff(machine) <= limit {
        return ClockDrift::No;
    }
    now
}

/// Returns the time of the machine's clock, for checks of expiry while no input comes. Times before 1970, shown by
/// machines whose clock was never set, count as 1970.
pub(crate) fn wall() -> Time {
    time_of(machine())
}

fn machine() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn time_of(since_1970: Duration) -> Time {
    Time::from_unix_millis(millis(since_1970))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_clock_set_back_does_not_take_the_log_back() {
        let ahead = wall() + Span::from_secs(3600);
        let mut clock = Clock::start(ahead);
        assert!(clock.now() >= ahead);
        assert!(clock.now().since(ahead) < Span::from_secs(60));
        assert!(Clock::start(Time::default()).now() < ahead);
    }

    #[test]
    fn what_has_passed_is_not_waited_for() {
        let mut clock = Clock::start(Time::default());
        assert_eq!(clock.until(Time::default()), Duration::ZERO);
        let later = clock.now() + Span::from_secs(60);
        assert!(clock.until(later) > Duration::from_secs(50));
    }

    #[test]
    fn an_hour_ahead_is_made_good_in_two_and_time_never_goes_back_or_jumps() {
        let second = Duration::from_secs(1);
        let (mut time, mut machine) = (2 * HOUR, HOUR);
        let mut seconds = 0;
        while time > machine + EVEN_WITHIN + second {
            let before = time;
            machine += second;
            time = next(time, second, machine);
            assert!(time > before && time <= before + second);
            seconds += 1;
        }
        assert!((7000..7300).contains(&seconds), "{seconds}");
        // Both run at the same speed from then on.
        assert_eq!(next(time, second, time + second), time + second);
    }

    #[test]
    fn a_machine_s_clock_that_jumps_ahead_is_not_followed() {
        let second = Duration::from_secs(1);
        assert_eq!(next(HOUR, second, 2 * HOUR), HOUR + second);
    }

    #[test]
    fn a_difference_is_told_once_and_so_is_its_end() {
        let second = Duration::from_secs(1);
        assert_eq!(
            stray(ClockDrift::No, HOUR, HOUR + 59 * second),
            ClockDrift::No
        );
        assert_eq!(
            stray(ClockDrift::No, HOUR, HOUR + 61 * second),
            ClockDrift::Ahead
        );
        assert_eq!(
            stray(ClockDrift::No, HOUR + 61 * second, HOUR),
            ClockDrift::Behind
        );
        assert_eq!(
            stray(ClockDrift::Behind, HOUR + 30 * second, HOUR),
            ClockDrift::Behind
        );
        assert_eq!(
            stray(ClockDrift::Behind, HOUR + second, HOUR),
            ClockDrift::No
        );
        assert_eq!(
            stray(ClockDrift::Behind, HOUR, HOUR + 3 * second),
            ClockDrift::No
        );
    }

    #[test]
    fn being_asked_often_loses_no_time() {
        let (mut time, step) = (HOUR, Duration::from_micros(3));
        for _ in 0..1_000_000 {
            time = next(time, step, 2 * HOUR);
        }
        assert_eq!(time, HOUR + Duration::from_secs(3));
    }
}
