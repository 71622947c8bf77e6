//! All-or-nothing changes: they are applied for real, every record is noted, and then they are kept or rolled back.
//! So a dry run uses the same code as a real run, and costs only what it changes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use sluice_common::id::{ServiceName, StepId};

use super::affected::PoolChecks;
use super::{Context, Outbox};
use crate::state::Rollback;

/// The outputs that were pending when a dry run began.
#[derive(Debug)]
#[must_use = "a run is kept or taken back"]
pub(crate) struct DryRun {
    outbox: Outbox,
    affected: PoolChecks,
    due_services: BTreeSet<ServiceName>,
    due_allocations: BTreeSet<StepId>,
}

impl Context {
    /// Starts a dry run: from here on everything is noted. Dry runs do not nest.
    pub(crate) fn begin_dry_run(&mut self) -> DryRun {
        self.rollback = Some(Box::new(Rollback::of(&self.state)));
        DryRun {
            outbox: core::mem::take(&mut self.outbox),
            affected: self.affected.clone(),
            due_services: self.due_services.clone(),
            due_allocations: self.due_allocations.clone(),
        }
    }

    /// Ends a dry run and keeps its changes.
    pub(crate) fn keep(&mut self, run: DryRun) {
        self.rollback = None;
        let made = core::mem::replace(&mut self.outbox, run.outbox);
        self.outbox.append(made);
    }

    /// Ends a dry run and rolls its changes back.
    pub(crate) fn take_back(&mut self, run: DryRun) {
        if let Some(rollback) = self.rollback.take() {
            self.state.take_back(*rollback);
        }
        self.outbox = run.outbox;
        self.affected = run.affected;
        self.due_services = run.due_services;
        self.due_allocations = run.due_allocations;
    }

    /// Number of pools and steps that would be rolled back.
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
