//! Assigns processors to pinned attempts. [`crate::processors`] chooses them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec::Vec;

use sluice_common::amount::MCPU;
use sluice_common::id::AttemptId;
use sluice_common::processors::{CpuMode, CpuSet};
use sluice_common::supervision::{CpuAllocation, Exit, ToSupervisor};
use sluice_common::wire::Assignment;

use crate::attempt::Attempt;
use crate::core::Core;

const MCPU_PER_PROCESSOR: u64 = 1_000;

impl Core {
    /// The processors of an assigned attempt; the error says why it cannot have what it was granted.
    pub(crate) fn processors_for(&self, assignment: &Assignment) -> Result<CpuAllocation, Exit> {
        let mode = assignment.cpu_mode;
        let own = match mode {
            CpuMode::Limit | CpuMode::Weight => CpuSet::default(),
            CpuMode::Pinned => self.pick_for(assignment)?,
        };
        Ok(CpuAllocation { mode, own })
    }

    fn pick_for(&self, assignment: &Assignment) -> Result<CpuSet, Exit> {
        let count = whole_processors(assignment.resources.get(MCPU));
        let taken = self.pinned_beside(&assignment.attempt);
        let topology = &self.settings.topology;
        topology.pick(count, &assignment.gpus, &taken).ok_or_else(|| {
            Exit::StartFailed(format!(
                "it asks for {count} processors of its own (`cpu_mode: pinned`), and of the {} of this host that steps may use, {} belong to other pinned steps: submit it again",
                topology.processors.len(),
                taken.len()
            ))
        })
    }

    /// Processors of all other pinned attempts that may run.
    fn pinned_beside(&self, id: &AttemptId) -> CpuSet {
        let others = self.pinned.iter().filter(|(other, _)| *other != id);
        let running = others.filter(|(other, _)| self.attempts.get(*other).is_some_and(may_run));
        running.flat_map(|(_, own)| own.iter()).collect()
    }

    /// Records the processors of an attempt. A supervisor that lost its state names none, which removes none.
    pub(crate) fn note_processors(&mut self, id: &AttemptId, own: &CpuSet) {
        if !own.is_empty() {
            self.pinned.insert(id.clone(), own.clone());
        }
    }

    /// Gives a resumed attempt other processors if its own were assigned to another meanwhile. If there are
    /// none, it keeps its own: they were granted to it, and standing still would help no other attempt.
    pub(crate) fn repin(&mut self, id: &AttemptId) {
        let Some(own) = self.pinned.get(id) else {
            return;
        };
        let taken = self.pinned_beside(id);
        if own.is_disjoint(&taken) {
            return;
        }
        let gpus = self
            .assigned_gpus
            .get(id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let Some(processors) = self.settings.topology.pick(own.len(), gpus, &taken) else {
            return;
        };
        self.pinned.insert(id.to_owned(), processors.clone());
        let attempt = id.clone();
        self.supervise(ToSupervisor::Pin {
            attempt,
            processors,
        });
    }
}

fn whole_processors(mcpu: u64) -> usize {
    usize::try_from(mcpu.div_ceil(MCPU_PER_PROCESSOR)).unwrap_or(usize::MAX)
}

/// Whether the attempt's processes may run, now or before its next view.
fn may_run(attempt: &Attempt) -> bool {
    match attempt {
        Attempt::Released { .. } | Attempt::Releasing { .. } => false,
        Attempt::Frozen(_) => !attempt.is_away(),
        Attempt::Starting { .. }
        | Attempt::Running { .. }
        | Attempt::Stopping { .. }
        | Attempt::Ended { .. } => true,
    }
}
