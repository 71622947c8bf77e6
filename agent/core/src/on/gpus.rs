//! Waits for an ended attempt's GPUs to be *seen* free before it is `Released`. [`crate::gpus`] decides when a GPU is
//! free.
//!
//! ```text
//!                no GPUs, or all of them seen free, or lost
//! no process -----------------------------------------------> Released
//!      |                                                           ^
//!      +--- `gpu_release_timeout` --- those not free are quarantined
//! ```
//! Only a scan that started after the last process counts. GPU states are reported before the status that returns the
//! GPUs, so that no busy GPU is granted.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::AttemptId;
use sluice_common::time::Span;
use sluice_common::wire::FromNode;

use crate::attempt::Attempt;
use crate::core::{Core, Supervisor};
use crate::gpus::{GpuHolders, GpuUse};
use crate::input::{GpuHealth, GpuObservation, GpuScan, Now, TimerKey};
use crate::output::Output;
use crate::stop::later;
use crate::waiting::ReleaseWait;

use super::suspension::without;

/// Time between two scans while an attempt waits for a GPU.
const FAST_SCAN: Span = Span::from_millis(100);
/// Time between two scans while GPUs are quarantined until they are free.
const SLOW_SCAN: Span = Span::from_secs(5);

impl Core {
    /// Records the GPUs of an attempt. A supervisor that lost its state names none, which removes none.
    pub(crate) fn note_gpus(&mut self, id: &AttemptId, gpus: &[String], is_allocation: bool) {
        if gpus.is_empty() {
            return;
        }
        self.assigned_gpus.insert(id.clone(), gpus.to_vec());
        if is_allocation {
            self.allocations.insert(id.clone());
        }
    }

    /// The GPUs of an attempt, by UUID.
    pub fn gpus_of(&self, id: &AttemptId) -> &[String] {
        self.assigned_gpus.get(id).map_or(&[], Vec::as_slice)
    }

    /// Waits for the GPUs of an attempt without processes, if it had any.
    pub(crate) fn await_gpus(&mut self, id: &AttemptId) {
        let assigned_gpus = self.assigned_gpus.get(id).cloned().unwrap_or_default();
        if assigned_gpus.is_empty() {
            return self.change(id, Attempt::on_free);
        }
        let (since, until) = (
            self.clock,
            later(self.clock, self.settings.gpu_release_timeout),
        );
        let release = ReleaseWait {
            since,
            until,
            awaited: assigned_gpus.into_iter().map(|uuid| (uuid, None)).collect(),
        };
        self.releases.insert(id.clone(), release);
        self.wake(TimerKey::Release(id.clone()), until);
        self.request_scan();
    }

    /// Handles a scan. A scan before the supervisor's first answer is kept, because users of GPUs cannot be
    /// identified yet. A scan that arrives after a later one is ignored: it may show users of a GPU that is
    /// free now, which would be mistaken for its idle state.
    pub(crate) fn on_gpus(&mut self, now: Now, look: GpuScan) {
        if look.began < self.looked_at {
            return;
        }
        self.looked_at = look.began;
        if self.supervisor == Supervisor::Unheard {
            self.early_scan = Some(look);
        } else {
            self.apply_scan(now, &look);
        }
    }

    /// Applies a scan from before the supervisor's first answer, so that the first hello includes its
    /// results.
    pub(crate) fn apply_early_scan(&mut self, now: Now) {
        if let Some(look) = self.early_scan.take() {
            self.apply_scan(now, &look);
        }
    }

    fn apply_scan(&mut self, now: Now, look: &GpuScan) {
        let away = self.away();
        let seen_through = (!away.is_empty()).then(|| without(look, &away));
        let look = seen_through.as_ref().unwrap_or(look);
        let held = &self.assigned_gpus;
        let is_held = |unit: &str| held.values().flatten().any(|gpu| gpu == unit);
        if self.gpus.learn_units(&look.units, is_held) {
            self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        }
        for (uuid, seen) in &look.gpus {
            let hands = self.hands(uuid);
            self.gpus.observe(uuid, seen, hands);
            self.gpus.give_back(uuid, seen, look.began);
            if *seen == GpuObservation::Lost {
                self.stop_attempts_of(now, uuid);
            }
        }
        // A GPU whose units were read has answered, though it is no unit itself while it is cut.
        for gpu in look
            .units
            .keys()
            .filter(|gpu| !look.gpus.contains_key(*gpu))
        {
            let answered = GpuObservation::Present {
                processes: None,
                memory_used: None,
            };
            self.gpus.give_back(gpu, &answered, look.began);
        }
        for release in self.releases.values_mut() {
            if release.since <= look.began {
                remove_free(release, &self.gpus, look);
            }
        }
        self.advance_moves(now, look);
        self.skip_reassigned_gpus();
        self.report_gpus();
        self.finish_releases();
    }

    /// Handles a failure of a GPU or of the host.
    pub(crate) fn on_gpu_health(&mut self, health: GpuHealth) {
        let before = self.gpus.kept();
        match health {
            GpuHealth::Quarantine {
                uuid,
                why,
                is_count,
            } => self.gpus.mark_unhealthy(&uuid, why, is_count),
            GpuHealth::Conditions(all) => {
                for (uuid, conditions) in all {
                    self.gpus.set_conditions(&uuid, conditions);
                }
            }
            GpuHealth::Drain { why } => self.gpus.drain(why),
        }
        // The failure count is stored even if there is nothing new to report.
        if self.gpus.states() == self.reported_gpus && self.gpus.kept() != before {
            self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        }
        self.report_gpus();
    }

    /// Handles an admin's request to return GPUs to service. The next scan shows whether they still fail.
    pub(crate) fn on_restore_gpus(&mut self, uuids: &[String]) {
        for uuid in uuids {
            self.gpus.request_restore(uuid, self.clock);
        }
        self.request_scan();
    }

