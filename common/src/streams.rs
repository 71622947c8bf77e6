//! Source of the standard input of a step, the files that get its output, and whether it has a terminal.

mod output_path;

use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::shared::SharedDefault;
pub use output_path::{OutputPath, OutputPathError, PathVariable};

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
    /// File of the host that gets standard output too.
    #[serde(default)]
    pub stdout: Option<OutputPath>,
    /// File of the host that gets standard error too; both are written one after the other if it is the same.
    #[serde(default)]
    pub stderr: Option<OutputPath>,
    /// Whether the files keep what they have, and get the output after it.
    #[serde(default)]
    pub append: bool,
}

/// Streams as a request has them.
#[derive(Clone, Debug, Default)]
pub struct StreamsRequest {
    /// Source of standard input.
    pub stdin: Option<String>,
    /// File for standard output.
    pub stdout: Option<String>,
    /// File for standard error.
    pub stderr: Option<String>,
    /// Whether to append to the files.
    pub append: bool,
    /// Whether the program gets a terminal.
    pub terminal: bool,
}

/// Facts about a step that decide which paths it may name.
#[derive(Clone, Copy, Debug)]
pub struct PathFacts {
    /// Whether the step is an array.
    pub is_array: bool,
    /// Number of hosts.
    pub nodes: u32,
    /// Whether the step has a working directory that is not the attempt's own.
    pub has_workdir: bool,
}

impl SharedDefault for StepStreams {
    fn default_ref() -> &'static Self {
        static DEFAULT: StepStreams = StepStreams {
            stdin: StepInput::Empty,
            terminal: false,
            stdout: None,
            stderr: None,
            append: false,
        };
        &DEFAULT
    }
}

impl StepStreams {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The streams of the part of this rank: input that callers send goes to rank 0.
    #[must_use]
    pub fn of_rank(&self, rank: u32) -> Self {
        let stdin = match self.stdin {
            StepInput::Stream if rank > 0 => StepInput::Empty,
            StepInput::Empty | StepInput::Stream | StepInput::File(_) => self.stdin.clone(),
        };
        let terminal = self.terminal && stdin == StepInput::Stream;
        Self {
            stdin,
            terminal,
            ..self.clone()
        }
    }

    /// The streams with letters of the paths filled in.
    #[must_use]
    pub fn filled(self, value: impl Fn(PathVariable) -> Option<String>) -> Self {
        let filled = |path: Option<OutputPath>| path.map(|path| path.filled(&value));
        Self {
            stdout: filled(self.stdout),
            stderr: filled(self.stderr),
            ..self
        }
    }

    /// Checks the fields of a request.
    ///
    /// # Errors
    /// If a path is invalid, cannot be that of all parts and hosts, or a terminal is to read or write a file.
    pub fn checked(request: StreamsRequest, facts: PathFacts) -> Result<Self, FieldError> {
        let terminal = request.terminal;
        let stdin = checked_input(request.stdin, terminal)?;
        let check = |field, path: Option<String>| {
            let path = path.map(|path| checked_output(field, path, request.append, facts));
            match path {
                Some(Ok(_)) if terminal => {
                    let message = format!(
                        "the output of a step with a terminal goes to its callers: leave out `{field}` or `terminal`"
                    );
                    Err(FieldError::new(ErrorCode::Contradiction, field, message))
                }
                path => path.transpose(),
            }
        };
        let (stdout, stderr) = (
            check("stdout", request.stdout)?,
            check("stderr", request.stderr)?,
        );
        if request.append && stdout.is_none() && stderr.is_none() {
            let message = "there is no file to append to: name one by `stdout` or `stderr`";
            return Err(FieldError::new(ErrorCode::Contradiction, "append", message));
        }
        Ok(Self {
            stdin,
            terminal,
            stdout,
            stderr,
            append: request.append,
        })
    }
}

fn checked_input(stdin: Option<String>, terminal: bool) -> Result<StepInput, FieldError> {
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
    Ok(stdin)
}

