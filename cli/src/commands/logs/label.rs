//! Lines of several steps on one descriptor: each begins with the id of its step and is written as a whole.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use sluice_common::wire::LogStream;

use crate::failure::Failure;
use crate::out::Sink;

/// Most bytes of a line that are kept until its end: a longer line is broken.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// This process's descriptors, which several threads write to.
pub(super) struct SharedSinks {
    stdout: Mutex<Sink>,
    stderr: Mutex<Sink>,
}

impl SharedSinks {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            stdout: Mutex::new(Sink::stdout()?),
            stderr: Mutex::new(Sink::stderr()?),
        })
    }

    pub(super) fn of(&self, stream: LogStream) -> &Mutex<Sink> {
        match stream == LogStream::Stderr {
            true => &self.stderr,
            false => &self.stdout,
        }
    }
}

/// Writes the lines of one step. A last line without an end is written by `flush`.
pub(super) struct LabelledSink<'a, W> {
    label: Vec<u8>,
    to: &'a Mutex<W>,
    line: Vec<u8>,
}

impl<'a, W: Write> LabelledSink<'a, W> {
    pub(super) fn new(label: &str, to: &'a Mutex<W>) -> Self {
        Self {
            label: format!("{label}: ").into_bytes(),
            to,
            line: Vec::new(),
        }
    }

    fn write_lines(&self, lines: &[u8]) -> io::Result<()> {
        let mut text = Vec::with_capacity(lines.len() + self.label.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(&self.label);
            text.extend_from_slice(line);
        }
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(&text)
    }
}

impl<W: Write> Write for LabelledSink<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        let is_long = self.line.len() > MAX_LINE_BYTES;
        let end = self.line.iter().rposition(|byte| *byte == b'\n');
        let end = match end {
            Some(end) => end + 1,
            None if is_long => self.line.len(),
            None => 0,
        };
        let lines: Vec<u8> = self.line.drain(..end).collect();
        self.write_lines(&lines)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let last = std::mem::take(&mut self.line);
        self.write_lines(&last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_steps_stay_whole_and_say_whose_they_are() {
        let to = Mutex::new(Vec::new());
        let mut first = LabelledSink::new("a", &to);
        let mut second = LabelledSink::new("b.1", &to);
        first.write_all(b"one\ntw").unwrap();
        second.write_all(b"eins\n\n").unwrap();
        first.write_all(b"o\nlast").unwrap();
        first.flush().unwrap();
        second.flush().unwrap();
        let text = String::from_utf8(to.into_inner().unwrap()).unwrap();
        assert_eq!(text, "a: one\nb.1: eins\nb.1: \na: two\na: last\n");
    }

    #[test]
    fn a_line_without_end_is_broken_and_not_kept() {
        let to = Mutex::new(Vec::new());
        let mut sink = LabelledSink::new("a", &to);
        let piece = vec![b'x'; MAX_LINE_BYTES];
        sink.write_all(&piece).unwrap();
        assert!(to.lock().unwrap().is_empty());
        sink.write_all(b"y").unwrap();
        assert_eq!(to.lock().unwrap().len(), MAX_LINE_BYTES + 1 + "a: \n".len());
        assert!(sink.line.is_empty());
    }
}
