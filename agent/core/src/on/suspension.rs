//! Handles orders to suspend and resume, with the attempt's GPU memory: a scan finds the GPUs' users before the
//! supervisor moves their memory, and another must *see* the GPUs empty before the attempt counts as suspended.
//! [`crate::suspend`] has the states of an attempt.
//!
//! ```text
//! suspend --> Counting --(scan: users, memory)--> ordered --(view: moved)--> Awaited --(scan: free)--> Suspended
//! ```
//! The result is stored, so that a restarted agent knows which suspended attempts hold nothing: their GPUs may belong to
//! others by then. Only a scan that started after the awaited event counts. A wait ends if it takes too long or the order
//! is reversed.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{megabytes_down, megabytes_up};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{AttemptView, Exit, FreezerState, ToSupervisor};
use sluice_common::wire::{MemoryShortage, SuspendFailure};

use crate::attempt::{Attempt, Effects};
use crate::core::Core;
use crate::gpus::Gpus;
use crate::input::{GpuObservation, GpuScan, Now};
use crate::output::Output;
use crate::spawn::never_started;
use crate::suspend::{GpuHolding, SuspendStage, Suspension};
use crate::waiting::GpuWait;

/// Processes that use an attempt's GPUs, and how much memory they hold there.
#[derive(Debug, Default, PartialEq, Eq)]
struct GpuUsers {
    pids: BTreeSet<u32>,
    bytes: u64,
}

impl Core {
    /// Suspends an attempt. A frozen attempt would keep its GPU memory, so that is moved first.
    pub(crate) fn on_suspend(&mut self, now: Now, id: AttemptId, room_mb: u64) {
        if !self.attempts.contains_key(&id) {
            return self.settle(id, never_started(now, Exit::Unknown, None));
        }
        let assigned_gpus = self
            .assigned_gpus
            .get(&id)
            .is_some_and(|gpus| !gpus.is_empty());
        let holds_memory = assigned_gpus && !self.settings.gpus_are_declared;
        let limit = self.settings.suspend_limit;
        let holding = holds_memory.then_some(GpuHolding { room_mb, limit });
        self.change(&id, |attempt| attempt.on_suspend(now, holding));
    }

    pub(crate) fn on_resume(&mut self, now: Now, id: AttemptId) {
        // If only a scan is awaited, no order is unanswered.
        let waits_for_look = self.moves.remove(&id).is_some();
        if self.attempts.contains_key(&id) && waits_for_look {
            self.change(&id, |attempt| {
                attempt.on_suspension(|it| it.on_resume_unanswered(now))
            });
        } else if self.attempts.contains_key(&id) {
            self.change(&id, |attempt| attempt.on_resume(now));
        } else {
            self.settle(id, never_started(now, Exit::Unknown, None));
        }
    }

    pub(crate) fn on_suspension_timer(&mut self, now: Now, id: &AttemptId) {
        self.change(id, |attempt| attempt.on_suspension_timer(now));
    }

    pub(crate) fn freeze(&mut self, id: &AttemptId) {
        if self.holding(id).is_some() {
            return self.count_users(id);
        }
        let attempt = id.clone();
        self.supervise(ToSupervisor::Freeze { attempt });
    }

    /// Stores that the attempt may use its GPUs again, then thaws it.
    pub(crate) fn thaw(&mut self, id: &AttemptId) {
        self.reclaim_gpus(id);
        self.repin(id);
        let attempt = id.clone();
        self.supervise(ToSupervisor::Thaw { attempt });
    }

    /// Parameters for the move of the attempt's GPU memory, if it has GPUs.
    pub(crate) fn holding(&self, id: &AttemptId) -> Option<GpuHolding> {
        suspension(self.attempts.get(id)?)?
            .holding
            .filter(|_| !self.settings.gpus_are_declared)
    }

    /// Scans for users of the attempt's GPUs, for the order to the supervisor.
    pub(crate) fn count_users(&mut self, id: &AttemptId) {
        let since = self.clock;
        self.moves.insert(id.clone(), GpuWait::Counting { since });
        self.request_scan();
    }

    /// The attempt is frozen and its memory is reported as moved; the GPUs must be seen empty.
    pub(crate) fn await_moved(&mut self, id: &AttemptId) {
        if self.settings.gpus_are_declared {
            return self.change(id, |attempt| attempt.on_suspension(Suspension::on_moved));
        }
        let since = self.clock;
        self.moves.insert(id.clone(), GpuWait::Awaited { since });
        self.request_scan();
    }

    /// Advances attempts that wait for a scan.
    pub(crate) fn advance_moves(&mut self, now: Now, look: &GpuScan) {
        let attempts = &self.attempts;
        self.moves.retain(|id, _| is_on_its_way(attempts.get(id)));
        for (id, wait) in self.moves.clone() {
            match wait {
                GpuWait::Counting { since } if since <= look.began => {
                    self.on_counted(now, &id, look)
                }
                GpuWait::Awaited { since } if since <= look.began => self.on_looked(&id, look),
                GpuWait::Counting { .. } | GpuWait::Awaited { .. } => {}
            }
        }
    }

