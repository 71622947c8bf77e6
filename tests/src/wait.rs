//! Waiting for something to be true. No test sleeps for a time that it hopes is long enough.

use std::time::{Duration, Instant};

/// Generous: it is only ever reached by a test that fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// The first `Some` that `probe` gives.
///
/// # Panics
/// Where it gives none for a minute; `what` says what was waited for.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    eventually_within(DEADLINE, what, probe)
}

/// The same with a deadline of its own.
///
/// # Panics
/// Where nothing was given by then.
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
