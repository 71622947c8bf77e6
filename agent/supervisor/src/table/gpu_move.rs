//! Moving what attempts hold on GPUs before they are frozen, and back after they are thawed: when a helper is sent, what
//! follows from its words, its silence or its taking too long. The states are in [`crate::gpu_move`].

use std::collections::BTreeSet;

use sluice_common::error_chain::error_chain;
use sluice_common::helper::{CheckpointAction, CheckpointError, CheckpointResult, CheckpointState};
use sluice_common::supervision::{BootMillis, FreezeRefusal, FreezerState};
use sluice_common::time::Span;
use tracing::{info, warn};

use super::{Attempt, AttemptId, Phase, Table};
use crate::clock;
use crate::gpu_move::{GpuMove, MoveOrder, MoveStage, QueuedOrder, RunningHelper, StoredMove};
use crate::spawn::helper::HelperTask;

/// Most processes of one attempt that are moved: a line of the helper for each has to fit into a pipe.
const MAX_MOVED_PROCESSES: usize = 64;
/// Longest time that an agent may give a helper: a driver that hangs must not keep an attempt on its way for ever.
const MAX_LIMIT: Span = Span::from_secs(60 * 60);
/// What a helper may take of the memory of the step's groups, beside what it moves: it loads the driver's library.
const HELPER_BYTES: u64 = 256 << 20;
/// A process that waits to come to rest may use this part of the time that all takes.
const LOCK_PART: u64 = 2;

impl Table {
    /// What an attempt holds on GPUs is to be moved, and the attempt to be frozen.
    pub(super) fn on_suspend(&mut self, order: MoveOrder, now: BootMillis) {
        let id = order.attempt.clone();
        let Some(attempt) = self.attempts.get_mut(&id).filter(|a| a.main_is_running()) else {
            return;
        };
        match &attempt.moving.stage {
            MoveStage::Undoing(..) | MoveStage::Returning(_) => {
                attempt.moving.next = Some(QueuedOrder::Suspend(order));
            }
            MoveStage::Leaving(_) => attempt.moving.next = None,
            MoveStage::Away => self.on_freeze(&id),
            MoveStage::Resident if matches!(attempt.phase(), Phase::Starting(..)) => {
                self.on_freeze(&id)
            }
            MoveStage::Resident => {
                if let Err(why) = self.begin_to_move(&order, now) {
                    self.refuse(&id, why);
                }
            }
        }
        self.changed.insert(id);
    }

    /// In this order: recorded, room made, sent.
    fn begin_to_move(&mut self, order: &MoveOrder, now: BootMillis) -> Result<(), FreezeRefusal> {
        let id = &order.attempt;
        if !self.groups.freezes(id) {
            return Err(FreezeRefusal::Unsupported);
        }
        let pids = self.own_processes(order);
        if pids.is_empty() {
            self.on_freeze(id);
            return Ok(());
        }
        if pids.len() > MAX_MOVED_PROCESSES {
            return Err(FreezeRefusal::SeveralProcesses);
        }
        let away = StoredMove {
            pids,
            bytes: order.bytes,
            limit: order.limit.min(MAX_LIMIT),
            memory_max: self.groups.memory_max(id),
        };
        self.record_away(id, Some(away))?;
        let started_marker = self.make_room(id).and_then(|()| {
            let sent = self.send(id, CheckpointAction::Suspend, now)?;
            self.set_stage(id, MoveStage::Leaving(sent));
            Ok(())
        });
        started_marker.inspect_err(|_| self.clear_move(id))
    }

    /// Whatever the agent says: in the groups are the attempt's own processes and no others. A list may be as long as a
    /// frame, and hold one twice.
    fn own_processes(&self, order: &MoveOrder) -> Vec<u32> {
        let members: BTreeSet<u32> = self.groups.members(&order.attempt).into_iter().collect();
        let users = order.users.iter().filter(|pid| members.contains(*pid));
        let users: BTreeSet<u32> = users.copied().collect();
        users.into_iter().collect()
    }

