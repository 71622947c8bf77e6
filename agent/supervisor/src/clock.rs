//! The two clocks: the wall clock for reports, the boot clock for timers.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use sluice_common::supervision::BootMillis;
use sluice_common::time::{Span, Time};

/// Milliseconds on `CLOCK_BOOTTIME`, which includes suspend.
pub fn boot_now() -> BootMillis {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("CLOCK_BOOTTIME exists since Linux 2.6.39 and the buffer is ours");
    let secs = u64::try_from(now.tv_sec()).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec()).unwrap_or_default();
    BootMillis(secs.saturating_mul(1000) + nanos / 1_000_000)
}

/// The wall clock. A time before 1970 is reported as 1970.
pub fn wall_now() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// `span` after `at`.
pub fn after(at: BootMillis, span: Span) -> BootMillis {
    BootMillis(at.0.saturating_add(span.millis()))
}

/// Wall clock time at `at`, if the clock is not changed.
pub fn wall_at(at: BootMillis, now: BootMillis) -> Time {
    wall_now() + Span::from_millis(at.0.saturating_sub(now.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_moves_and_does_not_overflow() {
        let first = boot_now();
        assert!(first.0 > 0);
        assert!(boot_now() >= first);
        assert_eq!(after(BootMillis(u64::MAX), Span::from_secs(1)).0, u64::MAX);
    }

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(wall_now().unix_millis() > 1_700_000_000_000);
    }
}
