//! The orders to freeze and to thaw, and what attempts hold on GPUs meanwhile: who uses the GPUs is counted before the
//! supervisor is told to move it, and the GPUs are *seen* to hold nothing of it before the attempt counts as frozen. The
//! states of an attempt are in [`crate::suspend`].
//!
//! ```text
//! to be frozen --> Counting --(a look: who, how much)--> told --(seen moved)--> Awaited --(a look: free)--> Suspended
//! ```
//! That they were seen free is kept, so that an agent that starts anew knows which frozen attempts hold nothing: their GPUs
//! may be another's by then. A look counts where it was begun after what it waits for. What is too late, or has turned back, is waited for no more.

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
use crate::input::{GpuLook, Now, Seen};
use crate::output::Output;
use crate::spawn::never_started;
use crate::suspend::{Holding, Stage, Suspension};
use crate::waiting::Wait;

/// Who uses the GPUs of an attempt, and how much of their memory it holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Users {
    pids: BTreeSet<u32>,
    bytes: u64,
}

impl Core {
    /// What holds GPUs keeps their memory when it is frozen, so that is moved first.
    pub(crate) fn on_suspend(&mut self, now: Now, id: AttemptId, room_mb: u64) {
        if !self.attempts.contains_key(&id) {
            return self.settle(id, never_started(now, Exit::Unknown, None));
        }
        let given = self.given.get(&id).is_some_and(|gpus| !gpus.is_empty());
        let holds_memory = given && !self.settings.gpus_are_declared;
        let limit = self.settings.suspend_limit;
        let holding = holds_memory.then_some(Holding { room_mb, limit });
        self.change(&id, |attempt| attempt.on_suspend(now, holding));
    }