    fn record_away(
        &mut self,
        id: &AttemptId,
        away: Option<StoredMove>,
    ) -> Result<(), FreezeRefusal> {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return Ok(());
        };
        attempt.moving.away = away;
        self.spool
            .save(&attempt.record(id, &self.boot_id))
            .map_err(|e| {
                FreezeRefusal::Failed(format!("it cannot be recorded: {}", error_chain(&e)))
            })
            .inspect_err(|_| attempt.moving.away = None)
    }

    fn make_room(&self, id: &AttemptId) -> Result<(), FreezeRefusal> {
        let away = self.attempts.get(id).and_then(|a| a.moving.away.as_ref());
        let Some((away, most)) = away.and_then(|away| Some((away, away.memory_max?))) else {
            return Ok(());
        };
        let raised = most.saturating_add(away.bytes).saturating_add(HELPER_BYTES);
        let set = self.groups.set_memory_max(id, raised);
        set.map_err(|e| FreezeRefusal::Failed(e.bounded_message()))
    }

    fn send(
        &self,
        id: &AttemptId,
        action: CheckpointAction,
        now: BootMillis,
    ) -> Result<RunningHelper, FreezeRefusal> {
        let failed = FreezeRefusal::Failed;
        let attempt = self.attempts.get(id);
        let away = attempt.and_then(|attempt| attempt.moving.away.as_ref());
        let gpus_user = attempt.filter(|attempt| !attempt.memo.gpus.is_empty());
        let step_owner = gpus_user.and_then(Attempt::step_owner);
        let own = attempt.and_then(|attempt| attempt.uid);
        let (Some(away), Some(step_owner)) = (away, step_owner) else {
            return Err(failed("nobody knows as which user it runs".to_owned()));
        };
        let group_entry = self
            .groups
            .entry(id)
            .map_err(|e| failed(e.bounded_message()))?;
        let task = HelperTask {
            action,
            pids: &away.pids,
            lock_timeout_ms: (away.limit.millis() / LOCK_PART).max(1),
            cuda: &self.cuda,
        };
        let helper = self
            .spawner
            .send_helper(&step_owner, own, &group_entry, &task);
        let helper = helper.map_err(|e| failed(error_chain(&e).to_string()))?;
        info!(step = %id.step, attempt = id.number, pid = helper.pid, %action, "a helper is sent to its GPUs");
        let until = clock::after(now, away.limit);
        Ok(RunningHelper { helper, until })
    }

    fn set_stage(&mut self, id: &AttemptId, stage: MoveStage) {
        let found = self.groups.freezer(id);
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.moving.stage = stage;
            let shown = attempt.moving.shown(found);
            attempt.on_freezer(shown, clock::boot_now());
            self.changed.insert(id.clone());
        }
    }

    /// Nothing is away any more.
    fn clear_move(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        let away = attempt.moving.away.take();
        attempt.unsaved = true;
        if let Some(most) = away.and_then(|away| away.memory_max)
            && let Err(e) = self.groups.set_memory_max(id, most)
        {
            warn!(step = %id.step, attempt = id.number, "its memory limit stays raised: {e}");
        }
        self.set_stage(id, MoveStage::Resident);
    }

    fn refuse(&mut self, id: &AttemptId, why: FreezeRefusal) {
        warn!(step = %id.step, attempt = id.number, ?why, "not moved from its GPUs");
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.on_freezer(FreezerState::Refused(why), clock::boot_now());
            self.changed.insert(id.clone());
        }
    }

    /// A child has ended that may have been a helper.
    pub(super) fn on_helper_ended(&mut self, pid: u32, now: BootMillis) {
        let sent = |attempt: &Attempt| {
            let sent = attempt.moving.sent();
            sent.is_some_and(|sent| sent.helper.pid == pid)
        };
        let found = self.attempts.iter().find(|(_, attempt)| sent(attempt));
        let Some(id) = found.map(|(id, _)| id.clone()) else {
            return;
        };
        self.on_helper_output(&id, now);
        self.run_queued_order(&id, now);
    }

    fn on_helper_output(&mut self, id: &AttemptId, now: BootMillis) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        let stage = std::mem::take(&mut attempt.moving.stage);
        if !attempt.main_is_running() || attempt.killing {
            // It was stopped meanwhile: whatever is left is killed, and there is nobody to bring anything back for.
            return;
        }
        let pids = attempt
            .moving
            .away
            .as_ref()
            .map_or(0, |away| away.pids.len());
        match stage {
            MoveStage::Leaving(sent) => {
                match outcome_of(sent.helper.lines(), CheckpointState::Checkpointed, pids) {
                    HelperOutcome::Done => {
                        self.set_stage(id, MoveStage::Away);
                        self.freeze_moved(id, now);
                    }
                    HelperOutcome::Refused(why) => {
                        self.clear_move(id);
                        self.refuse(id, refusal(why, pids));
                    }
                    HelperOutcome::Silent => {
                        let why = "the helper that moves it ended without a word".to_owned();
                        self.undo(id, FreezeRefusal::Failed(why), now);
                    }
                }
            }
            MoveStage::Undoing(sent, why) => {
                let undone = outcome_of(sent.helper.lines(), CheckpointState::Running, pids);
                if undone != HelperOutcome::Done {
                    warn!(step = %id.step, attempt = id.number, ?undone, "what was moved from its GPUs may be there still");
                }
                self.clear_move(id);
                self.refuse(id, why);
            }
            MoveStage::Returning(sent) => {
                match outcome_of(sent.helper.lines(), CheckpointState::Running, pids) {
                    HelperOutcome::Done => self.clear_move(id),
                    HelperOutcome::Refused(why) => self.fail_move(id, why.to_string()),
                    HelperOutcome::Silent => {
                        self.fail_move(
                            id,
                            "the helper that moves it ended without a word".to_owned(),
                        );
                    }
                }
            }
            MoveStage::Resident | MoveStage::Away => {}
        }
    }

    fn freeze_moved(&mut self, id: &AttemptId, now: BootMillis) {
        self.on_freeze(id);
        let freezer = self.attempts.get(id).map(|attempt| &attempt.freezer);
        if let Some(FreezerState::Refused(why)) = freezer {
            self.undo(id, why.clone(), now);
        }
    }

    /// It cannot be brought back. Its memory is in use still, so its limit stays raised.
    fn fail_move(&mut self, id: &AttemptId, why: String) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.moving = GpuMove::default();
            attempt.unsaved = true;
        }
        self.refuse(id, FreezeRefusal::NotRestored(why));
    }

    /// Nobody knows how far it has come: another helper finds out.
    fn undo(&mut self, id: &AttemptId, why: FreezeRefusal, now: BootMillis) {
        match self.send(id, CheckpointAction::Undo, now) {
            Ok(sent) => self.set_stage(id, MoveStage::Undoing(sent, why)),
            Err(also) => {
                warn!(step = %id.step, attempt = id.number, ?also, "what was moved from its GPUs may be there still");
                self.clear_move(id);
                self.refuse(id, why);
            }
        }
    }

    /// An attempt is to be thawed; whether that has to wait for a helper.
    pub(super) fn queue_thaw(&mut self, id: &AttemptId) -> bool {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return false;
        };
        match attempt.moving.stage {
            MoveStage::Resident | MoveStage::Away => return false,
            MoveStage::Leaving(_) => attempt.moving.next = Some(QueuedOrder::Thaw),
            MoveStage::Undoing(..) | MoveStage::Returning(_) => attempt.moving.next = None,
        }
        self.changed.insert(id.clone());
        true
    }

    /// It was thawed, so what was moved can be brought back.
    pub(super) fn restore_memory(
        &mut self,
        id: &AttemptId,
        action: CheckpointAction,
        now: BootMillis,
    ) {
        let attempt = self.attempts.get(id);
        if !attempt.is_some_and(|a| a.main_is_running() && a.moving.away.is_some()) {
            return;
        }
        match self.send(id, action, now) {
            Ok(sent) => self.set_stage(id, MoveStage::Returning(sent)),
            Err(why) => self.fail_move(id, format!("no helper can be sent: {why:?}")),
        }
    }

    fn run_queued_order(&mut self, id: &AttemptId, now: BootMillis) {
        let Some(attempt) = self
            .attempts
            .get_mut(id)
            .filter(|a| a.moving.sent().is_none())
        else {
            return;
        };
        match attempt.moving.next.take() {
            Some(QueuedOrder::Suspend(order)) => self.on_suspend(order, now),
            Some(QueuedOrder::Thaw) => self.on_thaw(id, now),
            None => {}
        }
    }

    /// Helpers that take too long are ended.
    pub(super) fn check_helper_timeouts(&mut self, now: BootMillis) {
        let late = |attempt: &Attempt| attempt.moving.sent().is_some_and(|sent| sent.until <= now);
        let late: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| late(attempt))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &late {
            self.on_helper_timeout(id, now);
            self.run_queued_order(id, now);
        }
    }

    /// One that a driver holds fast may not even die: nobody waits for it.
    fn on_helper_timeout(&mut self, id: &AttemptId, now: BootMillis) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        let stage = std::mem::take(&mut attempt.moving.stage);
        warn!(step = %id.step, attempt = id.number, "the helper at its GPUs takes too long, and is ended");
        match stage {
            MoveStage::Leaving(sent) => {
                sent.helper.kill();
                self.undo(id, FreezeRefusal::TimedOut, now);
            }
            MoveStage::Undoing(sent, why) => {
                sent.helper.kill();
                self.clear_move(id);
                self.refuse(id, why);
            }
            MoveStage::Returning(sent) => {
                sent.helper.kill();
                let limit = attempt.moving.away.as_ref().map_or(Span::ZERO, |a| a.limit);
                self.fail_move(id, format!("it took longer than {limit}"));
            }
            MoveStage::Resident | MoveStage::Away => {}
        }
    }

    /// After [`Table::open`]: what an earlier supervisor had moved is away as long as it is frozen. One that died in the
    /// middle has left it running, and nobody knows how far it had come.
    pub(super) fn resume_moves(&mut self, now: BootMillis) {
        let away = |a: &Attempt| !a.is_gone() && a.moving.away.is_some();
        let ids: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| away(attempt))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ids {
            match self.groups.freezer(id) {
                FreezerState::Frozen | FreezerState::Freezing => {
                    self.set_stage(id, MoveStage::Away)
                }
                _ => self.restore_memory(id, CheckpointAction::Undo, now),
            }
        }
    }

    /// When a helper takes too long.
    pub(super) fn helper_deadlines(&self) -> impl Iterator<Item = BootMillis> {
        let sent = |attempt: &Attempt| attempt.moving.sent().map(|sent| sent.until);
        self.attempts.values().filter_map(sent)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HelperOutcome {
    Done,
    Refused(CheckpointError),
    /// It said less than it should have.
    Silent,
}

fn outcome_of(
    lines: Option<Vec<CheckpointResult>>,
    wanted: CheckpointState,
    count: usize,
) -> HelperOutcome {
    let lines = lines.unwrap_or_default();
    if let Some(why) = lines.iter().find_map(|line| line.failed.clone()) {
        return HelperOutcome::Refused(why);
    }
    let all = lines.len() == count && lines.iter().all(|line| line.state == Some(wanted));
    if all {
        HelperOutcome::Done
    } else {
        HelperOutcome::Silent
    }
}

fn refusal(why: CheckpointError, count: usize) -> FreezeRefusal {
    match why {
        CheckpointError::Unsupported(sentence) => {
            warn!("this host cannot move what is on GPUs: {sentence}");
            FreezeRefusal::NoCheckpoint
        }
        CheckpointError::TimedOut(_) => FreezeRefusal::TimedOut,
        // Most likely for their links to each other.
        CheckpointError::Refused(_) if count > 1 => FreezeRefusal::SeveralProcesses,
        CheckpointError::Refused(sentence) => FreezeRefusal::Failed(sentence),
    }
}
