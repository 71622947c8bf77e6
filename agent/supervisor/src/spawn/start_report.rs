//! The report of a child about its start: how the child writes it, and how the supervisor reads it.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};

use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::helper::START_FAILED;
use sluice_common::limit::MAX_SENTENCE_BYTES;
use sluice_common::supervision::Exit;

use crate::{handover, sys};

/// First byte of a part of a report: the step is not in the directory that it prefers, for the reason with the code in
/// the second byte.
pub(super) const DIRECTORY_REFUSED: u8 = b'd';
/// Bytes of that part.
pub(super) const REFUSAL_BYTES: usize = 2;
/// First byte of a report: a resource of the host is missing.
pub(super) const HOST_FAILED: u8 = b'h';
/// First byte of a report: the agent has taken the step's inputs away, so nothing was begun.
pub(super) const INPUTS_GONE: u8 = b'i';
/// First byte of a report: the prolog failed.
pub(super) const PROLOG_FAILED: u8 = b'p';
/// First byte of a report: the step's specification cannot be met.
pub(super) const STEP_FAILED: u8 = START_FAILED;

/// A failed start: the first byte of its report, and why.
pub(super) type StartFault = (u8, String);

/// The child's report of its start. The pipe closes when the child becomes the program.
#[derive(Debug)]
pub struct StartReport {
    pipe: PipeReader,
    failure: Option<Exit>,
    workdir_refused: Option<DirectoryRefusal>,
}

/// Content of a [`StartReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartStatus {
    /// The child has not finished.
    Pending,
    /// The child has become the program, or has died without a report.
    Started,
    /// The child could not become the program and exits for this reason.
    Failed(Exit),
}

impl StartReport {
    pub(super) fn new(pipe: PipeReader) -> Self {
        Self {
            pipe,
            failure: None,
            workdir_refused: None,
        }
    }

    /// Reads the report without waiting.
    pub fn read(&mut self) -> StartStatus {
        if let Some(failure) = &self.failure {
            return StartStatus::Failed(failure.clone());
        }
        // The child writes each part in one call, which a pipe keeps together at this length.
        let mut told = [0; REFUSAL_BYTES + 1 + MAX_SENTENCE_BYTES];
        let failure = loop {
            match self.pipe.read(&mut told) {
                Ok(0) => return StartStatus::Started,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return StartStatus::Pending,
                Ok(len) => match self.note_refusal(&told[..len]) {
                    [] => {}
                    [fault, sentence @ ..] => break failure_of(*fault, sentence),
                },
                Err(e) => {
                    break Exit::HostFailed(format!("the start could not be watched: {e}"));
                }
            }
        };
        self.failure = Some(failure.clone());
        StartStatus::Failed(failure)
    }

    /// Notes why the child is not in the preferred directory, if the report begins with that; returns the rest.
    fn note_refusal<'a>(&mut self, told: &'a [u8]) -> &'a [u8] {
        match told {
            [DIRECTORY_REFUSED, code, rest @ ..] => {
                self.workdir_refused = DirectoryRefusal::from_code(*code);
                rest
            }
            rest => rest,
        }
    }

    /// Why the child is not in the directory that its step prefers, as far as the report was read.
    pub fn workdir_refused(&self) -> Option<DirectoryRefusal> {
        self.workdir_refused
    }

    /// The form for the next program in this process.
    pub fn hand_over(&self) -> handover::HandedReport {
        handover::HandedReport {
            pipe: handover::number(&self.pipe),
            failure: self.failure.clone(),
            workdir_refused: self.workdir_refused,
        }
    }

    /// Restores a report after an upgrade.
    ///
    /// # Errors
    /// If its pipe is not open.
    pub fn take_over(left: handover::HandedReport) -> io::Result<Self> {
        Ok(Self {
            pipe: PipeReader::from(sys::adopt(left.pipe)?),
            failure: left.failure,
            workdir_refused: left.workdir_refused,
        })
    }

    /// Whether the report is still open.
    pub fn is_awaited(&self) -> bool {
        self.failure.is_none()
    }
}

fn failure_of(fault: u8, sentence: &[u8]) -> Exit {
    let sentence = String::from_utf8_lossy(sentence).into_owned();
    match fault {
        HOST_FAILED => Exit::HostFailed(sentence),
        INPUTS_GONE => Exit::NotBegun(sentence),
        PROLOG_FAILED => Exit::PrologFailed(sentence),
        _ => Exit::StartFailed(sentence),
    }
}

impl AsFd for StartReport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
