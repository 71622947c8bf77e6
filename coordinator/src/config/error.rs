//! What is wrong with a config.

use std::path::PathBuf;
use std::str::FromStr;

use sluice_common::config::escape_controls;
use sluice_common::time::Span;
use sluice_log::FilterError;

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not what a config may be.
    #[error("{}: line {line}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong and the way out.
        message: String,
    },
    /// The log's filter is none.
    #[error(transparent)]
    LogFilter(#[from] FilterError),
    /// A value is not what it may be.
    #[error("{key}: {message}")]
    Value {
        /// Which.
        key: &'static str,
        /// What is wrong and the way out.
        message: String,
    },
}

pub(super) fn invalid(key: &'static str, message: impl ToString) -> ConfigError {
    ConfigError::Value {
        key,
        message: escape_controls(&message.to_string()),
    }
}

/// A length of time that is not nothing.
pub(super) fn span(
    key: &'static str,
    text: Option<String>,
    default: Span,
) -> Result<Span, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    let span = Span::from_str(&text).map_err(|error| invalid(key, error))?;
    if span == Span::ZERO {
        return Err(invalid(key, "it must be longer than nothing"));
    }
    Ok(span)
}
