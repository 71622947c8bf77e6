//! Runs that are frozen, or on their way to be, and what waits for what they give back.

use alloc::collections::BTreeSet;

use sluice_common::id::{AttemptId, StepId};

use crate::model::frozen::FreezeState;
use crate::model::request::Run;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// A run is to be frozen: all but its memory comes back by itself. Until it has, room for what will be moved from its
    /// GPUs is taken.
    pub fn suspend(&mut self, attempt: &AttemptId, room_mb: u64) {
        if let Some(mut run) = self.detach_run(attempt) {
            run.frozen = Some(FreezeState::freezing(&run.request, room_mb));
            self.hold(attempt, run);
        }
    }

    /// A run is frozen: it keeps its memory, and what was moved from its GPUs.
    pub fn freeze(&mut self, attempt: &AttemptId, moved_mb: u64) {
        let Some(mut run) = self.detach_run(attempt) else {
            return;
        };
        run.frozen = Some(FreezeState::frozen(&run.request, moved_mb));
        run.backfill = BTreeSet::new();
        self.hold(attempt, run);
        self.stop_awaiting(attempt);
    }

    /// What others waited for of a run has come.
    pub fn stop_awaiting(&mut self, attempt: &AttemptId) {
        for waiter in self.awaiting.remove(attempt).into_iter().flatten() {
            if let Some(nomination) = self.nominations.get_mut(&waiter) {
                nomination.awaits.remove(attempt);
            }
        }
    }

    /// A run holds again all that it asks for; `backfill` are the waiters around which that was granted.
    pub fn thaw(&mut self, attempt: &AttemptId, backfill: &BTreeSet<StepId>) {
        if let Some(mut run) = self.detach_run(attempt) {
            run.frozen = None;
            run.backfill = backfill.clone();
            self.hold(attempt, run);
        }
    }

    /// A frozen run begins to wait for what it gave back.
    pub fn await_resumption(&mut self, attempt: &AttemptId) {
        let request = self.runs.get(attempt).and_then(|r| r.resumption(attempt));
        if let Some(request) = request {
            self.enqueue(request);
        }
    }

    /// Takes a run out of every account, to be held again otherwise.
    pub fn detach_run(&mut self, attempt: &AttemptId) -> Option<Run> {
        let run = self.runs.remove(attempt)?;
        for node in &run.holding {
            self.change_host(node, |host| {
                host.runs.remove(attempt);
                host.gpus_by_run.remove(attempt);
                host.used = host.used.less(run.each());
            });
        }
        self.refund(attempt, &run);
        Some(run)
    }
}
