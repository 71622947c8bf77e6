//! State of one attempt. Phases only move forward; an event in the wrong phase is ignored.
//!
//! ```text
//! Starting --(exec)--> Running --(main process ends)--> Ended --(no process left)--> Gone
//!    |  \_____________________(killed before exec)_______^                          ^
//!    \__________________________(exec is impossible)________________________________/
//! ```
//!
//! `table` drives it; this module does no I/O.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use nix::unistd::Uid;
use sluice_common::id::{AttemptId, BootId, Subject, UserName};
use sluice_common::keep::KeptFiles;
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FreezerState, FrozenTime, HostPhase, LaunchRecord, Process,
    ProcessEnd,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;

use crate::gpu_move::GpuMove;
use crate::hooks;
use crate::identity::StepOwner;
use crate::lease::Lease;
use crate::spawn::StartReport;
use crate::spool::{Record, StorageUse};

/// Phase of an attempt.
#[derive(Debug)]
pub enum Phase {
    /// The child exists but has not become the step's program yet. The agent is not told.
    Starting(Process, StartReport),
    /// The main process runs. The descriptor signals its end if it is not our child; on a kernel without
    /// pidfds it is `None` and the table polls instead.
    Running(Process, Option<OwnedFd>),
    /// The main process has ended; others may still run.
    Ended(ProcessEnd),
    /// No process is left.
    Gone(ProcessEnd),
}

/// Origin of an attempt's main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Child,
    /// An earlier supervisor. The exit code cannot be read, and orphans are not reparented to this process.
    TakenOver,
}

/// State of an attempt's epilog. It restarts if the supervisor restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpilogState {
    Pending,
    /// A child runs it.
    Running,
    /// Ended, or could not start.
    Done,
}

/// State of the hooks that templates run after the step's program. They restart if the supervisor restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterHooksState {
    Pending,
    /// A child runs them.
    Running,
    /// Ended, could not start, or none exist.
    Done,
}

/// An attempt on this host, from its assignment until its resources are free.
#[derive(Debug)]
pub struct Attempt {
    /// Details from the spawn order, which survive restarts.
    pub memo: LaunchRecord,
    /// Deadline, if the attempt has one.
    pub lease: Option<Lease>,
    pub origin: Origin,
    /// Whether the attempt is killed repeatedly until no process is left.
    pub killing: bool,
    pub freezer: FreezerState,
    pub epilog: EpilogState,
    /// State of the hooks that run after the step's program.
    pub after: AfterHooksState,
    /// Variables that the admin's hooks get.
    pub hook_variables: BTreeMap<String, String>,
    /// The attempt's own user id, if the config names no user for it.
    pub uid: Option<Uid>,
    /// The user who submitted the step, if this host's config requires one.
    pub submitter: Option<UserName>,
    /// State of the attempt's GPU memory while it is suspended.
    pub moving: GpuMove,
    /// Total time for which the attempt was frozen.
    pub frozen: FrozenTime,
    /// Storage grant, and whether it was exceeded.
    pub storage: StorageUse,
    /// Whether the agent may know that the main process has ended. All output of that process was written by
    /// then.
    pub end_reported: bool,
    /// Whether the record in the spool is outdated.
    pub unsaved: bool,
    /// Whether the log reports the outdated record.
    pub lag_logged: bool,
    phase: Phase,
}

impl Attempt {
    /// A child that waits for its record to be written.
    pub fn starting(
        process: Process,
        report: StartReport,
        memo: LaunchRecord,
        lease: Lease,
    ) -> Self {
        let lease = Some(lease);
        Self::new(Phase::Starting(process, report), Origin::Child, memo, lease)
    }

    /// An attempt that could not start.
    pub fn refused(exit: Exit, at: Time, memo: LaunchRecord) -> Self {
        let end = ProcessEnd {
            process: None,
            exit,
            ended_at: at,
            usage: Usage::default(),
            kept: None,
        };
        Self::new(Phase::Gone(end), Origin::Child, memo, None)
    }

    /// An attempt that an earlier supervisor started, in the phase in which it was found.
    pub fn taken_over(phase: Phase, memo: LaunchRecord, lease: Option<Lease>) -> Self {
        Self::new(phase, Origin::TakenOver, memo, lease)
    }

