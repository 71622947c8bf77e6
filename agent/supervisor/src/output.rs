//! Output of attempts: how much is kept, and how long, by the config ([`OutputRetention`]). `table` drives it;
//! [`writer`] writes the output, and the agent reads it.
//!
//! An attempt's directory may belong to another user, so its content is not trusted: a file is opened only if
//! it is a regular file without a second hard link, and never through a symbolic link.

pub mod cap;
pub mod sweep;
pub mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use sluice_common::amount::format_memory;
use sluice_common::supervisor_config::OutputRetention;

/// Smallest bound: output is dropped in blocks, so a smaller bound has no effect.
pub const MIN_MAX_BYTES: u64 = 64 * 1024;

/// Why the rules for output are invalid.
#[derive(Debug, thiserror::Error)]
pub enum OutputRulesError {
    /// A bound is too small.
    #[error("output_max: {found} is too little to be of use: write at least {least}", found = format_memory(*found), least = format_memory(MIN_MAX_BYTES))]
    TooSmall {
        /// The configured bound, in bytes.
        found: u64,
    },
}

/// Rejects amounts that make no sense.
///
/// # Errors
/// If one makes none.
pub fn check(rules: OutputRetention) -> Result<OutputRetention, OutputRulesError> {
    match rules.max_bytes {
        MIN_MAX_BYTES.. => Ok(rules),
        found => Err(OutputRulesError::TooSmall { found }),
    }
}

/// Makes a file in an attempt's directory, which `reader_uid` may read.
///
/// # Errors
/// If it cannot be made, or is there.
pub(crate) fn make_own(path: &Path, reader_uid: Option<u32>) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    reader_uid.map_or(Ok(()), |uid| fchown(&file, Some(uid), None))?;
    Ok(file)
}

/// Opens a file in an attempt's directory.
///
/// # Errors
/// If it is no regular file, or has a second hard link.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without blocking: a user may have put a pipe there.
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(io::Error::other("it is not the file that was made there"));
    }
    Ok(file)
}
