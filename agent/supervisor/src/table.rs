//! All attempts of the host, and what happens to them. `server` feeds events of the kernel and the agent,
//! then calls [`Table::finish_turn`], which sends signals, checks for ends, writes the spool, and only then
//! returns the changed views.
//!
//! [`restore`] opens the table and [`turn_end`] ends a turn. The other modules each handle one concern:
//! [`carving`] GPUs, [`starting`] processes, [`freezing`] freeze and thaw, [`gpu_move`] GPU memory around a freeze,
//! [`handing_over`] upgrades, [`hook_runs`] the admin's hooks, [`exec`] programs beside a step, [`ending`]
//! exits, [`leasing`] leases, [`pinning`] processors, [`storage_limits`] disk usage, [`users`] user ids,
//! [`output_wait`] the completion of output, [`after_hooks`] templates' hooks after a step.

mod after_hooks;
mod carving;
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
use sluice_common::usage::{RunningUsage, Usage};
use tracing::{error, info, warn};

use crate::attempt::{AfterHooksState, Attempt, Phase};
use crate::carving::Carvings;
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

/// All attempts of the host that were not forgotten.
#[derive(Debug)]
pub struct Table {
    boot_id: BootId,
    spool: Spool,
    spawner: Spawner,
    owners: ProcessScanner,
    groups: Groups,
    attempts: BTreeMap<AttemptId, Attempt>,
    /// Main processes that are children of ours and not reaped.
    by_pid: BTreeMap<u32, AttemptId>,
    renewed: Option<BootMillis>,
    /// Whether a keeper works on this host; without one no attempt with a lease starts.
    pub has_keeper: bool,
    /// Whether the last renewal could not be written.
    renewal_unsaved: bool,
    /// Verifies signed leases.
    seals: LeaseVerifier,
    /// Why the last signed lease was rejected, if it was.
    lease_rejection: Option<String>,
    /// Attempts whose view changed in this turn.
    changed: BTreeSet<AttemptId>,
    /// Signals to send at the end of this turn, or of a later one if the host cannot be scanned.
    wanted: Vec<(AttemptId, StopSignal)>,
    /// A signal for all processes that could not be sent yet.
    wanted_of_all: Option<StopSignal>,
    /// Whether an attempt may have lost its last process.
    look_due: bool,
    /// When to poll again for ends that cause no event.
    tick_at: Option<BootMillis>,
    /// Writes the output.
    writer: Writer,
    /// Attempts that failed to start, with the reason, while their output is being written.
    failed: BTreeMap<AttemptId, Exit>,
    /// Attempts whose program has ended, while its output is being written.
    flushing: BTreeSet<AttemptId>,
    /// Removes directories of forgotten attempts.
    sweep: OutputSweep,
    /// Most bytes of an attempt's own directory that are kept at the request of its step.
    keep_max: u64,
    /// Assigns user ids to attempts.
    uids: UidAllocator,
    /// Disk usage and free space.
    pub storage: Storage,
    hooking: HookRunner,
    afters: after_hooks::AfterHookRuns,
    /// Paths of NVIDIA's library and tool.
    cuda: Cuda,
    execs: exec::Execs,
    carvings: Carvings,
}

impl Table {
    /// The boot that the attempts belong to.
    pub fn boot_id(&self) -> BootId {
        self.boot_id.clone()
    }

    /// The full list for an agent.
    pub fn hello(&self) -> FromSupervisor {
        let attempts = self.attempts.iter();
        let shown = attempts.map(|(id, a)| self.shown(id, a.listed(id)));
        self.hello_with(shown.collect())
    }

    /// The hello for a probe, which has no attempts.
    pub fn hello_to_probe(&self) -> FromSupervisor {
        self.hello_with(Vec::new())
    }

    fn hello_with(&self, attempts: Vec<AttemptView>) -> FromSupervisor {
        FromSupervisor::Hello {
            version: SUPERVISION_VERSION,
            boot_id: self.boot_id.clone(),
            attempts,
            capabilities: self.groups.capabilities(),
            carves_gpus: self.carvings.is_allowed(),
        }
    }

    /// Present usage of the attempts that run.
    fn usages(&self) -> Vec<(AttemptId, RunningUsage)> {
        let live = self.attempts.iter();
        let live = live.filter(|(_, attempt)| matches!(attempt.phase(), Phase::Running(..)));
        live.map(|(id, _)| (id.clone(), self.groups.live_usage(id)))
            .collect()
    }

    /// Handles a message of the agent. Returns a direct answer; changes follow from [`Table::finish_turn`].
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
            ToSupervisor::Measure => Some(FromSupervisor::Usages(self.usages())),
            ToSupervisor::Carve(gpu, layout) => {
                self.on_carve(gpu, layout, now);
                None
            }
            ToSupervisor::Notice {
                attempt,
                why,
                kill_at,
            } => {
                let known = self.attempts.get(&attempt);
                if known.is_some_and(Attempt::main_is_running) {
                    let notice = StopNotice::stop(why, clock::wall_at(kill_at, now));
                    self.notify(&attempt, &notice);
                }
                None
            }
        }
    }

    fn on_signal(&mut self, id: AttemptId, signal: StopSignal) {
        // Hooks after the step have a time limit of their own, which the agent does not know.
        let hears = |a: &&mut Attempt| !a.is_gone() && a.after != AfterHooksState::Running;
        let Some(attempt) = self.attempts.get_mut(&id).filter(hears) else {
            return;
        };
        attempt.killing |= signal == StopSignal::Kill;
        self.want(id, signal);
    }

    /// Adds a signal once: repeated requests must not accumulate while the host cannot be scanned.
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
            // The next supervisor reports the attempt again, and the agent forgets it again.
            error!(step = %id.step, attempt = id.number, "{}", error_chain(&e));
        }
    }

    /// Handles ended children, including orphans.
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
            // Otherwise the child is a helper of this program, or an orphan.
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
            if self.on_carver_ended(child.pid, clock::boot_now()) {
                continue;
            }
            self.on_helper_ended(child.pid, clock::boot_now());
        }
    }

    /// A descriptor of [`Table::watched`] is readable.
    pub fn on_ready(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id) else {
            return;
        };
        match attempt.phase() {
            // A failed start is handled when the child is reaped; the child exists until then.
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

    /// Handles due timers.
    pub fn on_time(&mut self, now: BootMillis) {
        self.check_helper_timeouts(now);
        self.check_carver_timeout(now);
        self.sweep.on_time(now, self.attempts.keys());
        self.uids.on_time(now);
        self.on_storage_time(now);
        self.stop_expired(now);
    }

    /// Descriptors of attempts to poll; call [`Table::on_ready`] when one is readable.
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
            self.carvings.deadline(),
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
