//! Applies records of steps that are forgotten.

use sluice_common::id::StepId;

use super::{ApplyResult, Mismatch, step_mut};
use crate::state::{MAX_DELETED_KEPT, State};

impl State {
    pub(super) fn on_step_forgotten(&mut self, id: &StepId, deleted: bool) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        let holds = step.holds_units();
        let finished = step.finished.filter(|_| !holds);
        finished.ok_or_else(|| Mismatch::NotOver(id.clone()))?;
        self.index.drop_finished(step);
        self.index.drop_submitted(step);
        self.stored.steps.remove(id);
        if deleted {
            self.note_deleted(id);
        }
        Ok(())
    }

    fn note_deleted(&mut self, id: &StepId) {
        self.stored.deleted.insert(self.stored.seq, id.clone());
        self.index.deleted.insert(id.clone());
        if self.stored.deleted.len() > MAX_DELETED_KEPT
            && let Some((_, oldest)) = self.stored.deleted.pop_first()
        {
            self.index.deleted.remove(&oldest);
        }
    }
}