    pub(crate) fn on_resume(&mut self, now: Now, id: AttemptId) {
        // Whoever only waits for a look has no order that is not answered yet, and need not wait for an answer.
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

    /// From here on it may hold its GPUs, so that is kept first.
    pub(crate) fn thaw(&mut self, id: &AttemptId) {
        self.come_back_to_gpus(id);
        self.pin_anew(id);
        let attempt = id.clone();
        self.supervise(ToSupervisor::Thaw { attempt });
    }

    /// What is to be known for moving what an attempt holds on GPUs, where it holds anything there.
    pub(crate) fn holding(&self, id: &AttemptId) -> Option<Holding> {
        suspension(self.attempts.get(id)?)?
            .holding
            .filter(|_| !self.settings.gpus_are_declared)
    }

    /// Looks who uses its GPUs, to tell the supervisor whose memory is to be moved.
    pub(crate) fn count_users(&mut self, id: &AttemptId) {
        let since = self.clock;
        self.moves.insert(id.clone(), Wait::Counting { since });
        self.look_at_gpus();
    }

    /// It is frozen, and what it held is said to be moved.
    pub(crate) fn await_moved(&mut self, id: &AttemptId) {
        if self.settings.gpus_are_declared {
            return self.change(id, |attempt| attempt.on_suspension(Suspension::on_moved));
        }
        let since = self.clock;
        self.moves.insert(id.clone(), Wait::Awaited { since });
        self.look_at_gpus();
    }

    /// Somebody looked: those that waited for it go on.
    pub(crate) fn judge_moves(&mut self, now: Now, look: &GpuLook) {
        let attempts = &self.attempts;
        self.moves.retain(|id, _| is_on_its_way(attempts.get(id)));
        for (id, wait) in self.moves.clone() {
            match wait {
                Wait::Counting { since } if since <= look.began => self.on_counted(now, &id, look),
                Wait::Awaited { since } if since <= look.began => self.on_looked(&id, look),
                Wait::Counting { .. } | Wait::Awaited { .. } => {}
            }
        }
    }

    fn on_counted(&mut self, now: Now, id: &AttemptId, look: &GpuLook) {
        let Some(holding) = self.holding(id) else {
            return;
        };
        let gpus = self.given.get(id).map(Vec::as_slice).unwrap_or_default();
        let counted = match users(gpus, look, &self.gpus) {
            Some(Ok(users)) => check_room(&users, holding.room_mb, look).map(|()| users),
            Some(Err(why)) => Err(why),
            // One of them did not answer: the next look may tell.
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

    fn on_looked(&mut self, id: &AttemptId, look: &GpuLook) {
        let gpus = self.given.get(id).map(Vec::as_slice).unwrap_or_default();
        let holds = |uuid: &String| {
            look.gpus
                .get(uuid)
                .is_none_or(|seen| self.gpus.holds(uuid, seen))
        };
        if gpus.iter().any(holds) {
            return;
        }
        for uuid in gpus {
            self.gpus.leave(uuid, id);
        }
        self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        self.has_moved(id);
    }

    fn has_moved(&mut self, id: &AttemptId) {
        self.moves.remove(id);
        self.change(id, |attempt| attempt.on_suspension(Suspension::on_moved));
    }

    /// One that is met frozen counts as frozen at once where an earlier agent has seen its GPUs free: they may be another's
    /// by now, so that it must not run, and they need not come free.
    pub(crate) fn meet_moved(&mut self, view: &AttemptView) {
        let (id, gpus) = (&view.attempt, &view.launch_record.gpus);
        let is_frozen = match view.freezer {
            FreezerState::Frozen | FreezerState::Moved(_) => true,
            FreezerState::Thawed
            | FreezerState::Freezing
            | FreezerState::Refused(_)
            | FreezerState::Moving
            | FreezerState::Restoring => false,
        };
        if is_frozen && !gpus.is_empty() && gpus.iter().all(|gpu| self.gpus.is_left(gpu, id)) {
            self.has_moved(id);
        }
    }

    /// It may hold its GPUs again, or is over.
    pub(crate) fn come_back_to_gpus(&mut self, id: &AttemptId) {
        if self.gpus.come_back(id) {
            self.outputs.push(Output::SaveGpus(self.gpus.kept()));
        }
    }

    /// One that is stopped while it is frozen holds nothing on its GPUs: until nothing of it is left they are in the hands
    /// of whoever has them now.
    pub(crate) fn let_go_of_gpus(&mut self, id: &AttemptId) {
        if self.attempts.get(id).is_some_and(Attempt::is_away) {
            self.freed.insert(id.clone());
        }
    }

    /// The processes of frozen attempts, which hold nothing on GPUs whatever the driver lists.
    pub(crate) fn away(&self) -> BTreeSet<u32> {
        let frozen = self.attempts.values().filter(|attempt| attempt.is_away());
        let moved = frozen.filter_map(|attempt| suspension(attempt)?.moved.as_ref());
        moved.flat_map(|moved| moved.pids.iter().copied()).collect()
    }
}

/// A look without some processes.
pub(crate) fn without(look: &GpuLook, pids: &BTreeSet<u32>) -> GpuLook {
    let mut look = look.clone();
    for seen in look.gpus.values_mut() {
        if let Seen::There {
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
    matches!(stage, Some(Stage::Suspending { .. } | Stage::Suspended))
}

/// `None` where one of them does not answer now; an error where what is on one of them cannot be told at all.
fn users(gpus: &[String], look: &GpuLook, known: &Gpus) -> Option<Result<Users, SuspendFailure>> {
    let mut users = Users::default();
    for uuid in gpus {
        match look.gpus.get(uuid)? {
            // Whoever had it is stopped for that.
            Seen::Lost | Seen::Unanswered => return None,
            Seen::There {
                processes: Some(processes),
                memory_used: Some(used),
            } => {
                users.pids.extend(processes);
                if !processes.is_empty() {
                    let idle = known.idle_bytes(uuid);
                    users.bytes = users.bytes.saturating_add(used.saturating_sub(idle));
                }
            }
            Seen::There { .. } => return Some(Err(SuspendFailure::NoCheckpoint)),
        }
    }
    Some(Ok(users))
}

/// As the coordinator keeps it, and as the host has it now.
fn check_room(users: &Users, kept_mb: u64, look: &GpuLook) -> Result<(), SuspendFailure> {
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
    /// Whether it is frozen, and holds nothing on its GPUs.
    pub(crate) fn is_away(&self) -> bool {
        suspension(self).is_some_and(|it| it.stage == Stage::Suspended)
    }

    pub(crate) fn on_suspension(
        &mut self,
        event: impl FnOnce(Suspension) -> crate::attempt::Next,
    ) -> Effects {
        match suspension(self).cloned() {
            Some(suspension) => self.turn(event(suspension)),
            None => Effects::new(),
        }
    }
}
