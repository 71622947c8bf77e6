//! Freezing and thawing of an attempt by a simulated host's supervisor: the control group takes its time, and the helper
//! that moves GPU memory refuses, hangs or dies. Written from the real one's contract, so that `agent-core` meets
//! everything that it may meet there.

use sluice_common::id::AttemptId;
use sluice_common::supervision::{
    BootMillis, FreezeRefusal, FreezerState, FrozenTime, HostPhase, MovedMemory,
};
use sluice_common::time::Span;

use super::host::{HostAction, SimAttempt, SimHost};
use super::seeded_random::SeededRandom;

/// State of the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupState {
    Running,
    Freezing,
    Frozen,
}

/// Progress of the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MoveStage {
    Home,
    Leaving,
    Away,
    Undoing(FreezeRefusal),
    Returning,
}

/// Outcome of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelperOutcome {
    Done,
    Refused,
    Silent,
    Late,
}

/// Action after the helper has ended.
#[derive(Clone, Debug)]
enum NextMove {
    Suspend(MoveRequest),
    Thaw,
}

/// Move requested by the agent.
#[derive(Clone, Debug)]
pub(crate) struct MoveRequest {
    pub(crate) users: Vec<u32>,
    pub(crate) bytes: u64,
    pub(crate) limit: Span,
}

/// The freezer of one attempt.
pub(crate) struct Freezer {
    pub(crate) group: CgroupState,
    stage: MoveStage,
    away: Option<MovedMemory>,
    limit: Span,
    next: Option<NextMove>,
    pub(crate) shown: FreezerState,
    pub(crate) time: FrozenTime,
    /// Counted up, so that the end of an earlier task is ignored.
    errand: u64,
}

impl Default for Freezer {
    fn default() -> Self {
        Self {
            group: CgroupState::Running,
            stage: MoveStage::Home,
            away: None,
            limit: Span::ZERO,
            next: None,
            shown: FreezerState::Thawed,
            time: FrozenTime::default(),
            errand: 0,
        }
    }
}

impl Freezer {
    /// Returns the processes that hold nothing on GPUs.
    pub(crate) fn moved(&self) -> &[u32] {
        match (&self.stage, &self.away) {
            (MoveStage::Away, Some(moved)) => &moved.pids,
            _ => &[],
        }
    }

    fn is_sent(&self) -> bool {
        match self.stage {
            MoveStage::Leaving | MoveStage::Undoing(_) | MoveStage::Returning => true,
            MoveStage::Home | MoveStage::Away => false,
        }
    }

    fn seen(&self) -> FreezerState {
        match (&self.stage, self.group, &self.away) {
            (MoveStage::Leaving | MoveStage::Undoing(_), _, _) => FreezerState::Moving,
            (MoveStage::Returning, _, _) => FreezerState::Restoring,
            (MoveStage::Away, CgroupState::Frozen, Some(moved)) => {
                FreezerState::Moved(moved.clone())
            }
            (_, CgroupState::Frozen, _) => FreezerState::Frozen,
            (_, CgroupState::Freezing, _) => FreezerState::Freezing,
            (_, CgroupState::Running, _) => FreezerState::Thawed,
        }
    }

    fn show(&mut self, boot: BootMillis, shown: FreezerState) {
        let is_frozen = matches!(shown, FreezerState::Frozen | FreezerState::Moved(_));
        match self.time.since.filter(|_| !is_frozen) {
            Some(since) => {
                let length = Span::from_millis(boot.0.saturating_sub(since.0));
                self.time.before = self.time.before + length;
                self.time.since = None;
            }
            None if is_frozen && self.time.since.is_none() => self.time.since = Some(boot),
            None => {}
        }
        self.shown = shown;
    }

    fn enter(&mut self, boot: BootMillis, stage: MoveStage) {
        self.stage = stage;
        self.show(boot, self.seen());
    }

    fn settle_down(&mut self, boot: BootMillis) {
        self.away = None;
        self.enter(boot, MoveStage::Home);
    }

    /// Called when nothing of the attempt is left.
    pub(crate) fn on_empty(&mut self) {
        let errand = self.errand + 1;
        let time = self.time;
        *self = Self {
            errand,
            time,
            ..Self::default()
        };
    }
}

impl SimHost {
    fn led(&mut self, attempt: &AttemptId) -> Option<&mut SimAttempt> {
        let proc = self.procs.get_mut(attempt)?;
        (proc.runs() && !proc.is_killed).then_some(proc)
    }

    pub(crate) fn freeze(
        &mut self,
        now: u64,
        id: &AttemptId,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let (boot, freezes) = (self.boot(now), self.freezes);
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        let freezer = &mut proc.freezer;
        if matches!(proc.phase, HostPhase::Gone(_)) || freezer.is_sent() {
            return Vec::new();
        }
        let mut wishes = vec![HostAction::Tell(id.clone())];
        if !freezes {
            let why = FreezerState::Refused(FreezeRefusal::Unsupported);
            freezer.show(boot, why);
            return wishes;
        }
        if freezer.group == CgroupState::Running {
            freezer.errand += 1;
            // A process in an uninterruptible wait takes its time.
            let after = match random.below(30) {
                0 => Some(random.below(60_000)),
                1..=9 => Some(random.below(100)),
                _ => None,
            };
            freezer.group = after.map_or(CgroupState::Frozen, |_| CgroupState::Freezing);
            let errand = freezer.errand;
            wishes.extend(after.map(|after| HostAction::Freezes(id.clone(), errand, after)));
        }
        freezer.show(boot, freezer.seen());
        wishes
    }

