//! Waits for predicates. No test sleeps for a time that it hopes is long enough.

use std::time::{Duration, Instant};

/// Generous, because only a failing test reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the first `Some` of `probe`.
///
/// # Panics
/// If there is none for a minute; `what` says what was waited for.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    eventually_within(DEADLINE, what, probe)
}

/// Waits as [`eventually`] does, with another deadline.
///
/// # Panics
/// If there is none by then.
pub fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
