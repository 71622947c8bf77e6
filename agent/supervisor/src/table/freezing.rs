//! Freezes and thaws attempts by order of the agent. Each order is answered by a view, even if nothing
//! changes; if the kernel needs time, a second view follows.

use sluice_common::helper::CheckpointAction;
use sluice_common::supervision::{BootMillis, FreezerState};

use super::{AttemptId, Phase, Table, clock, info, warn};
use crate::groups::Groups;

impl Table {
    /// The control groups of all attempts.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(super) fn on_freeze(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| !a.is_gone()) else {
            return;
        };
        if let Phase::Starting(..) = attempt.phase() {
            // The freeze takes effect when the program runs; the child would never reach it otherwise.
            attempt.freezer = FreezerState::Freezing;
            return;
        }
        if attempt.moving.sent().is_some() {
            // A helper is in the attempt's groups, and would be frozen too.
            return;
        }
        let found = match self.groups.freeze(id) {
            Ok(()) => attempt.moving.shown(self.groups.freezer(id)),
            Err(why) => {
                warn!(step = %id.step, attempt = id.number, ?why, "not frozen");
                FreezerState::Refused(why)
            }
        };
        attempt.on_freezer(found, clock::boot_now());
        self.changed.insert(id.clone());
    }

    /// Applies a freeze that was ordered during the start.
    pub(super) fn freeze_late(&mut self, id: &AttemptId) {
        if self
            .attempts
            .get(id)
            .is_some_and(|a| a.freezer == FreezerState::Freezing)
        {
            self.on_freeze(id);
        }
    }

    pub(super) fn on_thaw(&mut self, id: &AttemptId, now: BootMillis) {
        if self.queue_thaw(id) {
            return;
        }
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| !a.is_gone()) else {
            return;
        };
        if let FreezerState::Frozen | FreezerState::Freezing | FreezerState::Moved(_) =
            attempt.freezer
            && let Err(why) = self.groups.thaw(id)
        {
            warn!(step = %id.step, attempt = id.number, ?why, "not thawed");
        }
        let found = match attempt.phase() {
            Phase::Starting(..) => FreezerState::Thawed,
            Phase::Running(..) | Phase::Ended(_) | Phase::Gone(_) => self.groups.freezer(id),
        };
        attempt.on_freezer(found, clock::boot_now());
        self.changed.insert(id.clone());
        self.restore_memory(id, CheckpointAction::Resume, now);
    }

    /// Handles changed groups, some of which may be empty or frozen now.
    pub fn on_groups(&mut self) {
        for id in self.groups.changed() {
            self.look_at_freezer(&id);
            self.look_due = true;
        }
    }

    /// Polls freezers that cause no event.
    pub(super) fn look_at_freezers(&mut self) {
        let freezing = |(_, a): &(&AttemptId, &super::Attempt)| a.freezer == FreezerState::Freezing;
        let ids: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(freezing)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ids {
            self.look_at_freezer(id);
        }
    }

    fn look_at_freezer(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| !a.is_gone()) else {
            return;
        };
        if let (Phase::Starting(..), _) | (_, FreezerState::Refused(_)) =
            (attempt.phase(), &attempt.freezer)
        {
            return;
        }
        let found = attempt.moving.shown(self.groups.freezer(id));
        if attempt.freezer != found {
            info!(step = %id.step, attempt = id.number, state = ?found, "its freezer has changed");
            attempt.on_freezer(found, clock::boot_now());
            self.changed.insert(id.clone());
        }
    }
}
