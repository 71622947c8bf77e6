//! Reads files of variables (`--env-file`), which keep secrets off the command line, visible to every user of the
//! machine, and out of the shell's history. The format is Docker's: a line `NAME=value` is taken literally, without
//! quotes and escapes; `NAME` alone passes the caller's own variable; empty lines and lines with `#` are ignored. No
//! message contains a value.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sluice_common::limit::MAX_SPEC_BYTES;

use crate::failure::Failure;
use crate::render::safe;

/// Name that means standard input.
pub(crate) const STDIN: &str = "-";

/// Reads the variables of several files, in order: the last value of a name counts.
pub(crate) fn read_all(files: &[String]) -> Result<Vec<(String, String)>, Failure> {
    if files.iter().filter(|file| *file == STDIN).count() > 1 {
        let twice = "--env-file: standard input can be read once: name `-` once";
        return Err(Failure::Usage(twice.to_owned()));
    }
    let mut variables = Vec::new();
    for file in files {
        let shown = shown(file);
        let text = read(file)
            .map_err(|e| Failure::Usage(format!("--env-file: cannot read {shown}: {e}")))?;
        let found = parse(&text, |name| std::env::var_os(name));
        let found = found.map_err(|(line, why)| {
            Failure::Usage(format!("--env-file: {shown}, line {line}: {why}"))
        })?;
        variables.extend(found);
    }
    Ok(variables)
}

fn shown(file: &str) -> String {
    match file {
        STDIN => "standard input".to_owned(),
        file => safe(file),
    }
}

fn read(file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // One byte more than a step may have, so that a too long file is rejected and not cut.
    let most = MAX_SPEC_BYTES as u64 + 1;
    match file {
        STDIN => io::stdin().lock().take(most).read_to_end(&mut text)?,
        file => File::open(Path::new(file))?
            .take(most)
            .read_to_end(&mut text)?,
    };
    if text.len() > MAX_SPEC_BYTES {
        let why = format!("it is longer than the {MAX_SPEC_BYTES} bytes that a step may have");
        return Err(io::Error::other(why));
    }
    Ok(text)
}

/// Number of a line, counted from 1, and its error.
type LineError = (usize, String);

fn parse(
    text: &[u8],
    own: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(String, String)>, LineError> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut variables = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let found = variable(line, &own).map_err(|why| (at + 1, why))?;
        variables.extend(found);
    }
    Ok(variables)
}

fn variable(
    line: &[u8],
    own: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<(String, String)>, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.contains('\0') {
        return Err("it holds a NUL byte, which no variable can".to_owned());
    }
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    };
    // A line without `=` may be half of a broken secret, so it is not shown.
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("write NAME=value, without blanks in the name".to_owned());
    }
    let value = match value {
        Some(value) => value.to_owned(),
        None => match own(name) {
            None => return Ok(None),
            Some(value) => {
                let unread = |_| "the variable that it names is not UTF-8 here".to_owned();
                value.into_string().map_err(unread)?
            }
        },
    };
    Ok(Some((name.to_owned(), value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Result<Vec<(String, String)>, LineError> {
        parse(text, |name| (name == "OWN").then(|| "passed on".into()))
    }

    #[test]
    fn lines_are_taken_as_they_are() {
        let text =
            b"\xef\xbb\xbfA=1\r\n\n# a comment\n  B= \"two\"=3 \nEMPTY=\nOWN\nABSENT\nA=again";
        let expected = [
            ("A", "1"),
            ("B", " \"two\"=3 "),
            ("EMPTY", ""),
            ("OWN", "passed on"),
            ("A", "again"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found(text).unwrap(), expected);
    }

    #[test]
    fn a_mistake_is_told_by_its_line_and_no_value_is() {
        for (text, line, says) in [
            (&b"A=1\n=hunter2"[..], 2, "write NAME=value"),
            (b"A=1\n\nMY NAME=hunter2", 3, "without blanks in the name"),
            (b"A=1\nsome hunter2 line", 2, "write NAME=value"),
            (b"A=hunter2\0", 1, "a NUL byte"),
            (b"A=hunter2\xff", 1, "not UTF-8"),
        ] {
            let (at, why) = found(text).unwrap_err();
            assert_eq!(at, line, "{why}");
            assert!(why.contains(says) && !why.contains("hunter2"), "{why}");
        }
    }
}
