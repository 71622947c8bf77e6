//! The only module that prints. Results go to stdout; progress, hints and errors go to stderr, and progress only if a
//! person can see it.

mod sanitized_writer;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args::{Format, ListFormat};
use crate::failure::Failure;
use crate::render::safe;
use crate::terminal;
pub(crate) use sanitized_writer::SanitizedWriter;

/// Output settings of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    format: Format,
    stderr_terminal: bool,
    color_out: bool,
    color_err: bool,
    /// Columns of the terminal on stdout; `None` for a pipe, where nothing is cut.
    width: Option<usize>,
    /// Whether tables have a column of labels.
    labels: bool,
    /// Whether stderr is a terminal on which a line can be rewritten.
    redraws: bool,
    /// A format that only lists have, instead of `format`.
    list_format: Option<ListFormat>,
}

/// Meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Good, or normal.
    Good,
    /// On its way or waiting.
    Pending,
    Bad,
    /// Less important than the rest.
    Faint,
    /// More important than the rest.
    Strong,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Tone::Good => "32",
            Tone::Pending => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
            Tone::Strong => "1",
        }
    }
}

impl Out {
    /// Examines the descriptors and the environment: colour only on a terminal, and never with `NO_COLOR` or on a dumb
    /// terminal.
    pub(crate) fn detect(format: Format) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colors = !set("NO_COLOR") && !dumb;
        let stderr_terminal = io::stderr().is_terminal();
        Self {
            format,
            stderr_terminal,
            color_out: colors && io::stdout().is_terminal(),
            color_err: colors && stderr_terminal,
            width: terminal_size::terminal_size_of(io::stdout())
                .map(|(width, _)| usize::from(width.0))
                .filter(|width| *width > 0),
            labels: false,
            redraws: stderr_terminal && !dumb,
            list_format: None,
        }
    }

    /// Prints plain text, as into a pipe.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self {
            format: Format::Table,
            stderr_terminal: false,
            color_out: false,
            color_err: false,
            width: None,
            labels: false,
            redraws: false,
            list_format: None,
        }
    }

    /// Prints as on a terminal of this width, without colours.
    #[cfg(test)]
    pub(crate) fn sized(width: usize) -> Self {
        Self {
            width: Some(width),
            ..Self::plain()
        }
    }

    /// Prints with colours, as on a terminal of unlimited width.
    #[cfg(test)]
    pub(crate) fn colored() -> Self {
        Self {
            color_out: true,
            ..Self::plain()
        }
    }

    /// Changes the format.
    #[cfg(test)]
    pub(crate) fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Returns the requested format.
    pub(crate) fn format(self) -> Format {
        self.format
    }

    /// Sets a format that only lists have.
    pub(crate) fn with_list_format(self, list_format: Option<ListFormat>) -> Self {
        Self {
            list_format,
            ..self
        }
    }

    /// Returns the requested format that only lists have, if there is one.
    pub(crate) fn list_format(self) -> Option<ListFormat> {
        self.list_format
    }

    /// Adds a column of labels to tables.
    pub(crate) fn with_labels(self, labels: bool) -> Self {
        Self { labels, ..self }
    }

    /// Whether a column of labels was requested.
    pub(crate) fn shows_labels(self) -> bool {
        self.labels
    }

    /// Whether the wide format was requested.
    pub(crate) fn is_wide(self) -> bool {
        self.format == Format::Wide
    }

    /// Columns of the terminal on stdout; `None` if it is none.
    pub(crate) fn width(self) -> Option<usize> {
        self.width
    }

    /// Colours a word for stdout.
    pub(crate) fn paint(self, tone: Tone, text: impl Display) -> String {
        painted(self.color_out, tone, text)
    }

    /// Colours a word for stderr.
    pub(crate) fn paint_err(self, tone: Tone, text: impl Display) -> String {
        painted(self.color_err, tone, text)
    }

    /// Prints a result, with a line end if `text` lacks one.
    pub(crate) fn result(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let end = if text.ends_with('\n') || text.is_empty() {
            ""
        } else {
            "\n"
        };
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.write_all(end.as_bytes()))
            .and_then(|()| stdout.flush())
            .map_err(Failure::Output)
    }

    /// Prints progress, only for somebody who watches.
    pub(crate) fn progress(self, text: &str) {
        if self.stderr_terminal {
            self.stderr_line(&self.paint_err(Tone::Faint, harmless(text)));
        }
    }

    /// Prints a question, without a line end.
    pub(crate) fn ask(self, text: &str) {
        let _ = io::stderr().lock().write_all(harmless(text).as_bytes());
    }

    /// Shows one line of progress in place of the one before; an empty text removes it. Only for somebody who watches a
    /// terminal that can do that.
    pub(crate) fn progress_line(self, text: &str) {
        if self.redraws {
            let line = format!("\r\u{1b}[K{}", self.paint_err(Tone::Faint, harmless(text)));
            let _ = io::stderr().lock().write_all(line.as_bytes());
        }
    }

    /// Whether a person sees stderr.
    pub(crate) fn is_watched(self) -> bool {
        self.stderr_terminal
    }

    /// Prints a note of little importance, faint on a terminal.
    pub(crate) fn aside(self, text: &str) {
        self.stderr_line(&self.paint_err(Tone::Faint, harmless(text)));
    }

    /// Prints what belongs in a log, whether or not somebody watches.
    pub(crate) fn notice(self, text: &str) {
        self.stderr_line(text);
    }

    /// Prints a warning.
    pub(crate) fn warning(self, text: &str) {
        let label = self.paint_err(Tone::Pending, "warning:");
        self.stderr_line(&format!("{label} {}", harmless(text)));
    }

    /// Prints why the command failed.
    pub(crate) fn error(self, text: &str) {
        let label = self.paint_err(Tone::Bad, "error:");
        self.stderr_line(&format!("{label} {}", harmless(text)));
    }

    /// Writes one line in one write, so that lines of several threads do not mix. A closed stderr is ignored.
    fn stderr_line(self, text: &str) {
        let mut text = format!("{text}\n");
        if terminal::is_raw() {
            text = text.replace('\n', "\r\n");
        }
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Escapes control characters in a message, which may contain anybody's text; line ends stay.
pub(crate) fn harmless(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(safe).collect();
    lines.join("\n")
}

fn painted(colored: bool, tone: Tone, text: impl Display) -> String {
    if colored {
        format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
    } else {
        text.to_string()
    }
}

/// A descriptor for a step's bytes: unbuffered, unencoded, and tolerant of a non-blocking descriptor. On a terminal,
/// control sequences are escaped; elsewhere every byte passes.
#[derive(Debug)]
pub(crate) struct Sink {
    file: File,
    /// Set if it is a terminal.
    sanitized: Option<SanitizedWriter>,
}

impl Sink {
    pub(crate) fn stdout() -> Result<Self, Failure> {
        Self::of(&io::stdout())
    }

    pub(crate) fn stderr() -> Result<Self, Failure> {
        Self::of(&io::stderr())
    }

    /// Stdout for a program; if it uses this process's terminal, every byte passes.
    pub(crate) fn stdout_of(uses_terminal: bool) -> Result<Self, Failure> {
        let mut sink = Self::stdout()?;
        if uses_terminal {
            sink.sanitized = None;
        }
        Ok(sink)
    }

    fn of(fd: &(impl AsFd + IsTerminal)) -> Result<Self, Failure> {
        let owned = fd.as_fd().try_clone_to_owned().map_err(Failure::Output)?;
        Ok(Self {
            file: File::from(owned),
            sanitized: fd.is_terminal().then(SanitizedWriter::default),
        })
    }

    /// Writes bytes unchanged.
    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait_writable(&self.file)?,
                done => return done,
            }
        }
    }

    fn pass_all_on(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.pass_on(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(sanitized) = &mut self.sanitized else {
            return self.pass_on(bytes);
        };
        let shown = sanitized.pass(bytes);
        self.pass_all_on(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(sanitized) = &mut self.sanitized {
            let last = sanitized.finish();
            let _nobody_is_left_to_hear = self.pass_all_on(&last);
        }
    }
}

fn wait_writable(file: &File) -> io::Result<()> {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_wrapped_round_the_word_or_left_out() {
        assert_eq!(
            painted(true, Tone::Bad, "failed"),
            "\u{1b}[31mfailed\u{1b}[0m"
        );
        assert_eq!(painted(false, Tone::Bad, "failed"), "failed");
    }

    #[test]
    fn messages_lose_what_a_terminal_would_obey_and_keep_their_lines() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\nc\u{202e}"),
            "a\\u{1b}[2Jb\nc\\u{202e}"
        );
    }

    #[test]
    fn a_sink_waits_for_a_full_pipe_that_does_not_block() {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let expected = bytes.clone();
        let writer = std::thread::spawn(move || {
            Sink {
                file: File::from(write),
                sanitized: None,
            }
            .write_all(&bytes)
        });
        let mut got = Vec::new();
        let mut reader = File::from(read);
        let mut chunk = [0; 4096];
        loop {
            match io::Read::read(&mut reader, &mut chunk) {
                Ok(0) => break,
                Ok(n) => got.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(e) => panic!("{e}"),
            }
        }
        writer.join().unwrap().unwrap();
        assert!(got == expected, "no byte lost or changed");
    }
}
