//! All-or-nothing changes: they are applied for real, every record noted, and then kept or rolled back. So a dry run
//! says what would happen, by the same code, and costs only what it changes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use sluice_common::id::PoolName;

use super::{Context, Outbox};
use crate::state::Rollback;

/// What waited to be done when a run began.
#[derive(Debug)]
#[must_use = "a run is kept or taken back"]
pub(crate) struct DryRun {
    outbox: Outbox,
    affected: BTreeSet<PoolName>,
}

impl Context {
    /// From here on everything is noted. Dry runs do not nest.
    pub(crate) fn begin_dry_run(&mut self) -> DryRun {
        self.rollback = Some(Box::new(Rollback::of(&self.state)));
        DryRun {
            outbox: core::mem::take(&mut self.outbox),
            affected: self.affected.clone(),
        }
    }

    /// What was made since the run began stays.
    pub(crate) fn keep(&mut self, run: DryRun) {
        self.rollback = None;
        let made = core::mem::replace(&mut self.outbox, run.outbox);
        self.outbox.append(made);
    }

    /// Nothing of it was ever made.
    pub(crate) fn take_back(&mut self, run: DryRun) {
        if let Some(rollback) = self.rollback.take() {
            self.state.take_back(*rollback);
        }
        self.outbox = run.outbox;
        self.affected = run.affected;
    }

    /// How many pools and steps would be put back.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> (usize, usize) {
        let rollback = self.rollback.as_ref();
        rollback.map_or((0, 0), |rollback| rollback.noted())
    }
}

impl Outbox {
    fn append(&mut self, mut later: Self) {
        self.records.append(&mut later.records);
        self.sends.append(&mut later.sends);
        self.replies.append(&mut later.replies);
        self.timers.append(&mut later.timers);
    }
}