    /// An attempt whose process is a child of this process since before an upgrade.
    pub fn handed_over(phase: Phase, memo: LaunchRecord, lease: Option<Lease>) -> Self {
        Self::new(phase, Origin::Child, memo, lease)
    }

    /// An attempt whose record is unreadable. Only its id is known, so its processes are killed.
    pub fn lost(at: Time) -> Self {
        let end = ProcessEnd {
            process: None,
            exit: Exit::Unknown,
            ended_at: at,
            usage: Usage::default(),
            kept: None,
        };
        let memo = LaunchRecord {
            timeout: None,
            grace: Span::ZERO,
            gpus: Vec::new(),
            processors: Default::default(),
            is_allocation: false,
        };
        let mut lost = Self::new(Phase::Ended(end), Origin::TakenOver, memo, None);
        lost.killing = true;
        lost
    }

    fn new(phase: Phase, origin: Origin, memo: LaunchRecord, lease: Option<Lease>) -> Self {
        Self {
            memo,
            lease,
            origin,
            killing: false,
            freezer: FreezerState::Thawed,
            epilog: EpilogState::Pending,
            after: AfterHooksState::Done,
            hook_variables: BTreeMap::new(),
            uid: None,
            submitter: None,
            moving: GpuMove::default(),
            frozen: FrozenTime::default(),
            storage: StorageUse::default(),
            end_reported: false,
            unsaved: false,
            lag_logged: false,
            phase,
        }
    }

    /// The phase of the attempt.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The main process, ended or not; `None` if there was none or it is unknown.
    pub fn process(&self) -> Option<Process> {
        match &self.phase {
            Phase::Starting(process, _) | Phase::Running(process, _) => Some(*process),
            Phase::Ended(end) | Phase::Gone(end) => end.process,
        }
    }

    /// Whether the main process runs.
    pub fn main_is_running(&self) -> bool {
        matches!(self.phase, Phase::Starting(..) | Phase::Running(..))
    }

