//! Several changes that are made as one or not at all: they are made in earnest, every record noted, and then kept or
//! taken back. So what a trial says is what would happen, by the same code, and costs what it changes.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use sluice_common::id::PoolName;

use super::{Core, Outbox};
use crate::state::Undo;

/// What waited to be done when a trial began.
#[derive(Debug)]
#[must_use = "a trial is kept or taken back"]
pub(crate) struct Trial {
    outbox: Outbox,
    dirty: BTreeSet<PoolName>,
}

impl Core {
    /// From here on everything is noted. Trials do not nest.
    pub(crate) fn begin_trial(&mut self) -> Trial {
        self.undo = Some(Box::new(Undo::of(&self.state)));
        Trial {
            outbox: core::mem::take(&mut self.outbox),
            dirty: self.dirty.clone(),
        }
    }

    /// What was made since the trial began stays.
    pub(crate) fn keep(&mut self, trial: Trial) {
        self.undo = None;
        let made = core::mem::replace(&mut self.outbox, trial.outbox);
        self.outbox.append(made);
    }

    /// Nothing of it was ever made.
    pub(crate) fn take_back(&mut self, trial: Trial) {
        if let Some(undo) = self.undo.take() {
            self.state.take_back(*undo);
        }
        self.outbox = trial.outbox;
        self.dirty = trial.dirty;
    }

    /// How many pools and steps would be put back.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> (usize, usize) {
        let undo = self.undo.as_ref();
        undo.map_or((0, 0), |undo| undo.noted())
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
