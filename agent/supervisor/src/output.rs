//! What is kept of the output of attempts, and for how long. The config says it ([`OutputRetention`]), `table` drives it; [`writer`]
//! writes what steps give, reading is the agent's business.
//!
//! Attempts' directories may belong to others, so nothing in them is trusted: a file is opened as what it is, never
//! through a link, and only if it has no second name.

pub mod cap;
pub mod sweep;
pub mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use sluice_common::amount::format_memory;
use sluice_common::supervisor_config::OutputRetention;

/// What is dropped is dropped in blocks; below this a cap would say nothing.
pub const MIN_MAX_BYTES: u64 = 64 * 1024;

/// What is wrong with what the config says of output.
#[derive(Debug, thiserror::Error)]
pub enum OutputRulesError {
    /// It is too small.
    #[error("output_max: {found} is too little to be of use: write at least {least}", found = format_memory(*found), least = format_memory(MIN_MAX_BYTES))]
    TooSmall {
        /// What it says, in bytes.
        found: u64,
    },
}

/// Refuses amounts that make no sense.
///
/// # Errors
/// If one makes none.
pub fn check(rules: OutputRetention) -> Result<OutputRetention, OutputRulesError> {
    match rules.max_bytes {
        MIN_MAX_BYTES.. => Ok(rules),
        found => Err(OutputRulesError::TooSmall { found }),
    }
}

/// Opens a file of an attempt's directory.
///
/// # Errors
/// Where it is none, a link, or known by a second name.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without waiting: somebody might have put a pipe there.
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(io::Error::other("it is not the file that was made there"));
    }
    Ok(file)
}
