//! Stops attempts because of their disk usage, and reports such an end. `storage` measures usage and free
//! space.

use sluice_common::supervision::StorageExceeded;

use super::{Attempt, AttemptId, BootMillis, SpawnError, StopSignal, Table, clock, io, warn};
use crate::storage::CountCandidate;

impl Table {
    /// Checks the free space, and starts a count if an attempt has a bound or there is a shortage.
    pub(super) fn on_storage_time(&mut self, now: BootMillis) {
        let is_idle = self.attempts.values().all(Attempt::is_gone);
        let is_due = now >= self.storage.wake_at();
        let may_count = self.storage.check_disk(now, is_idle);
        if is_due && self.storage.has_projects() {
            // Quotas need no count.
            self.stop_over_own();
        }
        if !may_count {
            return;
        }
        let is_short = self.storage.shortage().is_some();
        let living = self.attempts.iter().filter(|(_, a)| !a.is_gone());
        let counted = living.filter(|(_, a)| is_short || a.storage.granted.is_some());
        let candidates = counted.map(|(id, _)| CountCandidate {
            id: id.clone(),
            pids: self.groups.members(id),
        });
        self.storage.begin(candidates.collect(), now);
    }

    /// Handles results of a count.
    pub fn on_storage(&mut self) {
        self.storage.on_ready(clock::boot_now());
        self.judge_storage();
    }

    /// Handles the end of a child; returns whether it counted files.
    pub(super) fn on_count_ended(&mut self, pid: u32) -> bool {
        let was_its = self.storage.on_child_ended(pid, clock::boot_now());
        if was_its {
            self.judge_storage();
        }
        was_its
    }

    fn judge_storage(&mut self) {
        self.stop_over_own();
        if self.is_making_room() {
            return;
        }
        let free = self.attempts.iter().filter(|(_, a)| is_judged(a));
        let free = free.filter(|(_, a)| a.storage.granted.is_none());
        for (id, found) in self.storage.over_reserve(free.map(|(id, _)| id)) {
            self.stop_for_storage(id, found);
        }
    }

    /// Stops attempts that exceed a bound of their own.
    fn stop_over_own(&mut self) {
        let judged = self.attempts.iter().filter(|(_, a)| is_judged(a));
        let over =
            judged.filter_map(|(id, a)| Some((id.clone(), self.storage.exceeded(id, &a.storage)?)));
        for (id, found) in over.collect::<Vec<_>>() {
            self.stop_for_storage(id, found);
        }
    }

    /// Whether space is about to be freed, so that no further attempt is stopped meanwhile.
    fn is_making_room(&self) -> bool {
        let stops = |a: &Attempt| !a.is_gone() && a.storage.exceeded.is_some();
        self.attempts.values().any(stops) || self.sweep.is_removing()
    }

    fn stop_for_storage(&mut self, id: AttemptId, found: StorageExceeded) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let (bound, bytes, files) = (found.bound, found.used_bytes, found.used_files);
        warn!(step = %id.step, attempt = id.number, ?bound, bytes, files, "its files take too much of the disk: killing it");
        attempt.storage.exceeded = Some(found);
        attempt.killing = true;
        attempt.unsaved = true;
        self.want(id, StopSignal::Kill);
    }

    /// Fails if there is a shortage now.
    pub(super) fn check_room(&mut self, now: BootMillis) -> Result<(), SpawnError> {
        self.storage.look_at_once(now);
        match self.storage.shortage() {
            None => Ok(()),
            Some(short) => Err(SpawnError::Host {
                action: "start it".to_owned(),
                why: io::Error::other(short.why.clone()),
            }),
        }
    }

    /// Why nothing starts for lack of disk space, if so.
    pub fn shortage(&self) -> Option<&str> {
        self.storage.shortage().map(|short| short.why.as_str())
    }
}

/// Whether the attempt can be stopped for its disk usage, and was not.
fn is_judged(attempt: &Attempt) -> bool {
    !attempt.is_gone() && attempt.storage.exceeded.is_none()
}
