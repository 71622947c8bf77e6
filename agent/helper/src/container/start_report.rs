//! Report of a program that did not start.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::process::ExitCode;

use sluice_common::helper::{START_FAILED, START_REPORT_VARIABLE};
use sluice_common::limit::MAX_SENTENCE_BYTES;

use crate::streams::adopt;

/// Exit code of a shell for a program that cannot be run, used if there is no start report.
pub(super) const NOT_RUN: u8 = 126;

/// The pipe that takes the reason if the program does not start. It closes when this process becomes another program.
pub(super) struct StartReport(Option<File>);

impl StartReport {
    /// The pipe that the supervisor left open; none behind a wrapper.
    pub(super) fn inherited() -> Self {
        let number = std::env::var(START_REPORT_VARIABLE).ok();
        let number = number.and_then(|it| it.parse::<RawFd>().ok());
        Self(number.and_then(|it| adopt(it).ok()))
    }

    /// Reports that the program has started.
    pub(super) fn started(&mut self) {
        self.0 = None;
    }

    /// Reports why the program does not start: to the supervisor, else on standard error.
    pub(super) fn failed(self, why: &str) -> ExitCode {
        let cut = &why[..why.floor_char_boundary(MAX_SENTENCE_BYTES)];
        let _its_reader_may_have_died = match self.0 {
            Some(mut pipe) => pipe.write_all(&[&[START_FAILED], cut.as_bytes()].concat()),
            None => writeln!(io::stderr(), "sluice: {why}"),
        };
        ExitCode::from(NOT_RUN)
    }
}
