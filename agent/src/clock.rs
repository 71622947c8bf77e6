//! The host's two clocks; no other module of the agent reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::Now;
use nix::time::{ClockId, clock_gettime};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Time;

pub(crate) fn now() -> Now {
    Now {
        wall: wall(),
        boot: boot(),
    }
}

/// Milliseconds since boot, including suspend.
pub(crate) fn boot() -> BootMillis {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("every Linux since 2.6.39 has CLOCK_BOOTTIME");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let millis = u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000;
    BootMillis(seconds * 1000 + millis)
}

fn wall() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Time until `at`; zero if it has passed.
pub(crate) fn until(at: BootMillis) -> Duration {
    Duration::from_millis(at.0.saturating_sub(boot().0))
}