    /// Whether the main process has ended and others may still run.
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether no process is left.
    pub fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone(_))
    }

    /// The start report, while the attempt is starting.
    pub fn report(&self) -> Option<&StartReport> {
        match &self.phase {
            Phase::Starting(_, report) => Some(report),
            Phase::Running(..) | Phase::Ended(_) | Phase::Gone(_) => None,
        }
    }

    /// The start report, while the attempt is starting.
    pub fn report_mut(&mut self) -> Option<&mut StartReport> {
        match &mut self.phase {
            Phase::Starting(_, report) => Some(report),
            Phase::Running(..) | Phase::Ended(_) | Phase::Gone(_) => None,
        }
    }

    /// Records a new freezer state.
    pub fn on_freezer(&mut self, found: FreezerState, now: BootMillis) {
        let since = self.frozen.since;
        let is_frozen = matches!(found, FreezerState::Frozen | FreezerState::Moved(_));
        if is_frozen && since.is_none() {
            self.frozen.since = Some(now);
        } else if let Some(since) = since.filter(|_| !is_frozen) {
            let length = Span::from_millis(now.0.saturating_sub(since.0));
            self.frozen.before = self.frozen.before + length;
            self.frozen.since = None;
        }
        self.unsaved |= self.frozen.since != since;
        self.freezer = found;
    }

    /// Records that the child has become the step's program.
    pub fn on_started(&mut self) {
        if let Phase::Starting(process, report) = &self.phase {
            let process = placed(process, report);
            self.unsaved |= process.workdir_refused.is_some();
            self.phase = Phase::Running(process, None);
        }
    }

    /// Records that the child ended before it became the step's program.
    pub fn on_start_failed(&mut self, exit: Exit, at: Time) {
        if matches!(self.phase, Phase::Starting(..)) {
            self.phase = Phase::Gone(ProcessEnd {
                process: None,
                exit,
                ended_at: at,
                usage: Usage::default(),
                kept: None,
            });
        }
    }

    /// Records the end of the main process. After its lease has expired, that is the reason.
    pub fn on_exit(&mut self, seen: Exit, at: Time, usage: Usage) {
        let process = match &self.phase {
            Phase::Starting(process, report) => placed(process, report),
            Phase::Running(process, _) => *process,
            Phase::Ended(_) | Phase::Gone(_) => return,
        };
        let expired = self.lease.is_some_and(|lease| lease.has_passed());
        if let FreezerState::Refused(_) = self.freezer {
            // The freezer state no longer matters, and its text would be in every list.
            self.freezer = FreezerState::Thawed;
        }
        self.phase = Phase::Ended(ProcessEnd {
            process: Some(process),
            exit: if expired { Exit::LeaseExpired } else { seen },
            // The wall clock may have been set back.
            ended_at: at.max(process.started_at),
            usage,
            kept: None,
        });
    }

    /// Records what was kept of the attempt's files.
    pub fn on_kept(&mut self, kept: Option<KeptFiles>) {
        if let Phase::Ended(end) = &mut self.phase {
            end.kept = kept.map(Box::new);
        }
    }

    /// Records that no process is left, with the total usage.
    pub fn on_empty(&mut self, usage: Usage) {
        if let Phase::Ended(end) = &self.phase {
            let usage = usage.or(end.usage);
            self.phase = Phase::Gone(ProcessEnd {
                usage,
                ..end.clone()
            });
            self.freezer = FreezerState::Thawed;
            self.moving = GpuMove::default();
        }
    }

    /// The view for the agent; `None` before the program runs.
    pub fn view(&self, attempt: &AttemptId) -> Option<AttemptView> {
        match &self.phase {
            Phase::Starting(..) => None,
            Phase::Running(..) | Phase::Ended(_) | Phase::Gone(_) => Some(self.listed(attempt)),
        }
    }

    /// The view for an agent that has just connected. An attempt that is still starting counts as running: if
    /// it were missing, the coordinator would believe that this host does not have it, and start it
    /// elsewhere.
    pub fn listed(&self, attempt: &AttemptId) -> AttemptView {
        AttemptView {
            attempt: attempt.clone(),
            phase: self.known_phase(),
            launch_record: self.memo.clone(),
            freezer: self.freezer.clone(),
            frozen: self.frozen,
        }
    }

    /// The subject and submitter, if they are known. The subject is in the hooks' variables, which survive
    /// restarts.
    pub fn step_owner(&self) -> Option<StepOwner> {
        Some(StepOwner {
            subject: Subject::new(self.hook_variables.get(hooks::SUBJECT)?).ok()?,
            submitter: self.submitter.clone(),
        })
    }

    /// The record for the spool.
    pub fn record(&self, attempt: &AttemptId, boot_id: &BootId) -> Record {
        Record {
            attempt: attempt.clone(),
            boot_id: boot_id.clone(),
            memo: self.memo.clone(),
            lease: self.lease,
            phase: self.known_phase(),
            hook_variables: self.hook_variables.clone(),
            uid: self.uid.map(Uid::as_raw),
            submitter: self.submitter.clone(),
            away: self.moving.away.clone(),
            frozen: self.frozen,
            storage: self.storage,
            end_reported: self.end_reported,
        }
    }

    fn known_phase(&self) -> HostPhase {
        match &self.phase {
            Phase::Starting(process, _) | Phase::Running(process, _) => {
                HostPhase::Running(*process)
            }
            Phase::Ended(end) => HostPhase::Ended(end.clone()),
            Phase::Gone(end) => HostPhase::Gone(end.clone()),
        }
    }
}