    /// Quarantines the GPUs of a waiting attempt that are not free in time.
    pub(crate) fn on_release_timer(&mut self, now: Now, id: &AttemptId) {
        let Some(release) = self.releases.get(id) else {
            return;
        };
        if now.boot < release.until {
            let until = release.until;
            return self.wake(TimerKey::Release(id.clone()), until);
        }
        self.skip_reassigned_gpus();
        let release = self.releases.get_mut(id).expect("it was there");
        for (uuid, holders) in core::mem::take(&mut release.awaited) {
            let holders = holders.unwrap_or_else(|| GpuHolders {
                why: "the driver does not report whether it is free".to_owned(),
                pids: Vec::new(),
            });
            let units: Vec<String> = self.gpus.successors(&uuid).map(ToOwned::to_owned).collect();
            for unit in units {
                self.gpus.quarantine(&unit, holders.clone());
            }
        }
        self.report_gpus();
        self.finish_releases();
    }

    /// Scans again if needed.
    pub(crate) fn on_look_timer(&mut self) {
        self.request_scan();
    }

    pub(crate) fn request_scan(&mut self) {
        let nobody_waits = self.releases.is_empty() && self.moves.is_empty();
        let pause = match (nobody_waits, self.gpus.any_held()) {
            (false, _) => FAST_SCAN,
            (true, true) => SLOW_SCAN,
            (true, false) => return,
        };
        self.outputs.push(Output::ScanGpus);
        let at = later(self.clock, pause);
        self.wake(TimerKey::GpuScan, at);
    }

    fn hands(&self, uuid: &str) -> GpuUse {
        self.use_by(uuid, |_| true)
    }

    /// Returns the use of a GPU by those attempts that count.
    fn use_by(&self, uuid: &str, counts: impl Fn(&AttemptId) -> bool) -> GpuUse {
        let assigned_gpus = self.assigned_gpus.iter().filter(|(id, _)| counts(id));
        let mut hands = GpuUse::Unused;
        let overlaps = |gpu: &String| self.gpus.overlap(gpu, uuid);
        for (id, _) in assigned_gpus.filter(|(_, gpus)| gpus.iter().any(overlaps)) {
            match self.attempts.get(id) {
                Some(Attempt::Releasing { .. }) => hands = GpuUse::Awaited,
                Some(attempt) if attempt.is_away() || self.freed.contains(id) => {}
                Some(
                    Attempt::Starting { .. }
                    | Attempt::Running { .. }
                    | Attempt::Frozen(_)
                    | Attempt::Stopping { .. }
                    | Attempt::Ended { .. },
                ) => return GpuUse::Attempt,
                Some(Attempt::Released { .. }) | None => {}
            }
        }
        hands
    }

    fn stop_attempts_of(&mut self, now: Now, uuid: &str) {
        let assigned_gpus = self.assigned_gpus.iter();
        let overlaps = |gpu: &String| self.gpus.overlap(gpu, uuid);
        let had = assigned_gpus.filter(|(_, gpus)| gpus.iter().any(overlaps));
        let had: Vec<AttemptId> = had.map(|(id, _)| id.clone()).collect();
        for id in &had {
            self.change(id, |attempt| attempt.on_gpu_lost(now));
        }
    }

    /// Ends the wait for GPUs that were granted again, which must have been free in between: a new agent sees
    /// attempts whose ends were recorded before.
    ///
    /// An allocation keeps the GPUs of the steps inside it, so it is no later user to these.
    fn skip_reassigned_gpus(&mut self) {
        let mut taken: BTreeSet<(AttemptId, String)> = BTreeSet::new();
        for (id, release) in &self.releases {
            let may_be_later = |other: &AttemptId| {
                self.allocations.contains(id) || !self.allocations.contains(other)
            };
            let awaited = release.awaited.keys();
            let later = awaited.filter(|gpu| self.use_by(gpu, may_be_later) == GpuUse::Attempt);
            taken.extend(later.map(|gpu| (id.clone(), gpu.clone())));
        }
        for (id, gpu) in taken {
            if let Some(release) = self.releases.get_mut(&id) {
                release.awaited.remove(&gpu);
            }
        }
    }

    /// Stores and reports GPU faults if they have changed.
    pub(crate) fn report_gpus(&mut self) {
        let states = self.gpus.states();
        if states == self.reported_gpus {
            return;
        }
        self.reported_gpus = states.clone();
        self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        if let Some(link) = self.greeted_link() {
            let message = FromNode::GpuStates(Box::new(states));
            self.outputs.push(Output::Send { link, message });
        }
    }

    fn finish_releases(&mut self) {
        let done = self.releases.extract_if(.., |_, r| r.awaited.is_empty());
        let done: Vec<AttemptId> = done.map(|(id, _)| id).collect();
        for id in &done {
            self.change(id, Attempt::on_free);
        }
    }

    /// Forgets an attempt's GPUs and processors.
    pub(crate) fn forget_gpus(&mut self, id: &AttemptId) {
        self.reclaim_gpus(id);
        self.freed.remove(id);
        self.assigned_gpus.remove(id);
        self.allocations.remove(id);
        self.pinned.remove(id);
        self.releases.remove(id);
    }
}

fn remove_free(release: &mut ReleaseWait, gpus: &crate::gpus::Gpus, look: &GpuScan) {
    release.awaited.retain(|uuid, holders| {
        for unit in gpus.successors(uuid) {
            // A GPU that the scan does not mention was not examined.
            let Some(seen) = look.gpus.get(unit) else {
                return true;
            };
            if let busy @ Some(_) = gpus.busy(unit, seen) {
                *holders = busy;
                return true;
            }
        }
        false
    });
}
