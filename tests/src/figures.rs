//! Statistics of benchmarks, and their output.

use std::time::Duration;

/// Returns the median; of an even number the later of the two.
///
/// # Panics
/// If nothing was measured.
pub fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

/// Prints a figure.
pub fn report(what: &str, duration: Duration) {
    say(&format!(
        "{what}: {:.3} ms",
        duration.as_secs_f64() * 1000.0
    ));
}

/// Prints a line.
#[expect(
    clippy::print_stdout,
    reason = "a benchmark or a test prints its figures"
)]
pub fn say(line: &str) {
    println!("{line}");
}
