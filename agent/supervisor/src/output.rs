//! What is kept of the output of attempts, and for how long. The config says it ([`Rules`]), `table` drives it; writing
//! is the steps' own business, reading the agent's.
//!
//! Attempts' directories may belong to others, so nothing in them is trusted: a file is opened as what it is, never
//! through a link, and only if it has no second name.

pub mod cap;
mod growth;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::Deserialize;
use sluice_common::amount::{parse_memory, show_memory};

/// What the config says of output, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How much of each stream of an attempt is kept, in bytes: the newest.
    pub max_bytes: u64,
}

/// Enough for every log that a person reads, and little beside the disk of a GPU host.
const DEFAULT_MAX_BYTES: u64 = 1 << 30;

/// What is dropped is dropped in blocks; below this a cap would say nothing.
pub const MIN_MAX_BYTES: u64 = 64 * 1024;

/// What is wrong with what the config says of output.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It is too small.
    #[error("output_max: {found} is too little to be of use: write at least {least}", found = show_memory(*found), least = show_memory(MIN_MAX_BYTES))]
    TooSmall {
        /// What it says, in bytes.
        found: u64,
    },
}

impl Rules {
    /// What the config says, checked; what it does not say is as by default.
    ///
    /// # Errors
    /// Where an amount makes no sense.
    pub fn new(max: Option<Bytes>) -> Result<Self, RulesError> {
        let Bytes(max_bytes) = max.unwrap_or(Bytes(DEFAULT_MAX_BYTES));
        if max_bytes < MIN_MAX_BYTES {
            return Err(RulesError::TooSmall { found: max_bytes });
        }
        Ok(Self { max_bytes })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// An amount of bytes as configs write it, such as `"1GiB"`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Bytes(pub u64);

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_memory(&text).map(Self).map_err(|e| e.to_string())
    }
}

/// Opens a file of an attempt's directory.
///
/// # Errors
/// Where it is none, a link, or known by a second name.
fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
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
