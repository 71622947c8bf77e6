//! What is kept of the output of attempts, and for how long. The config says it ([`Rules`]), `table` drives it; [`writer`]
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

use serde::Deserialize;
use sluice_common::amount::{parse_memory, show_memory};
use sluice_common::time::{Span, SpanError};

/// What the config says of output, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How much of each stream of an attempt is kept, in bytes: the newest.
    pub max_bytes: u64,
    /// How long an attempt's directory is kept after the attempt was forgotten.
    pub keep_for: Span,
    /// How much all attempts' directories together may take before the oldest of forgotten ones go.
    pub total_bytes: u64,
    /// How long an attempt's working directory is kept after its end; zero is not at all.
    pub keep_work: Span,
    /// What the file system keeps free, in bytes, if not as by default.
    pub min_free: Option<u64>,
}

/// As written; what is left out is as by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawRules {
    /// `output_max`
    pub max: Option<Bytes>,
    /// `output_retention`
    pub keep_for: Option<Length>,
    /// `output_total_max`
    pub total: Option<Bytes>,
    /// `keep_work`
    pub keep_work: Option<Length>,
    /// `min_free`
    pub min_free: Option<Bytes>,
}

/// Who looks for the cause of a failure looks within a week.
const DEFAULT_KEEP_FOR: Span = Span::from_secs(7 * 24 * 3600);

/// Of the outputs of many finished steps, little beside the disk of a GPU host.
const DEFAULT_TOTAL_BYTES: u64 = 64 << 30;

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
    pub fn new(raw: RawRules) -> Result<Self, RulesError> {
        let amount = |raw: Option<Bytes>, default| raw.map_or(default, |Bytes(amount)| amount);
        let max_bytes = amount(raw.max, DEFAULT_MAX_BYTES);
        if max_bytes < MIN_MAX_BYTES {
            return Err(RulesError::TooSmall { found: max_bytes });
        }
        Ok(Self {
            max_bytes,
            keep_for: raw.keep_for.map_or(DEFAULT_KEEP_FOR, |Length(span)| span),
            total_bytes: amount(raw.total, DEFAULT_TOTAL_BYTES),
            keep_work: raw.keep_work.map_or(Span::ZERO, |Length(span)| span),
            min_free: raw.min_free.map(|Bytes(amount)| amount),
        })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            keep_for: DEFAULT_KEEP_FOR,
            total_bytes: DEFAULT_TOTAL_BYTES,
            keep_work: Span::ZERO,
            min_free: None,
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

/// A length of time as configs write it, such as `"7d"`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Length(pub Span);

impl TryFrom<String> for Length {
    type Error = SpanError;

    fn try_from(text: String) -> Result<Self, SpanError> {
        text.parse().map(Self)
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
