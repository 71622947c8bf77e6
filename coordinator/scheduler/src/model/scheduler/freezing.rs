//! Freezes and resumes runs.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use sluice_common::id::{AttemptId, StepId};

use crate::model::frozen::FreezeState;
use crate::model::request::Run;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// Starts to freeze a run: it will release all but its memory. Until then `room_mb` more memory is held for what
    /// is moved from its GPUs. Time frozen does not count against a time limit, so its end is no longer known.
    pub fn suspend(&mut self, attempt: &AttemptId, room_mb: u64) {
        if let Some(mut run) = self.detach_run(attempt) {
            run.request.time_limit = None;
            run.frozen = Some(FreezeState::freezing(&run.request, room_mb));
            self.hold(attempt, run);
        }
    }

    /// Marks a run as frozen: it keeps its memory and what was moved from its GPUs.
    pub fn freeze(&mut self, attempt: &AttemptId, moved_mb: u64) {
        let Some(mut run) = self.detach_run(attempt) else {
            return;
        };
        run.frozen = Some(FreezeState::frozen(&run.request, moved_mb));
        run.backfill = BTreeSet::new();
        self.hold(attempt, run);
        self.stop_awaiting(attempt);
    }

    /// Resumes a run with all that it asks for; `backfill` are the waiting requests that it goes past.
    pub fn thaw(&mut self, attempt: &AttemptId, backfill: &BTreeSet<StepId>) {
        if let Some(mut run) = self.detach_run(attempt) {
            run.frozen = None;
            run.backfill = backfill.clone();
            self.hold(attempt, run);
        }
    }

    /// Queues a frozen run to be resumed.
    pub fn await_resumption(&mut self, attempt: &AttemptId) {
        let request = self.runs.get(attempt).and_then(|r| r.resumption(attempt));
        if let Some(request) = request {
            self.enqueue(request);
        }
    }

    /// Takes a run out of all accounts, to be held again with other resources.
    pub fn detach_run(&mut self, attempt: &AttemptId) -> Option<Run> {
        let run = self.runs.remove(attempt).map(Arc::unwrap_or_clone)?;
        for node in &run.holding {
            self.change_host(node, |host| {
                host.runs.remove(attempt);
                host.gpus_by_run.remove(attempt);
                host.used = host.used.less(run.each());
            });
            self.replicas.remove(run.request.spread_in.as_ref(), node);
        }
        self.refund(attempt, &run);
        Some(run)
    }
}
