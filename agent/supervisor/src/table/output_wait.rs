//! Delays the end of attempts until all of their output is written. [`crate::output::writer`] writes it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::poll::PollFlags;
use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_SENTENCE_BYTES;
use sluice_common::supervision::{AttemptView, Exit, HostPhase};
use sluice_common::wire::LogStream;

use super::{Table, clock};
use crate::hooks::run::last_output;
use crate::output;
use crate::spawn::{SpawnError, lookup, step_hooks};

impl Table {
    /// Handles a child that did not become its program. Hooks before it may have written the reason.
    pub(super) fn on_start_failed(&mut self, id: &AttemptId, exit: Exit) {
        self.writer.end(id);
        self.failed.insert(id.clone(), exit);
    }

    /// Fails if the writer cannot serve one more attempt.
    pub(super) fn has_room_to_write(&self) -> Result<(), SpawnError> {
        self.writer.has_room().map_err(|most| SpawnError::Host {
            action: "write the output of one attempt more".to_owned(),
            why: io::Error::other(format!(
                "with its limit of open files it can serve {most}; raise the supervisor's (`LimitNOFILE=` of its unit)"
            )),
        })
    }

    /// Reports the end of a program when its output is written. Processes that it left may continue to write.
    pub(super) fn tell_when_written(&mut self, id: &AttemptId) {
        self.writer.flush(id);
        self.flushing.insert(id.clone());
    }

    /// Reports the ends of programs whose output is written.
    pub(super) fn report_flushed(&mut self) {
        let done = self
            .flushing
            .extract_if(.., |id| self.writer.is_flushed(id));
        for id in done {
            if let Some(attempt) = self.attempts.get_mut(&id)
                && !attempt.is_gone()
            {
                (attempt.end_reported, attempt.unsaved) = (true, true);
            }
            self.changed.insert(id);
        }
    }

    /// The view for the agent: the attempt counts as running until the output of its program is written.
    pub(super) fn shown(&self, id: &AttemptId, mut view: AttemptView) -> AttemptView {
        if self.flushing.contains(id)
            && let HostPhase::Ended(end) = &view.phase
            && let Some(process) = end.process
        {
            view.phase = HostPhase::Running(process);
        }
        view
    }

    /// Reports failed starts whose output is written.
    pub(super) fn report_failed_starts(&mut self) {
        let now = clock::wall_now();
        let done = self.failed.extract_if(.., |id, _| self.writer.is_done(id));
        for (id, exit) in done {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                let exit = with_last_words(exit, &self.spawner.attempt_dir(&id));
                attempt.on_start_failed(exit, now);
                attempt.unsaved = true;
                self.changed.insert(id);
            }
        }
    }

    /// Handles answers of the writer. The end of an attempt's output was requested when no process was left,
    /// so that is not checked again.
    pub fn on_writer(&mut self) {
        for id in self.writer.on_ready() {
            self.on_nothing_left(&id);
        }
    }

    /// Descriptor of the writer to poll; call [`Table::on_writer`] when it is ready.
    pub fn writer(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.writer.watched()
    }
}

/// Adds the end of the attempt's standard error to the message of a failed hook before the program.
fn with_last_words(exit: Exit, dir: &Path) -> Exit {
    match exit {
        Exit::StartFailed(why) if why.starts_with(step_hooks::HOOK) => {
            let path = dir.join(LogStream::Stderr.file_name());
            let said = output::open_own(&path, OpenOptions::new().read(true));
            let said = said.map_or_else(|_| String::new(), |file| last_output(&file, 0));
            Exit::StartFailed(lookup::cut(&(why + &said), MAX_SENTENCE_BYTES).to_owned())
        }
        exit => exit,
    }
}