    /// Called when the group has come to rest; returns whether that changed anything.
    pub(crate) fn comes_to_rest(&mut self, now: u64, id: &AttemptId, errand: u64) -> bool {
        let boot = self.boot(now);
        let Some(proc) = self.procs.get_mut(id) else {
            return false;
        };
        let freezer = &mut proc.freezer;
        let is_due = freezer.errand == errand && freezer.group == CgroupState::Freezing;
        if is_due {
            freezer.group = CgroupState::Frozen;
            freezer.show(boot, freezer.seen());
        }
        is_due
    }

    pub(crate) fn suspend(
        &mut self,
        now: u64,
        id: &AttemptId,
        what: MoveRequest,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let Some(proc) = self.led(id) else {
            return Vec::new();
        };
        match proc.freezer.stage {
            MoveStage::Undoing(_) | MoveStage::Returning => {
                proc.freezer.next = Some(NextMove::Suspend(what));
                vec![HostAction::Tell(id.clone())]
            }
            MoveStage::Leaving => {
                proc.freezer.next = None;
                vec![HostAction::Tell(id.clone())]
            }
            MoveStage::Away => self.freeze(now, id, random),
            MoveStage::Home => self.begin_to_move(now, id, &what, random),
        }
    }

    fn begin_to_move(
        &mut self,
        now: u64,
        id: &AttemptId,
        what: &MoveRequest,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        if !self.freezes {
            return self.refuse(now, id, FreezeRefusal::Unsupported);
        }
        let boot = self.boot(now);
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        let own = what.users.iter().filter(|pid| proc.gpu_pids.contains(*pid));
        let pids: Vec<u32> = own.copied().collect();
        if pids.is_empty() {
            return self.freeze(now, id, random);
        }
        let bytes = what.bytes;
        proc.freezer.away = Some(MovedMemory { pids, bytes });
        proc.freezer.limit = what.limit;
        proc.freezer.enter(boot, MoveStage::Leaving);
        self.send(id, random)
    }

    /// Starts a helper.
    fn send(&mut self, id: &AttemptId, random: &mut SeededRandom) -> Vec<HostAction> {
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        let freezer = &mut proc.freezer;
        freezer.errand += 1;
        let limit = freezer.limit.millis();
        let fate = match random.below(20) {
            0..=1 => HelperOutcome::Refused,
            2 => HelperOutcome::Silent,
            3..=4 => HelperOutcome::Late,
            _ => HelperOutcome::Done,
        };
        let after = match fate {
            HelperOutcome::Late => limit,
            HelperOutcome::Done | HelperOutcome::Refused | HelperOutcome::Silent => {
                random.below(limit.min(10_000))
            }
        };
        vec![
            HostAction::Tell(id.clone()),
            HostAction::Helper(id.clone(), freezer.errand, fate, after),
        ]
    }

    fn refuse(&mut self, now: u64, id: &AttemptId, why: FreezeRefusal) -> Vec<HostAction> {
        let boot = self.boot(now);
        if let Some(proc) = self.procs.get_mut(id) {
            proc.freezer.show(boot, FreezerState::Refused(why));
        }
        vec![HostAction::Tell(id.clone())]
    }

    /// Starts another helper, because the progress of the first is unknown.
    fn undo(
        &mut self,
        now: u64,
        id: &AttemptId,
        why: FreezeRefusal,
        c: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let boot = self.boot(now);
        if let Some(proc) = self.procs.get_mut(id) {
            proc.freezer.enter(boot, MoveStage::Undoing(why));
        }
        self.send(id, c)
    }

    fn strand(&mut self, now: u64, id: &AttemptId, why: &str) -> Vec<HostAction> {
        if let Some(proc) = self.procs.get_mut(id) {
            proc.freezer.stage = MoveStage::Home;
            proc.freezer.away = None;
            proc.freezer.next = None;
        }
        self.refuse(now, id, FreezeRefusal::NotRestored(why.to_owned()))
    }

