//! Holds the place of an allocation on a host. Programs that its holder runs there get the signals of a stop; this process
//! waits for the kill, so that the resources stay set aside until the holder has released them or its time is over.

use std::io;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Waits until it is killed.
///
/// # Errors
/// If signals cannot be blocked.
pub(crate) fn run() -> io::Result<()> {
    let mut stops = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        stops.add(signal);
    }
    stops.thread_block()?;
    loop {
        thread::park();
    }
}
