//! Every attempt of the host, and what happens to it. `server` feeds it what the kernel and the agent say, then calls
//! [`Table::finish_turn`], which does what follows: signals, looks for what is left, writes the spool, and only then hands
//! out the views that have changed.
//!
//! [`restore`] is its start, [`turn_end`] its end of turn; [`starting`] is what makes processes, [`freezing`] is what freezes and thaws, [`gpu_move`] what is done
//! before and after where GPUs are held, [`handing_over`] what goes over to a newer supervisor, [`hook_runs`] what runs around
//! attempts, [`exec`] what runs beside them, [`ending`] how their programs have ended, [`leasing`] what keeps their leases,
//! [`pinning`] what keeps them to processors of their own, [`storage_limits`] what keeps them to their part of the disk,
//! [`users`] what gives them users of their own, [`output_wait`] what waits for their output, [`after_hooks`] what runs when their
//! programs have ended.

mod after_hooks;
mod ending;
mod error;
mod exec;
mod freezing;
mod gpu_move;
mod handing_over;
mod hook_runs;
mod leasing;
mod pinning;
mod restore;
pub(crate) use restore::ATTEMPTS;
pub use restore::TableOptions;
mod output_wait;
mod starting;
mod storage_limits;
mod turn_end;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use sluice_cgroups::file::GroupError;
use sluice_common::error_chain::error_chain;
use sluice_common::id::{AttemptId, BootId};
use sluice_common::supervision::{
    AttemptView, BootMillis, Exit, FromSupervisor, SUPERVISION_VERSION, StopSignal, ToSupervisor,
};
use sluice_common::usage::Usage;
use tracing::{error, info, warn};

use crate::attempt::{AfterHooksState, Attempt, Phase};
use crate::clock;
use crate::config::Cuda;
use crate::gpu_move::MoveOrder;
use crate::groups::Groups;
use crate::lease::LeaseStage;
use crate::notice::StopNotice;
use crate::output::{sweep::OutputSweep, writer::Writer};
use crate::process;
use crate::process_scan::ProcessScanner;
use crate::reap::EndedChild;
use crate::seal::LeaseVerifier;
use crate::spawn::{SpawnError, Spawner, StartReport, StartStatus};
use crate::spool::Spool;
use crate::storage::Storage;
use crate::uids::UidAllocator;

pub use error::TableError;
pub use handing_over::InheritedState;
use hook_runs::HookRunner;

/// Every attempt of the host that was not forgotten.
#[derive(Debug)]
pub struct Table {
    boot_id: BootId,
    spool: Spool,
    spawner: Spawner,
    owners: ProcessScanner,
    groups: Groups,
    attempts: BTreeMap<AttemptId, Attempt>,
    /// Main processes that are children of ours and were not reaped.
    by_pid: BTreeMap<u32, AttemptId>,
    renewed: Option<BootMillis>,
    /// Whether somebody ends attempts whose lease has passed if this supervisor does not: without, none with a lease begins.
    pub has_keeper: bool,
    /// Whether the last renewal could not be written.
    renewal_unsaved: bool,
    /// Whose leases count.
    seals: LeaseVerifier,
    /// Why the last signed lease did not count, if it did not.
    lease_rejection: Option<String>,
    /// Attempts whose view has changed in this turn.
    changed: BTreeSet<AttemptId>,
    /// Signals to be sent at the end of this turn; at the end of a later one where the host cannot be looked at.
    wanted: Vec<(AttemptId, StopSignal)>,
    /// One that everything is to be sent and could not be yet.
    wanted_of_all: Option<StopSignal>,
    /// Whether something may have left nothing behind.
    look_due: bool,
    /// When to look again at what tells nobody of its end.
    tick_at: Option<BootMillis>,
    /// Writes their output.
    writer: Writer,
    /// Those that did not become their program, and why, while what was said before that is written.
    failed: BTreeMap<AttemptId, Exit>,
    /// Those whose program has ended, while what it gave is written.
    flushing: BTreeSet<AttemptId>,
    /// Removes what is kept no longer.
    sweep: OutputSweep,
    /// Gives attempts user ids of their own.
    uids: UidAllocator,
    /// How much of the disk they take.
    pub storage: Storage,
    hooking: HookRunner,
    afters: after_hooks::AfterHookRuns,
    /// What moves the memory of GPUs.
    cuda: Cuda,
    execs: exec::Execs,
}

