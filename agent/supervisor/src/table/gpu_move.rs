//! Moves attempts' GPU memory to the host before a freeze, and back after a thaw: when to start a helper, and
//! what follows from its output or its timeout. [`crate::gpu_move`] has the states.

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

/// Most processes of one attempt that are moved: the helper's lines must fit into a pipe.
const MAX_MOVED_PROCESSES: usize = 64;
/// Longest time limit that an agent may set: a driver that hangs must not block an attempt for ever.
const MAX_LIMIT: Span = Span::from_secs(60 * 60);
/// Memory of the helper itself in the step's groups, in addition to what it moves: it loads the driver's
/// library.
const HELPER_BYTES: u64 = 256 << 20;
/// Share of a task's time limit that one process may take to finish its GPU work, as a divisor.
const LOCK_PART: u64 = 2;

impl Table {
    /// Moves an attempt's GPU memory and freezes the attempt.
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

    /// First the record, then the memory limit, then the helper.
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

    /// The processes in the order that are in the attempt's groups, whatever else the agent names, each once.
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
            return Err(failed("the user that it runs as is not known".to_owned()));
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
        info!(step = %id.step, attempt = id.number, pid = helper.pid, %action, "a helper begins to move what is on its GPUs");
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

    /// Clears the record, because nothing is moved any more.
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

    /// Handles the end of a child that may have been a helper.
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
            // The attempt was killed meanwhile, so there is nothing to restore.
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
                        let why = "the helper that moves it ended without an answer".to_owned();
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
                            "the helper that moves it ended without an answer".to_owned(),
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

    /// Records that the memory cannot be restored. It is still in use, so the memory limit stays raised.
    fn fail_move(&mut self, id: &AttemptId, why: String) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.moving = GpuMove::default();
            attempt.unsaved = true;
        }
        self.refuse(id, FreezeRefusal::NotRestored(why));
    }

    /// Starts another helper to roll back, because the progress of the first is unknown.
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

    /// Queues a thaw if a helper is at work; returns whether it did.
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

    /// Restores the memory after a thaw.
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
            Err(why) => self.fail_move(id, format!("no helper can be started: {why:?}")),
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

    /// Kills helpers that exceed their time limit.
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

    /// A helper that is blocked in the driver may not die, so its end is not waited for.
    fn on_helper_timeout(&mut self, id: &AttemptId, now: BootMillis) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        let stage = std::mem::take(&mut attempt.moving.stage);
        warn!(step = %id.step, attempt = id.number, "the helper for its GPUs takes too long and is killed");
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

    /// Continues moves of an earlier supervisor; called by [`Table::open`]. The memory of a frozen attempt
    /// stays moved. If the supervisor died during a move, the attempt runs and a helper must find out how far
    /// the move had come.
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

    /// Deadlines of running helpers.
    pub(super) fn helper_deadlines(&self) -> impl Iterator<Item = BootMillis> {
        let sent = |attempt: &Attempt| attempt.moving.sent().map(|sent| sent.until);
        self.attempts.values().filter_map(sent)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum HelperOutcome {
    Done,
    Refused(CheckpointError),
    /// The helper reported less than it should have.
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
        // Most likely because the processes are linked to each other.
        CheckpointError::Refused(_) if count > 1 => FreezeRefusal::SeveralProcesses,
        CheckpointError::Refused(sentence) => FreezeRefusal::Failed(sentence),
    }
}