/// The process with what its child reported about its directory.
fn placed(process: &Process, report: &StartReport) -> Process {
    Process {
        workdir_refused: report.workdir_refused(),
        ..*process
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
    use sluice_common::limit::MAX_SENTENCE_BYTES;
    use sluice_common::supervision::{FreezeRefusal, FromSupervisor, MAX_SUPERVISION_FRAME_BYTES};

    fn process() -> Process {
        Process {
            pid: 7,
            start_ticks: 8,
            started_at: Time::from_unix_millis(100),
            workdir_refused: None,
        }
    }

    fn running(lease: Option<Lease>) -> Attempt {
        let memo = LaunchRecord {
            timeout: None,
            grace: Span::ZERO,
            gpus: Vec::new(),
            processors: Default::default(),
            is_allocation: false,
        };
        Attempt::taken_over(Phase::Running(process(), None), memo, lease)
    }

    fn end(attempt: &Attempt) -> ProcessEnd {
        match attempt.phase() {
            Phase::Ended(end) | Phase::Gone(end) => end.clone(),
            Phase::Starting(..) | Phase::Running(..) => panic!("it has not ended"),
        }
    }

    #[test]
    fn phases_only_go_forward() {
        let at = Time::from_unix_millis(200);
        let mut attempt = running(None);
        attempt.on_empty(Usage::default());
        assert!(
            attempt.main_is_running(),
            "it cannot be gone before it has ended"
        );
        attempt.on_exit(Exit::Code(3), at, Usage::default());
        attempt.on_exit(Exit::Signal(9), at, Usage::default());
        attempt.on_started();
        attempt.on_start_failed(Exit::StartFailed("late".to_owned()), at);
        assert_eq!(end(&attempt).exit, Exit::Code(3));
        attempt.on_empty(Usage::default());
        assert!(attempt.is_gone());
        attempt.on_exit(Exit::Signal(9), at, Usage::default());
        assert_eq!(end(&attempt).exit, Exit::Code(3));
    }

    #[test]
    fn an_end_after_the_lease_passed_is_the_leases() {
        let mut lease = Lease::new(BootMillis(5), Span::ZERO);
        lease.check(BootMillis(5));
        let mut attempt = running(Some(lease));
        attempt.on_exit(Exit::Code(0), Time::from_unix_millis(200), Usage::default());
        assert_eq!(end(&attempt).exit, Exit::LeaseExpired);
    }

    #[test]
    fn the_time_that_it_is_frozen_is_counted_once() {
        let mut attempt = running(None);
        let frozen = |before, since: Option<u64>| FrozenTime {
            before: Span::from_millis(before),
            since: since.map(BootMillis),
        };
        for (found, at, expected, unsaved) in [
            (FreezerState::Freezing, 10, frozen(0, None), false),
            (FreezerState::Frozen, 20, frozen(0, Some(20)), true),
            (FreezerState::Frozen, 30, frozen(0, Some(20)), false),
            (FreezerState::Thawed, 50, frozen(30, None), true),
            (FreezerState::Thawed, 60, frozen(30, None), false),
            (FreezerState::Frozen, 70, frozen(30, Some(70)), true),
            (FreezerState::Freezing, 75, frozen(35, None), true),
        ] {
            attempt.unsaved = false;
            attempt.on_freezer(found, BootMillis(at));
            assert_eq!(
                (attempt.frozen, attempt.unsaved),
                (expected, unsaved),
                "{at}"
            );
        }
    }

    #[test]
    fn a_list_of_as_many_as_may_be_fits_into_three_quarters_of_a_frame() {
        let most = MAX_SUPERVISION_FRAME_BYTES * 3 / 4 / MAX_ATTEMPTS_PER_NODE;
        let id: AttemptId = format!("{}.{}", "x".repeat(63), u32::MAX).parse().unwrap();
        let at = Time::from_unix_millis(200);
        let usage = Usage {
            cpu_us: Some(1),
            peak_memory_bytes: Some(1),
            read_bytes: Some(1),
            written_bytes: Some(1),
        };
        let sentence = "x".repeat(MAX_SENTENCE_BYTES);
        let mut attempt = running(None);
        attempt.memo.timeout = Some(Span::ZERO);
        attempt.freezer = FreezerState::Refused(FreezeRefusal::Failed(sentence.clone()));
        let size = |attempt: &Attempt| {
            let view = FromSupervisor::Attempt(attempt.listed(&id));
            sluice_codec::frame(&view, MAX_SUPERVISION_FRAME_BYTES)
                .unwrap()
                .len()
        };
        assert!(size(&attempt) <= most, "{}", size(&attempt));
        attempt.on_exit(Exit::HostFailed(sentence), at, usage);
        assert!(size(&attempt) <= most, "{}", size(&attempt));
    }

    #[test]
    fn nothing_ends_before_it_started() {
        let mut attempt = running(None);
        attempt.on_exit(Exit::Code(0), Time::from_unix_millis(1), Usage::default());
        assert_eq!(end(&attempt).ended_at, process().started_at);
    }
}
