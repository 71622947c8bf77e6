//! The time that the core is given: the wall clock at the start, and from then on the steady clock, so that it never
//! goes back, whatever is done to the machine's clock, and never before the last record in the log. Nothing else in the
//! coordinator reads the wall clock than [`wall`].
//!
//! Where that time is ahead of the machine's clock, because that was set back, it runs at half its pace until both agree:
//! all that waits then waits longer and nothing shorter. Where the machine's clock is ahead, it is taken over at the next
//! start: time that jumped would take nodes for lost that are heard. What a start takes over and nothing shows to have
//! passed is a jump ([`evidence`]), which counts for nothing that waits.

pub(crate) mod evidence;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sluice_common::time::{Span, Time};

/// How far the machine's clock may be from ours before the log tells it.
const TOLD_FROM: Duration = Duration::from_secs(60);
/// How far it may be before our pace is changed; also when a difference that was told counts as gone.
const EVEN_WITHIN: Duration = Duration::from_secs(1);

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Our time when it was asked for last, since 1970.
    time: Duration,
    asked: Instant,
    told: Stray,
    jumped: Span,
}

/// How the machine's clock stands to ours, as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stray {
    No,
    Behind,
    Ahead,
}

impl Clock {
    /// Starts at the wall clock's time, or at `last_record` where the wall clock stands before it, and takes all that lies
    /// between the two as passed.
    pub fn start(last_record: Time) -> Self {
        let last = Duration::from_millis(last_record.unix_millis());
        Self {
            time: machine().max(last),
            asked: Instant::now(),
            told: Stray::No,
            jumped: Span::ZERO,
        }
    }

    /// The same over the store of a data directory, which also has what is known of the time since.
    pub fn start_over(data_dir: &Path, last_record: Time) -> Self {
        let mut clock = Self::start(last_record);
        clock.jumped = evidence::jump(data_dir, last_record, clock.now());
        clock
    }

    /// A clock that shows `time` now, whatever the machine's shows.
    #[cfg(test)]
    pub(crate) fn showing(time: Time) -> Self {
        let mut clock = Self::start(time);
        clock.time = Duration::from_millis(time.unix_millis());
        clock
    }

    /// How much of the time between the last record and the start is not known to have passed.
    pub fn jumped(&self) -> Span {
        self.jumped
    }

    /// The time now.
    pub fn now(&mut self) -> Time {
        let asked = Instant::now();
        let passed = asked.duration_since(self.asked);
        (self.time, self.asked) = (next(self.time, passed, machine()), asked);
        time_of(self.time)
    }

    /// How long from now until `at`, at the full pace; zero where it has passed.
    pub fn until(&mut self, at: Time) -> Duration {
        Duration::from_millis(at.since(self.now()).millis())
    }

    /// Says in the log, once for each change, that the machine's clock and ours differ.
    pub fn tell(&mut self) {
        let machine = machine();
        let stray = stray(self.told, self.time, machine);
        if stray == self.told {
            return;
        }
        self.told = stray;
        let apart = Span::from_millis(millis(self.time.abs_diff(machine)));
        match stray {
            Stray::No => {
                tracing::info!("the machine's clock and the coordinator's time agree again")
            }
            Stray::Behind => tracing::warn!(
                "the machine's clock is {apart} behind the coordinator's time, which its records have reached already: that \
                 runs at half its pace until they agree, and what waits for a time waits longer"
            ),
            Stray::Ahead => tracing::warn!(
                "the machine's clock is {apart} ahead of the coordinator's time: check it; the coordinator takes it over at its \
                 next start"
            ),
        }
    }
}

/// Our time after so much has passed by the steady clock.
fn next(time: Duration, passed: Duration, machine: Duration) -> Duration {
    let even = time + passed;
    if even > machine + EVEN_WITHIN {
        return time + passed / 2;
    }
    even
}

fn stray(told: Stray, time: Duration, machine: Duration) -> Stray {
    let now = match machine < time {
        true => Stray::Behind,
        false => Stray::Ahead,
    };
    // Half a pace ends within the second.
    let limit = if told == now {
        2 * EVEN_WITHIN
    } else {
        TOLD_FROM
    };
    if time.abs_diff(machine) <= limit {
        return Stray::No;
    }
    now
}

/// What the machine's clock shows, for what expires while no input comes. A machine whose clock was never set stands
/// before 1970 in the worst case: that counts as 1970.
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
        // From then on both go at one pace.
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
        assert_eq!(stray(Stray::No, HOUR, HOUR + 59 * second), Stray::No);
        assert_eq!(stray(Stray::No, HOUR, HOUR + 61 * second), Stray::Ahead);
        assert_eq!(stray(Stray::No, HOUR + 61 * second, HOUR), Stray::Behind);
        assert_eq!(
            stray(Stray::Behind, HOUR + 30 * second, HOUR),
            Stray::Behind
        );
        assert_eq!(stray(Stray::Behind, HOUR + second, HOUR), Stray::No);
        assert_eq!(stray(Stray::Behind, HOUR, HOUR + 3 * second), Stray::No);
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
