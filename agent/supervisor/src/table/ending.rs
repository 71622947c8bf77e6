//! Determines how the main process of an attempt has ended: by itself, out of memory, by a failed start, or
//! killed by a keeper.

use super::{AttemptId, Exit, StartStatus, Table, Usage, clock, info};

impl Table {
    pub(super) fn on_main_ended(&mut self, id: &AttemptId, exit: Exit, usage: Usage) {
        let exit = self.cause_of(id, exit);
        let usage = self.groups.usage(id).or(usage);
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| a.main_is_running()) else {
            return;
        };
        let now = clock::wall_now();
        if let Some(StartStatus::Failed(exit)) = attempt.report_mut().map(|report| report.read()) {
            let exit = self.hooking.on_start_failed(&id.step, exit);
            if let Exit::StartFailed(why) | Exit::HostFailed(why) | Exit::PrologFailed(why) = &exit
            {
                info!(step = %id.step, attempt = id.number, "process not started: {why}");
            }
            return self.on_start_failed(id, exit);
        } else {
            let (exit_code, signal) = (exit.code(), exit.signal());
            let out_of_memory = matches!(exit, Exit::OutOfMemory(_));
            info!(step = %id.step, attempt = id.number, exit_code, signal, out_of_memory, "process ended");
            attempt.on_exit(exit, now, usage);
        }
        attempt.unsaved = true;
        self.look_due = true;
        self.tell_when_written(id);
    }

    /// The reported exit. A kill for lack of memory or disk is reported as such, even if the exit was not
    /// seen. A step that lost a process to it and still exited with 0 has succeeded. A step killed by a
    /// keeper has lost its lease.
    fn cause_of(&self, id: &AttemptId, seen: Exit) -> Exit {
        let killed = seen != Exit::Code(0);
        if killed && self.spool.was_ended_by_keeper(id) {
            return Exit::LeaseExpired;
        }
        let held = self.attempts.get(id).map(|a| &a.storage);
        // The file system may have rejected writes before any check, and the step may have ended because of
        // that.
        let passed = |held| self.storage.exceeded_quota(held);
        let exceeded = held.and_then(|held| held.exceeded.or_else(|| passed(held)));
        if let Some(found) = exceeded.filter(|_| killed) {
            return Exit::StorageExceeded(found);
        }
        match self.groups.out_of_memory(id).filter(|_| killed) {
            Some(found) => Exit::OutOfMemory(found),
            None => seen,
        }
    }
}