impl Table {
    /// The boot that its attempts belong to.
    pub fn boot_id(&self) -> BootId {
        self.boot_id.clone()
    }

    /// Everything that an agent needs to know.
    pub fn hello(&self) -> FromSupervisor {
        let attempts = self.attempts.iter();
        let shown = attempts.map(|(id, a)| self.shown(id, a.listed(id)));
        self.hello_with(shown.collect())
    }

    /// The same for somebody who only asks whether this supervisor answers.
    pub fn hello_to_probe(&self) -> FromSupervisor {
        self.hello_with(Vec::new())
    }

    fn hello_with(&self, attempts: Vec<AttemptView>) -> FromSupervisor {
        FromSupervisor::Hello {
            version: SUPERVISION_VERSION,
            boot_id: self.boot_id.clone(),
            attempts,
            capabilities: self.groups.capabilities(),
        }
    }

    /// The agent has spoken. What comes back is an answer to it alone; changes follow from [`Table::finish_turn`].
    pub fn on_message(&mut self, message: ToSupervisor, now: BootMillis) -> Option<FromSupervisor> {
        match message {
            ToSupervisor::Spawn(spec) => self.on_spawn(&spec, now).map(FromSupervisor::Attempt),
            ToSupervisor::Signal { attempt, signal } => {
                self.on_signal(attempt, signal);
                None
            }
            ToSupervisor::Renew { until } => {
                self.on_renew(until, now);
                None
            }
            ToSupervisor::Challenge => self.on_want_challenge(now),
            ToSupervisor::Lease(lease) => {
                self.on_lease(&lease);
                None
            }
            ToSupervisor::Forget { attempt } => {
                self.on_forget(&attempt);
                None
            }
            ToSupervisor::List => Some(self.hello()),
            ToSupervisor::Ping => Some(FromSupervisor::Pong),
            ToSupervisor::Freeze { attempt } => {
                self.on_freeze(&attempt);
                None
            }
            ToSupervisor::Thaw { attempt } => {
                self.on_thaw(&attempt, now);
                None
            }
            ToSupervisor::Suspend {
                attempt,
                users,
                bytes,
                limit,
            } => {
                let order = MoveOrder {
                    attempt,
                    users,
                    bytes,
                    limit,
                };
                self.on_suspend(order, now);
                None
            }
            ToSupervisor::Exec { exec, order } => self.on_exec(exec, &order),
            ToSupervisor::EndExec { exec } => {
                self.on_end_exec(&exec);
                None
            }
            ToSupervisor::Pin {
                attempt,
                processors,
            } => {
                self.on_pin(&attempt, processors);
                None
            }
            ToSupervisor::Notice {
                attempt,
                why,
                kill_at,
            } => {
                if self
                    .attempts
                    .get(&attempt)
                    .is_some_and(Attempt::main_is_running)
                {
                    self.notify(
                        &attempt,
                        &StopNotice::stop(why, clock::wall_at(kill_at, now)),
                    );
                }
                None
            }
        }
    }

    fn on_signal(&mut self, id: AttemptId, signal: StopSignal) {
        // What runs after the step has its own time, which the agent does not count.
        let hears = |a: &&mut Attempt| !a.is_gone() && a.after != AfterHooksState::Running;
        let Some(attempt) = self.attempts.get_mut(&id).filter(hears) else {
            return;
        };
        attempt.killing |= signal == StopSignal::Kill;
        self.want(id, signal);
    }

    /// Once is enough: an agent that asks again and again, of a host that cannot be looked at, must not pile up anything.
    fn want(&mut self, id: AttemptId, signal: StopSignal) {
        let wanted = (id, signal);
        if !self.wanted.contains(&wanted) {
            self.wanted.push(wanted);
        }
    }

