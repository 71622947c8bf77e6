//! Errors of the config.

use std::path::PathBuf;
use std::str::FromStr;

use sluice_common::config::escape_controls;
use sluice_common::time::Span;
use sluice_log::FilterError;

/// Why a config is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{}: line {line}: {message}", path.display())]
    Malformed {
        path: PathBuf,
        /// Line number, starting at 1.
        line: usize,
        /// The mistake, and how to fix it.
        message: String,
    },
    /// The filter of log lines is invalid.
    #[error(transparent)]
    LogFilter(#[from] FilterError),
    /// A value is invalid.
    #[error("{key}: {message}")]
    Value {
        key: &'static str,
        /// The mistake, and how to fix it.
        message: String,
    },
}

pub(super) fn invalid(key: &'static str, message: impl ToString) -> ConfigError {
    ConfigError::Value {
        key,
        message: escape_controls(&message.to_string()),
    }
}

/// Parses a duration that must not be zero.
pub(super) fn span(
    key: &'static str,
    text: Option<String>,
    default: Span,
) -> Result<Span, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    let span = Span::from_str(&text).map_err(|error| invalid(key, error))?;
    if span == Span::ZERO {
        return Err(invalid(key, "it must be more than 0s"));
    }
    Ok(span)
}
