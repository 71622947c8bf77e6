//! Copies files to and from a caller, for `sluice cp`. This process runs as the step's user, in the step's groups and in the
//! directory of its main process, so the kernel enforces what it may read and write, and what it uses counts against the
//! step.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::prctl::set_name;
use sluice_copy::{
    CopyError, CopyIssue, CopyListener, CopyReader, CopyReport, CopyRequest, CopyWriter, Position,
    receive, send,
};

/// Bytes between two calls of the system, as many as a pipe holds.
const BUFFER_BYTES: usize = 64 * 1024;

/// Copies as the request at standard input says. The caller is told why a copy fails.
///
/// # Errors
/// If the copy fails.
pub(crate) fn run() -> io::Result<()> {
    let _it_is_a_name = set_name(c"sluice-copy");
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut input = CopyReader::new(BufReader::with_capacity(BUFFER_BYTES, stdin));
    match input.message().map_err(io::Error::other)? {
        CopyRequest::Read { path, after } => {
            let mut out = CopyWriter::new(BufWriter::with_capacity(BUFFER_BYTES, stdout));
            let path = Path::new(OsStr::from_bytes(&path));
            send(path, after.as_ref(), &mut out).map_err(io::Error::other)
        }
        CopyRequest::Write { target, transfer } => {
            let mut reporter = ReportWriter(CopyWriter::new(stdout));
            let destination = target.decide();
            reporter.report(&CopyReport::Destination(destination.clone()))?;
            let received = receive(&mut input, &destination, transfer, &mut reporter);
            let last = match &received {
                Ok(()) => CopyReport::Complete,
                Err(CopyError::Lost(_)) => return received.map_err(io::Error::other),
                Err(error) => CopyReport::Failed(error.to_failure()),
            };
            reporter.report(&last)?;
            received.map_err(io::Error::other)
        }
    }
}

/// Tells the caller how a copy to this host goes.
struct ReportWriter(CopyWriter<File>);

impl ReportWriter {
    fn report(&mut self, report: &CopyReport) -> io::Result<()> {
        let sent = self.0.message(report).and_then(|()| self.0.flush());
        sent.map_err(io::Error::other)
    }
}

impl CopyListener for ReportWriter {
    fn on_position(&mut self, position: &Position) -> io::Result<()> {
        self.report(&CopyReport::Position(position.clone()))
    }

    fn on_note(&mut self, note: CopyIssue) -> io::Result<()> {
        self.report(&CopyReport::Note(note))
    }
}
