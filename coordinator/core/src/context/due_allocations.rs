//! The allocations inside which something may be due, by the records of an input: those of an allocation itself, of the
//! steps inside it, and of the hosts that can be reached again or whose GPUs may be fit again.

use sluice_common::id::StepId;

use super::Context;
use crate::record::Record;

impl Context {
    /// Takes an allocation inside which something may be due.
    pub(crate) fn take_due_allocation(&mut self) -> Option<StepId> {
        self.due_allocations.pop_first()
    }

    pub(crate) fn set_all_allocations_due(&mut self) {
        let all = self.state.index().inside.allocations().cloned();
        self.due_allocations.extend(all);
    }

    /// Notes the allocations that a record concerns, once it is applied.
    pub(super) fn note_due_allocations(&mut self, record: &Record) {
        if let Record::NodeReady { .. }
        | Record::GpusReported { .. }
        | Record::GpusUncordoned { .. }
        | Record::GpuCarved { .. }
        | Record::GpuNotCarved(_)
        | Record::RecoveryEnded { .. } = record
        {
            return self.set_all_allocations_due();
        }
        let Some(id) = record.step() else {
            return;
        };
        let step = self.state.step(id);
        let inside = step.and_then(|step| step.spec.inside.as_ref());
        if let Some(allocation) = inside {
            self.due_allocations.insert(allocation.clone());
        } else if self.state.index().inside.has_any(id) {
            self.due_allocations.insert(id.clone());
        }
    }
}
