//! Source of the standard input of a step, and whether the step has a terminal.

use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;

/// The word for input that callers send: see [`StepInput::Stream`].
pub const STREAMED: &str = "-";

/// Longest path of a stream, in bytes: that of Linux.
const MAX_PATH_BYTES: usize = 4096;

/// Source of a step's standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StepInput {
    /// Standard input is empty.
    #[default]
    Empty,
    /// Callers send it while the step runs. With several hosts, only rank 0 gets it.
    Stream,
    /// The step reads this file of the host: an absolute path, opened as the step's user.
    File(String),
}

impl StepInput {
    /// The form in requests; `None` if empty.
    pub fn written(&self) -> Option<String> {
        match self {
            Self::Empty => None,
            Self::Stream => Some(STREAMED.to_string()),
            Self::File(path) => Some(path.clone()),
        }
    }
}

/// Streams of a step that are not the default ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepStreams {
    /// Source of standard input.
    pub stdin: StepInput,
    /// Whether the program gets a terminal as its three streams. Its input is then [`StepInput::Stream`], and its output
    /// is stored as stdout.
    pub terminal: bool,
}

impl StepStreams {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The streams of the part of this rank: input that callers send goes to rank 0.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> Self {
        match self.stdin {
            StepInput::Stream if rank > 0 => Self::default(),
            StepInput::Empty | StepInput::Stream | StepInput::File(_) => self.clone(),
        }
    }

    /// Checks the fields of a request.
    ///
    /// # Errors
    /// If a path is not absolute or too long, or a terminal is to read a file.
    pub fn checked(stdin: Option<String>, terminal: bool) -> Result<Self, FieldError> {
        let invalid = |message: String| FieldError::new(ErrorCode::InvalidStdin, "stdin", message);
        let stdin = match stdin {
            None if terminal => StepInput::Stream,
            None => StepInput::Empty,
            Some(text) if text == STREAMED => StepInput::Stream,
            Some(path) if !path.starts_with('/') || path.contains('\0') => {
                let path = path.escape_default();
                return Err(invalid(format!(
                    "`{path}` is neither `-`, which is what `sluice run` sends, nor an absolute path on the host: begin with `/`"
                )));
            }
            Some(path) if path.len() > MAX_PATH_BYTES => {
                let length = path.len();
                return Err(invalid(format!(
                    "its path takes {length} bytes: the maximum is {MAX_PATH_BYTES}"
                )));
            }
            Some(path) => StepInput::File(path),
        };
        if terminal && stdin != StepInput::Stream {
            let message =
                "a step with a terminal reads from the terminal: leave out `stdin` or `terminal`";
            return Err(FieldError::new(ErrorCode::Contradiction, "stdin", message));
        }
        Ok(Self { stdin, terminal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(stdin: &str, terminal: bool) -> Result<StepStreams, FieldError> {
        StepStreams::checked(Some(stdin.to_string()), terminal)
    }

    #[test]
    fn input_is_a_file_of_the_host_or_what_callers_send() {
        let file = checked("/a b", false).unwrap();
        assert_eq!(file.stdin, StepInput::File("/a b".to_string()));
        assert_eq!(file.of_rank(1), file);
        let sent = checked("-", false).unwrap();
        assert_eq!(sent.stdin, StepInput::Stream);
        assert_eq!(sent.stdin.written().as_deref(), Some("-"));
        assert!(sent.of_rank(1).is_default() && sent.of_rank(0) == sent);
        assert!(StepStreams::checked(None, false).unwrap().is_default());
        let terminal = StepStreams::checked(None, true).unwrap();
        assert_eq!(terminal, checked("-", true).unwrap());
    }

    #[test]
    fn what_is_neither_is_refused_with_the_way_out() {
        for (stdin, terminal, words) in [
            ("here", false, "begin with `/`"),
            ("/a\0b", false, "absolute path"),
            (&*"/".repeat(5000), false, "maximum is 4096"),
            ("/a", true, "leave out `stdin` or `terminal`"),
        ] {
            let error = checked(stdin, terminal).unwrap_err();
            assert_eq!(error.field, "stdin");
            assert!(error.message.contains(words), "{}", error.message);
        }
    }
}