    fn notify(&self, id: &AttemptId, notice: &StopNotice) {
        if let Err(e) = notice.write(&self.spawner.attempt_dir(id)) {
            warn!(step = %id.step, attempt = id.number, "it is stopped without a notice: {e}");
        }
    }

    fn on_forget(&mut self, id: &AttemptId) {
        match self.attempts.get(id) {
            None => return,
            Some(attempt) if !attempt.is_gone() => {
                warn!(step = %id.step, attempt = id.number, "not forgotten: it is not gone yet");
                return;
            }
            Some(_) => {}
        }
        self.attempts.remove(id);
        self.sweep.on_forgotten(id);
        if let Err(e) = self.spool.remove(id) {
            // The next supervisor tells the agent of it once more, and is told to forget it once more.
            error!(step = %id.step, attempt = id.number, "{}", error_chain(&e));
        }
    }

    /// Children have ended, orphans among them.
    pub fn on_children_ended(&mut self, ended: &[EndedChild]) {
        for child in ended {
            if self.owners.on_child_ended(child.pid) || self.on_count_ended(child.pid) {
                continue;
            }
            self.look_due = true;
            if let Some(id) = self.by_pid.remove(&child.pid) {
                self.on_main_ended(&id, child.exit(), child.usage);
                continue;
            }
            // Else it may be anybody's that this program has sent, or an orphan.
            let known = |id: &AttemptId| self.attempts.contains_key(id);
            if self.sweep.on_child_ended(child.pid, known) {
                continue;
            }
            if self.writer.on_child_ended(child.pid) {
                continue;
            }
            if self.uids.on_child_ended(child.pid, clock::boot_now()) {
                continue;
            }
            if self.on_exec_ended(child) || self.on_after_step_child_ended(child) {
                continue;
            }
            self.on_helper_ended(child.pid, clock::boot_now());
        }
    }

    /// A descriptor of [`Table::watched`] has become readable.
    pub fn on_ready(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        match attempt.phase() {
            // A failed start is dealt with when the child is reaped: until then it is there.
            Phase::Starting(..) => {
                if attempt.report_mut().map(|report| report.read()) == Some(StartStatus::Started) {
                    attempt.on_started();
                    self.hooking.on_started(&id.step);
                    self.changed.insert(id.clone());
                    self.freeze_late(id);
                }
            }
            Phase::Running(..) => self.on_main_ended(id, Exit::Unknown, Usage::default()),
            Phase::Ended(_) | Phase::Gone(_) => {}
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: BootMillis) {
        self.check_helper_timeouts(now);
        self.sweep.on_time(now, self.attempts.keys());
        self.uids.on_time(now);
        self.on_storage_time(now);
        self.stop_expired(now);
    }

    /// What is to be waited for, beside the agent and the clock: [`Table::on_ready`] when it becomes readable.
    pub fn watched(&self) -> impl Iterator<Item = (&AttemptId, BorrowedFd<'_>)> {
        self.attempts.iter().filter_map(|(id, attempt)| {
            let fd = match attempt.phase() {
                Phase::Starting(_, report) if report.is_awaited() => report.as_fd(),
                Phase::Running(_, Some(watch)) => watch.as_fd(),
                Phase::Starting(..)
                | Phase::Running(_, None)
                | Phase::Ended(_)
                | Phase::Gone(_) => {
                    return None;
                }
            };
            Some((id, fd))
        })
    }

    /// When to call [`Table::on_time`] and [`Table::finish_turn`] at the latest.
    pub fn wake_at(&self, now: BootMillis) -> Option<BootMillis> {
        let stages = self
            .attempts
            .values()
            .filter(|attempt| !attempt.is_gone())
            .filter_map(|attempt| attempt.lease?.next_stage_at(now));
        let output = [
            self.sweep.wake_at(),
            self.uids.wake_at(),
            Some(self.storage.wake_at()),
            self.writer.wake_at(),
        ];
        stages
            .chain(self.tick_at)
            .chain(self.helper_deadlines())
            .chain(output.into_iter().flatten())
            .min()
    }
}

fn no_group(error: GroupError) -> SpawnError {
    let (action, why) = error.into_parts();
    SpawnError::Host { action, why }
}
