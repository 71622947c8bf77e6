//! Who is stopped for the disk that its files take, and how such an end is told. What they take, and what the disk has left, is `storage`'s to know.

use sluice_common::supervision::StorageExceeded;

use super::{Attempt, AttemptId, BootMillis, SpawnError, StopSignal, Table, clock, io, warn};
use crate::storage::CountCandidate;

impl Table {
    /// Time has passed: looks at the disk, and has files counted where somebody has a bound or the disk is short.
    pub(super) fn on_storage_time(&mut self, now: BootMillis) {
        let is_idle = self.attempts.values().all(Attempt::is_gone);
        let is_due = now >= self.storage.wake_at();
        let may_count = self.storage.check_disk(now, is_idle);
        if is_due && self.storage.has_projects() {
            // What quotas say costs no count.
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

    /// A count of files has something to tell.
    pub fn on_storage(&mut self) {
        self.storage.on_ready(clock::boot_now());
        self.judge_storage();
    }

    /// A child has ended: whether it counted files.
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

    /// Stops those who have passed a bound of their own.
    fn stop_over_own(&mut self) {
        let judged = self.attempts.iter().filter(|(_, a)| is_judged(a));
        let over =
            judged.filter_map(|(id, a)| Some((id.clone(), self.storage.exceeded(id, &a.storage)?)));
        for (id, found) in over.collect::<Vec<_>>() {
            self.stop_for_storage(id, found);
        }
    }

    /// Whether room is about to come free: nobody else is stopped meanwhile.
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

    /// Nothing begins while the disk has less free than is kept, as it is now.
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

    /// Why nothing begins here for want of disk, if so.
    pub fn shortage(&self) -> Option<&str> {
        self.storage.shortage().map(|short| short.why.as_str())
    }
}

/// Whether an attempt can be stopped for what it takes, and was not.
fn is_judged(attempt: &Attempt) -> bool {
    !attempt.is_gone() && attempt.storage.exceeded.is_none()
}