    /// Called when a helper has ended.
    pub(crate) fn helper_ends(
        &mut self,
        now: u64,
        id: &AttemptId,
        errand: u64,
        fate: &HelperOutcome,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        if proc.freezer.errand != errand || !proc.freezer.is_sent() {
            return Vec::new();
        }
        let is_led = proc.runs() && !proc.is_killed;
        let pids = proc.gpu_pids.len();
        let stage = std::mem::replace(&mut proc.freezer.stage, MoveStage::Home);
        if !is_led {
            return Vec::new();
        }
        let mut wishes = match (stage, fate) {
            (MoveStage::Leaving, HelperOutcome::Done) => self.on_moved(now, id, random),
            (MoveStage::Leaving, HelperOutcome::Refused) => {
                let why = match pids {
                    1 => FreezeRefusal::Failed("the driver does not".to_owned()),
                    _ => FreezeRefusal::SeveralProcesses,
                };
                self.come_down(now, id);
                self.refuse(now, id, why)
            }
            (MoveStage::Leaving, HelperOutcome::Silent) => {
                let why = FreezeRefusal::Failed("without a word".to_owned());
                self.undo(now, id, why, random)
            }
            (MoveStage::Leaving, HelperOutcome::Late) => {
                self.undo(now, id, FreezeRefusal::TimedOut, random)
            }
            (MoveStage::Undoing(why), _) => {
                self.come_down(now, id);
                self.refuse(now, id, why)
            }
            (MoveStage::Returning, HelperOutcome::Done) => {
                self.come_down(now, id);
                vec![HostAction::Tell(id.clone())]
            }
            (MoveStage::Returning, HelperOutcome::Refused | HelperOutcome::Silent) => {
                self.strand(now, id, "refused")
            }
            (MoveStage::Returning, HelperOutcome::Late) => self.strand(now, id, "it took too long"),
            (MoveStage::Home | MoveStage::Away, _) => panic!("no helper was sent for {id}"),
        };
        wishes.extend(self.do_next(now, id, random));
        wishes
    }

    fn on_moved(&mut self, now: u64, id: &AttemptId, random: &mut SeededRandom) -> Vec<HostAction> {
        let boot = self.boot(now);
        if let Some(proc) = self.procs.get_mut(id) {
            proc.freezer.enter(boot, MoveStage::Away);
        }
        self.freeze(now, id, random)
    }

    fn come_down(&mut self, now: u64, id: &AttemptId) {
        let boot = self.boot(now);
        if let Some(proc) = self.procs.get_mut(id) {
            proc.freezer.settle_down(boot);
        }
    }

    fn do_next(&mut self, now: u64, id: &AttemptId, random: &mut SeededRandom) -> Vec<HostAction> {
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        if proc.freezer.is_sent() {
            return Vec::new();
        }
        match proc.freezer.next.take() {
            Some(NextMove::Suspend(what)) => self.suspend(now, id, what, random),
            Some(NextMove::Thaw) => self.thaw(now, id, random),
            None => Vec::new(),
        }
    }

    pub(crate) fn thaw(
        &mut self,
        now: u64,
        id: &AttemptId,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let boot = self.boot(now);
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        if matches!(proc.phase, HostPhase::Gone(_)) {
            return Vec::new();
        }
        let freezer = &mut proc.freezer;
        match freezer.stage {
            MoveStage::Leaving => freezer.next = Some(NextMove::Thaw),
            MoveStage::Undoing(_) | MoveStage::Returning => freezer.next = None,
            MoveStage::Home | MoveStage::Away => return self.thaw_now(now, boot, id, random),
        }
        vec![HostAction::Tell(id.clone())]
    }

    fn thaw_now(
        &mut self,
        now: u64,
        boot: BootMillis,
        id: &AttemptId,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let Some(proc) = self.procs.get_mut(id) else {
            return Vec::new();
        };
        proc.freezer.group = CgroupState::Running;
        proc.freezer.show(boot, FreezerState::Thawed);
        let mut wishes = vec![HostAction::Tell(id.clone())];
        // What came due while it stood still.
        wishes.extend(
            proc.due
                .take()
                .map(|exit| HostAction::End(id.clone(), exit)),
        );
        wishes.extend(self.bring_back(now, id, random));
        wishes
    }

    fn bring_back(
        &mut self,
        now: u64,
        id: &AttemptId,
        random: &mut SeededRandom,
    ) -> Vec<HostAction> {
        let boot = self.boot(now);
        match self.led(id).filter(|proc| proc.freezer.away.is_some()) {
            Some(proc) => proc.freezer.enter(boot, MoveStage::Returning),
            None => return Vec::new(),
        }
        self.send(id, random)
    }

    /// A new supervisor takes over: helpers have died with the earlier one. Frozen attempts stay so, and unfinished
    /// moves are undone.
    pub(crate) fn take_up_moves(&mut self, now: u64, random: &mut SeededRandom) -> Vec<HostAction> {
        let boot = self.boot(now);
        let mut back = Vec::new();
        for (id, proc) in &mut self.procs {
            if matches!(proc.phase, HostPhase::Gone(_)) {
                continue;
            }
            let freezer = &mut proc.freezer;
            freezer.errand += 1;
            freezer.next = None;
            if freezer.group == CgroupState::Freezing {
                freezer.group = CgroupState::Frozen;
            }
            freezer.stage = match (freezer.group, &freezer.away) {
                (CgroupState::Frozen, Some(_)) => MoveStage::Away,
                _ => MoveStage::Home,
            };
            freezer.show(boot, freezer.seen());
            if freezer.stage == MoveStage::Home && freezer.away.is_some() {
                back.push(id.clone());
            }
        }
        let back = back.iter();
        back.flat_map(|id| self.bring_back(now, id, random))
            .collect()
    }
}
