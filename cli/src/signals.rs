//! Signals of this process: which ones end a command, and the end after a closed pipe.
//!
//! A signal that the parent set to be ignored (`nohup`, a background job of a script) stays ignored.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal;

/// Passes every signal of `wanted` to `deliver`, on a thread of its own, until `deliver` returns `false`.
pub(crate) fn forward(
    wanted: &[i32],
    mut deliver: impl FnMut(i32) -> bool + Send + 'static,
) -> std::io::Result<()> {
    let mut signals = Signals::new(wanted)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if !deliver(signal) {
                    break;
                }
            }
        })?;
    Ok(())
}

/// Returns the signals that end this process, without the ignored ones.
pub(crate) fn ending() -> Vec<i32> {
    let ignored = ignored_mask();
    let heard = |signal: &i32| ignored & (1 << (*signal - 1)) == 0;
    [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(heard)
        .collect()
}

/// Returns the kernel's mask of ignored signals; none if it cannot be read.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status).unwrap_or(0)
}

fn parse_ignored(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns the exit code of a process that a signal ended, as shells have it.
pub(crate) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Ends this process by SIGPIPE, silently.
pub(crate) fn end_like_a_closed_pipe() -> ! {
    terminal::restore();
    let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
    std::process::exit(128 + SIGPIPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_mask_is_read_from_the_kernel_s_words() {
        let status = "Name:\tsluice\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(parse_ignored(status), Some(0x1001));
        assert_eq!(parse_ignored("Name:\tx\n"), None);
    }
}