    fn on_counted(&mut self, now: Now, id: &AttemptId, look: &GpuScan) {
        let Some(holding) = self.holding(id) else {
            return;
        };
        let gpus = self
            .assigned_gpus
            .get(id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let counted = match users(gpus, look, &self.gpus) {
            Some(Ok(users)) => check_room(&users, holding.room_mb, look).map(|()| users),
            Some(Err(why)) => Err(why),
            // A GPU did not answer; the next scan may tell.
            None => return,
        };
        self.moves.remove(id);
        match counted {
            Ok(users) => self.supervise(ToSupervisor::Suspend {
                attempt: id.clone(),
                users: users.pids.into_iter().collect(),
                bytes: users.bytes,
                limit: holding.limit,
            }),
            Err(why) => self.change(id, |attempt| {
                attempt.on_suspension(|it| it.on_unmovable(now, why))
            }),
        }
    }

    fn on_looked(&mut self, id: &AttemptId, look: &GpuScan) {
        let gpus = self
            .assigned_gpus
            .get(id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let holds = |uuid: &String| {
            look.gpus
                .get(uuid)
                .is_none_or(|seen| self.gpus.holds(uuid, seen))
        };
        if gpus.iter().any(holds) {
            return;
        }
        for uuid in gpus {
            self.gpus.mark_vacated(uuid, id);
        }
        self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        self.has_moved(id);
    }

    fn has_moved(&mut self, id: &AttemptId) {
        self.moves.remove(id);
        self.change(id, |attempt| attempt.on_suspension(Suspension::on_moved));
    }

    /// Adopts a frozen attempt as suspended if an earlier agent saw its GPUs empty: they may belong to others
    /// by now, so it must not run and need not wait for them.
    pub(crate) fn adopt_moved(&mut self, view: &AttemptView) {
        let (id, gpus) = (&view.attempt, &view.launch_record.gpus);
        let is_frozen = match view.freezer {
            FreezerState::Frozen | FreezerState::Moved(_) => true,
            FreezerState::Thawed
            | FreezerState::Freezing
            | FreezerState::Refused(_)
            | FreezerState::Moving
            | FreezerState::Restoring => false,
        };
        if is_frozen && !gpus.is_empty() && gpus.iter().all(|gpu| self.gpus.is_vacated(gpu, id)) {
            self.has_moved(id);
        }
    }

    /// The attempt may use its GPUs again, or is over.
    pub(crate) fn reclaim_gpus(&mut self, id: &AttemptId) {
        if self.gpus.clear_vacated(id) {
            self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        }
    }

    /// Releases the GPUs of an attempt that is stopped while suspended: it holds nothing on them, and others
    /// may use them.
    pub(crate) fn release_gpus_early(&mut self, id: &AttemptId) {
        if self.attempts.get(id).is_some_and(Attempt::is_away) {
            self.freed.insert(id.clone());
        }
    }

    /// The processes of suspended attempts, which hold nothing on GPUs even if the driver lists them.
    pub(crate) fn away(&self) -> BTreeSet<u32> {
        let frozen = self.attempts.values().filter(|attempt| attempt.is_away());
        let moved = frozen.filter_map(|attempt| suspension(attempt)?.moved.as_ref());
        moved.flat_map(|moved| moved.pids.iter().copied()).collect()
    }
}

/// A scan without some processes.
pub(crate) fn without(look: &GpuScan, pids: &BTreeSet<u32>) -> GpuScan {
    let mut look = look.clone();
    for seen in look.gpus.values_mut() {
        if let GpuObservation::Present {
            processes: Some(processes),
            ..
        } = seen
        {
            processes.retain(|pid| !pids.contains(pid));
        }
    }
    look
}

fn suspension(attempt: &Attempt) -> Option<&Suspension> {
    match attempt {
        Attempt::Frozen(suspension) => Some(suspension),
        Attempt::Starting { .. }
        | Attempt::Running { .. }
        | Attempt::Stopping { .. }
        | Attempt::Ended { .. }
        | Attempt::Releasing { .. }
        | Attempt::Released { .. } => None,
    }
}

fn is_on_its_way(attempt: Option<&Attempt>) -> bool {
    let stage = attempt.and_then(suspension).map(|it| &it.stage);
    matches!(
        stage,
        Some(SuspendStage::Suspending { .. } | SuspendStage::Suspended)
    )
}

/// `None` if a GPU does not answer now; an error if the memory on one of them cannot be read at all.
fn users(
    gpus: &[String],
    look: &GpuScan,
    known: &Gpus,
) -> Option<Result<GpuUsers, SuspendFailure>> {
    let mut users = GpuUsers::default();
    for uuid in gpus {
        match look.gpus.get(uuid)? {
            // The attempt is being stopped because of a lost GPU.
            GpuObservation::Lost | GpuObservation::NoAnswer => return None,
            GpuObservation::Present {
                processes: Some(processes),
                memory_used: Some(used),
            } => {
                users.pids.extend(processes);
                if !processes.is_empty() {
                    let idle = known.idle_bytes(uuid);
                    users.bytes = users.bytes.saturating_add(used.saturating_sub(idle));
                }
            }
            GpuObservation::Present { .. } => return Some(Err(SuspendFailure::NoCheckpoint)),
        }
    }
    Some(Ok(users))
}

/// Checks the host memory, by the coordinator's reservation and by what is available now.
fn check_room(users: &GpuUsers, kept_mb: u64, look: &GpuScan) -> Result<(), SuspendFailure> {
    let wanted_mb = megabytes_up(users.bytes);
    let free_mb = look.memory_available.map_or(u64::MAX, megabytes_down);
    let room_mb = kept_mb.min(free_mb);
    if wanted_mb > room_mb {
        return Err(SuspendFailure::NoRoom(MemoryShortage {
            wanted_mb,
            room_mb,
        }));
    }
    Ok(())
}

impl Attempt {
    /// Whether the attempt is suspended and holds nothing on its GPUs.
    pub(crate) fn is_away(&self) -> bool {
        suspension(self).is_some_and(|it| it.stage == SuspendStage::Suspended)
    }

    pub(crate) fn on_suspension(
        &mut self,
        event: impl FnOnce(Suspension) -> crate::attempt::Transition,
    ) -> Effects {
        match suspension(self).cloned() {
            Some(suspension) => self.turn(event(suspension)),
            None => Effects::new(),
        }
    }
}
