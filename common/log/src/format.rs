//! Log formats: the configured one, and the one it resolves to for this process's stderr.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use serde::Deserialize;

/// Environment variable with the format, unless a flag sets it.
pub const FORMAT_VARIABLE: &str = "SLUICE_LOG_FORMAT";
/// Set by systemd to `DEVICE:INODE` of the socket if a process's output goes to the journal.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Configured log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Lines for people, with times.
    Text,
    /// One JSON object per line.
    Json,
    /// Journal lines if stderr goes to the journal, else [`Format::Text`].
    #[default]
    Auto,
}

/// Error for an unknown format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a log format: write `text`, `json` or `auto`", text.escape_debug())]
pub struct FormatError {
    text: String,
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "auto" => Ok(Format::Auto),
            _ => Err(FormatError { text: text.into() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Auto => "auto",
        })
    }
}

/// Format of lines as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedFormat {
    /// Time, level, message and fields.
    Plain { colors: bool },
    /// Priority, message and fields; the journal adds the time.
    Journal,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// The format set in the environment, if any.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn from_environment() -> Result<Option<Self>, FormatError> {
        let asked = std::env::var_os(FORMAT_VARIABLE).filter(|text| !text.is_empty());
        let asked = asked.map(|text| text.to_string_lossy().parse());
        asked.transpose()
    }

    /// Resolves the format for this process's stderr.
    pub(crate) fn resolve(self) -> ResolvedFormat {
        let journal = std::env::var(JOURNAL_VARIABLE).ok();
        match self {
            Format::Json => ResolvedFormat::Json,
            Format::Auto if journal.is_some_and(|stream| names(&stream, &io::stderr())) => {
                ResolvedFormat::Journal
            }
            Format::Text | Format::Auto => ResolvedFormat::Plain { colors: colors() },
        }
    }
}

/// Whether to use colours: on a terminal, unless `NO_COLOR` is set or the terminal is dumb.
fn colors() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !unwanted && !dumb && io::stderr().is_terminal()
}

/// Whether `stream` identifies this descriptor. A service's child inherits the variable but may write elsewhere, so the
/// variable alone is not enough (systemd.exec(5), `$JOURNAL_STREAM`).
fn names(stream: &str, output: &impl AsFd) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let Some((device, inode)) = stream.split_once(':') else {
        return false;
    };
    let found = output.as_fd().try_clone_to_owned().map(File::from);
    found.and_then(|file| file.metadata()).is_ok_and(|found| {
        number(device) == Some(found.dev()) && number(inode) == Some(found.ino())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_it_is_written_and_nothing_else_is() {
        for format in [Format::Text, Format::Json, Format::Auto] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let refusal = "yaml".parse::<Format>().unwrap_err().to_string();
        assert!(
            refusal.contains("`yaml`") && refusal.contains("`json`"),
            "{refusal}"
        );
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode_of_the_very_descriptor() {
        let (ours, other) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
        let found = ours.metadata().unwrap();
        let stream = format!("{}:{}", found.dev(), found.ino());
        assert!(names(&stream, &ours) && !names(&stream, &other));
        for odd in ["", "1", "a:b", &stream[1..], "1:2:3"] {
            assert!(!names(odd, &ours), "{odd}");
        }
    }
}