/// Checks the path of an output file. Parts of an array, and hosts, must not each empty the file of the others.
fn checked_output(
    field: &'static str,
    path: String,
    append: bool,
    facts: PathFacts,
) -> Result<OutputPath, FieldError> {
    let invalid = |message: String| FieldError::new(ErrorCode::InvalidOutput, field, message);
    let path = OutputPath::new(path).map_err(|e| invalid(e.to_string()))?;
    let has = |letters: [PathVariable; 2]| letters.iter().any(|letter| path.contains(*letter));
    let shown = path.as_str().escape_default();
    if !path.is_absolute() && !facts.has_workdir {
        return Err(invalid(format!(
            "`{shown}` is relative to the working directory, which this step does not name: begin with `/`, or set `workdir`"
        )));
    }
    if !facts.is_array && path.contains(PathVariable::Index) {
        return Err(invalid(format!(
            "`{shown}`: `%a` is the index of a part of an array, which this step is not: use `%j`"
        )));
    }
    if facts.is_array && !append && !has([PathVariable::Index, PathVariable::Step]) {
        return Err(invalid(format!(
            "`{shown}` is the same file for all parts of the array: add `%a` or `%j`, or append"
        )));
    }
    if facts.nodes > 1 && !append && !has([PathVariable::Rank, PathVariable::Node]) {
        return Err(invalid(format!(
            "`{shown}` is the same path on each host, which may share it: add `%t` or `%N`, or append"
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PathFacts = PathFacts {
        is_array: false,
        nodes: 1,
        has_workdir: true,
    };

    fn checked(stdin: &str, terminal: bool) -> Result<StepStreams, FieldError> {
        let request = StreamsRequest {
            stdin: Some(stdin.to_string()),
            terminal,
            ..StreamsRequest::default()
        };
        StepStreams::checked(request, ONE)
    }

    fn with_stdout(path: &str, append: bool, facts: PathFacts) -> Result<StepStreams, FieldError> {
        let request = StreamsRequest {
            stdout: Some(path.to_string()),
            append,
            ..StreamsRequest::default()
        };
        StepStreams::checked(request, facts)
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
        let of = |terminal| {
            let request = StreamsRequest {
                terminal,
                ..StreamsRequest::default()
            };
            StepStreams::checked(request, ONE).unwrap()
        };
        assert!(of(false).is_default());
        assert_eq!(of(true), checked("-", true).unwrap());
        assert!(of(true).of_rank(1).is_default());
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

    #[test]
    fn output_goes_to_files_that_do_not_empty_each_other() {
        let array = PathFacts {
            is_array: true,
            ..ONE
        };
        let gang = PathFacts { nodes: 2, ..ONE };
        let lost = PathFacts {
            has_workdir: false,
            ..ONE
        };
        for (path, append, facts, words) in [
            ("out/%j.log", false, ONE, ""),
            ("/out.log", false, lost, ""),
            ("out.log", false, lost, "begin with `/`, or set `workdir`"),
            ("%a", true, ONE, "use `%j`"),
            ("%A_%a", false, array, ""),
            ("%j", false, array, ""),
            ("%A", false, array, "add `%a` or `%j`, or append"),
            ("%A", true, array, ""),
            ("%t", false, gang, ""),
            ("/tmp/%N", false, gang, ""),
            ("%j", false, gang, "add `%t` or `%N`, or append"),
            ("%j", true, gang, ""),
            ("%q", true, ONE, "`%q` has no meaning"),
        ] {
            match with_stdout(path, append, facts) {
                Ok(streams) => {
                    assert_eq!(words, "", "{path}");
                    let stdout = streams.of_rank(1).stdout.unwrap();
                    assert_eq!(stdout.as_str(), path);
                }
                Err(error) => {
                    assert_eq!(error.field, "stdout");
                    assert!(
                        !words.is_empty() && error.message.contains(words),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_terminal_has_no_files_and_appending_needs_one() {
        let request = |stderr: Option<&str>, append, terminal| StreamsRequest {
            stderr: stderr.map(ToString::to_string),
            append,
            terminal,
            ..StreamsRequest::default()
        };
        for (request, field, words) in [
            (
                request(Some("/e"), false, true),
                "stderr",
                "leave out `stderr` or `terminal`",
            ),
            (
                request(None, true, false),
                "append",
                "name one by `stdout` or `stderr`",
            ),
        ] {
            let error = StepStreams::checked(request, ONE).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.message.contains(words), "{error}");
        }
    }
}
