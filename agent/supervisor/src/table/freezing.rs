//! Freezing and thawing on the agent's word. Each word is answered by a view, also where nothing changes; where the
//! kernel takes its time, a second view follows when it is done.

use sluice_common::helper::CheckpointAction;
use sluice_common::supervision::{BootMillis, FreezerState};

use super::{AttemptId, Phase, Table, clock, info, warn};
use crate::groups::Groups;

impl Table {
    /// The groups of all attempts.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(super) fn on_freeze(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| !a.is_gone()) else {
            return;
        };
        if let Phase::Starting(..) = attempt.phase() {
            // It is shown only when its program runs: frozen now, it never would.
            attempt.freezer = FreezerState::Freezing;
            return;
        }
        if attempt.moving.sent().is_some() {
            // A helper stands in its groups, and would be frozen with it.
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

    /// Does what was asked for while it started.
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

    /// Groups have changed: some may be empty now, some frozen.
    pub fn on_groups(&mut self) {
        for id in self.groups.changed() {
            self.look_at_freezer(&id);
            self.look_due = true;
        }
    }

    /// Looks where the kernel does not tell.
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
