//! Makes the inputs of a step in its own directory, which is the current one. This process runs as the step's user, in the
//! step's groups, so what it writes counts against the step.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;

use sluice_copy::{CopyId, CopyIssue, CopyListener, CopyReader, CopyTarget, Position, receive};

/// Bytes read from the packed file at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Unpacks standard input, and tells on standard output why that fails.
///
/// # Errors
/// If a file cannot be made, or the packed file is damaged.
pub(crate) fn run() -> io::Result<()> {
    let packed = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut packed = CopyReader::new(BufReader::with_capacity(BUFFER_BYTES, packed));
    let own = CopyTarget::Written {
        path: b".".to_vec(),
        name: None,
    };
    // Nothing is ever continued, so any number will do.
    let received = receive(&mut packed, &own.decide(), CopyId(0), &mut NoListener);
    if let Err(error) = &received {
        io::stdout().write_all(error.to_string().as_bytes())?;
    }
    received.map_err(io::Error::other)
}

/// Hears nothing: the end alone counts.
struct NoListener;

impl CopyListener for NoListener {
    fn on_position(&mut self, _: &Position) -> io::Result<()> {
        Ok(())
    }

    fn on_note(&mut self, _: CopyIssue) -> io::Result<()> {
        Ok(())
    }
}
