//! Opens a table: from the spool of an earlier supervisor, and from what still runs on the host.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::{Pid, Uid};
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::limit::DEFAULT_GRACE;
use sluice_common::supervision::{Exit, FreezerState, HostPhase, Process, ProcessEnd};
use sluice_common::supervisor_config::{CarveRules, HostHooks, LeaseRules, OutputRetention};
use sluice_common::time::Time;
use sluice_common::uid_range::UidRange;
use sluice_common::usage::Usage;

use super::after_hooks::AfterHookRuns;
use super::hook_runs::HookRunner;
use super::{
    Attempt, AttemptId, BTreeMap, BTreeSet, BootId, BootMillis, InheritedState, Path, Phase,
    ProcessScanner, Spawner, Spool, Table, TableError, clock, error_chain, info, process, warn,
};
use crate::attempt::{AfterHooksState, Origin};
use crate::carving::Carvings;
use crate::config::Cuda;
use crate::gpu_move::GpuMove;
use crate::groups::Groups;
use crate::groups::name;
use crate::groups::options::GroupOptions;
use crate::helper_program::HelperProgram;
use crate::identity::Identities;
use crate::keeper::group_roots;
use crate::lease::Lease;
use crate::output::{cap, sweep::OutputSweep, writer::Writer};
use crate::seal::LeaseVerifier;
use crate::spawn::started_marker;
use crate::spool::Record;
use crate::storage::Storage;
use crate::sys;
use crate::uids::{self, UidAllocator, UidError};

/// Directory of the attempts' directories.
pub(crate) const ATTEMPTS: &str = "attempts";

/// Options of a table.
#[derive(Debug)]
pub struct TableOptions<'a> {
    /// The user that may read output, if it is not this process's own.
    pub reader_uid: Option<u32>,
    pub groups: &'a GroupOptions,
    /// Users of steps.
    pub identities: Identities,
    /// Bounds and retention of output.
    pub output: OutputRetention,
    pub hooks: HostHooks,
    /// Paths of NVIDIA's library and tool.
    pub cuda: Cuda,
    pub carving: CarveRules,
    pub leases: LeaseRules,
    /// State of the previous program in this process.
    pub left: InheritedState,
}

impl Table {
    /// Opens `state_dir` and adopts the attempts of an earlier supervisor.
    ///
    /// # Errors
    /// If the directory cannot be used, or the process has more than one thread.
    pub fn open(state_dir: &Path, mut setup: TableOptions<'_>) -> Result<Self, TableError> {
        one_thread()?;
        let attempts_dir = make_attempts_dir(state_dir)?;
        let boot_id = process::boot_id()?;
        let helper = HelperProgram::installed().map_err(TableError::Spawner)?;
        let spool = Spool::open(state_dir)?;
        let seals = LeaseVerifier::open(state_dir, setup.leases)?;
        // Leases of earlier records are limited to what the host allows, here and for keepers.
        let latest = seals.latest(clock::boot_now());
        let written = spool.load_renewal(&boot_id);
        let renewed = written.map(|until| until.min(latest));
        if let Some(until) = renewed.filter(|_| renewed != written) {
            spool.save_renewal(&boot_id, until)?;
        }
        let mut attempts = restore(&spool, &attempts_dir, &boot_id, renewed, &mut setup.left)?;
        let mut owners = ProcessScanner::new(attempts_dir.clone());
        owners.take_over(std::mem::take(&mut setup.left.seen));
        let run = attempts.values().any(|attempt| !attempt.is_gone());
        let name = name::settle(state_dir, run)?;
        let mut groups = Groups::open(Path::new("/"), setup.groups, &name);
        let runs = |id: &AttemptId| attempts.get(id).is_some_and(|it| !it.is_gone());
        groups.claim(state_dir, runs)?;
        groups.log();
        warn_of_marks(&groups);
        if let Err(e) = group_roots::write(state_dir, &boot_id, groups.roots()) {
            warn!(
                "a keeper of leases does not know the groups of attempts: {}",
                error_chain(&e)
            );
        }
        groups.take_over(|id| attempts.get(id).is_some_and(|attempt| !attempt.is_gone()));
        bound_leases(&mut attempts, &seals, latest);
        find_freezers(&mut attempts, &groups, &setup.left.freezing);
        let uid = uids::writer_uid(setup.identities.own_range());
        let keep = cap::most_bytes(&attempts_dir, setup.output.max_bytes);
        let writer = Writer::new(state_dir, &attempts_dir, helper.clone(), keep, uid);
        let mut writer = take_over_output(writer, &attempts);
        let flushing = unreported_ends(&attempts);
        flushing.iter().for_each(|id| writer.flush(id));
        let sweep = OutputSweep::new(attempts_dir.clone(), setup.output);
        let storage = Storage::new(attempts_dir.clone(), setup.output.min_free);
        setup.identities.rules.keep_projects = storage.has_projects();
        let ended = attempts.values_mut().filter(|attempt| attempt.is_gone());
        ended.for_each(|attempt| storage.release(&mut attempt.storage));
        let mut hooking = HookRunner::new(setup.hooks.clone(), attempts_dir.clone());
        hooking.take_over(setup.left.epilogs, &mut attempts);
        let afters = AfterHookRuns::take_over(setup.left.afters, &mut attempts);
        let range = setup.identities.own_range();
        let uids = open_uids(&helper, state_dir, &attempts_dir, range, &attempts)?;
        let mut table = Self {
            boot_id,
            spool,
            spawner: Spawner::new(
                attempts_dir,
                setup.reader_uid,
                setup.identities,
                setup.hooks,
                helper,
            )
            .map_err(TableError::Spawner)?,
            writer,
            failed: BTreeMap::new(),
            flushing,
            sweep,
            keep_max: setup.output.kept_bytes,
            uids,
            storage,
            hooking,
            afters,
            cuda: setup.cuda,
            execs: super::exec::Execs::default(),
            carvings: Carvings::new(setup.carving),
            owners,
            groups,
            attempts,
            by_pid: BTreeMap::new(),
            renewed,
            has_keeper: false,
            renewal_unsaved: false,
            seals,
            lease_rejection: None,
            changed: BTreeSet::new(),
            wanted: Vec::new(),
            wanted_of_all: None,
            look_due: true,
            tick_at: Some(BootMillis(0)),
        };
        table.index_children();
        table.resume_moves(clock::boot_now());
        Ok(table)
    }
}

fn make_attempts_dir(state_dir: &Path) -> Result<PathBuf, TableError> {
    let path = state_dir.join(ATTEMPTS);
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(&path);
    if let Err(source) = made {
        return Err(TableError::Directory { path, source });
    }
    // Most file systems have no such hint.
    let _refused = sys::placement::spread_directories(&path);
    Ok(path)
}

/// Opens the allocator of user ids, with the ids that these attempts have.
fn open_uids(
    helper: &HelperProgram,
    state_dir: &Path,
    attempts_dir: &Path,
    range: Option<UidRange>,
    attempts: &BTreeMap<AttemptId, Attempt>,
) -> Result<UidAllocator, UidError> {
    let held = attempts.iter();
    let held = held.filter_map(|(id, a)| Some((a.uid?.as_raw(), id, !a.is_gone())));
    let registry = Path::new(uids::REGISTRY);
    UidAllocator::open(
        helper.clone(),
        registry,
        state_dir,
        attempts_dir,
        range,
        held,
    )
}

/// Makes the writer write the output of all attempts that are not gone.
fn take_over_output(mut writer: Writer, attempts: &BTreeMap<AttemptId, Attempt>) -> Writer {
    let alive = attempts.iter().filter(|(_, attempt)| !attempt.is_gone());
    alive.for_each(|(id, _)| writer.take_over(id));
    writer
}

/// Attempts whose main process has ended, which was not reported yet.
fn unreported_ends(attempts: &BTreeMap<AttemptId, Attempt>) -> BTreeSet<AttemptId> {
    let unreported = attempts
        .iter()
        .filter(|(_, a)| a.is_ended() && !a.end_reported);
    unreported.map(|(id, _)| id.clone()).collect()
}

/// Limits every lease to what this host allows, even if an earlier release set none.
fn bound_leases(
    attempts: &mut BTreeMap<AttemptId, Attempt>,
    seals: &LeaseVerifier,
    latest: BootMillis,
) {
    for attempt in attempts.values_mut() {
        let lease = attempt.lease.unwrap_or(Lease::new(latest, DEFAULT_GRACE));
        let capped = Some(lease.capped(latest, seals.longest_grace()));
        attempt.unsaved |= attempt.lease != capped && !attempt.is_gone();
        attempt.lease = capped;
    }
}

/// Reads the freezer state of each attempt. A freeze in progress continues.
fn find_freezers(
    attempts: &mut BTreeMap<AttemptId, Attempt>,
    groups: &Groups,
    freezing: &BTreeSet<AttemptId>,
) {
    let now = clock::boot_now();
    for (id, attempt) in attempts {
        let found = match freezing.contains(id) {
            true => FreezerState::Freezing,
            false => groups.freezer(id),
        };
        attempt.on_freezer(found, now);
    }
}

fn one_thread() -> Result<(), TableError> {
    match process::own_threads().map_err(TableError::Spawner)? {
        1 => Ok(()),
        threads => Err(TableError::Threads { threads }),
    }
}

fn restore(
    spool: &Spool,
    attempts_dir: &Path,
    boot_id: &BootId,
    renewed: Option<BootMillis>,
    left: &mut InheritedState,
) -> Result<BTreeMap<AttemptId, Attempt>, TableError> {
    let loaded = spool.load()?;
    let mut attempts = BTreeMap::new();
    for record in loaded.records {
        let id = record.attempt.clone();
        let child = left.child(&record);
        if child.is_none() && never_began(&record, attempts_dir, boot_id) {
            info!(step = %id.step, attempt = id.number, "its program never ran: it is forgotten and can be started");
            spool.remove(&id)?;
            continue;
        }
        let unseen = match spool.was_ended_by_keeper(&id) {
            true => Exit::LeaseExpired,
            false => Exit::Unknown,
        };
        let mut attempt = child.unwrap_or_else(|| take_over(&record, boot_id, unseen));
        attempt.killing = left.killing.contains(&id);
        attempt.hook_variables = record.hook_variables;
        attempt.uid = record.uid.map(Uid::from_raw);
        attempt.submitter = record.submitter;
        if spool.has_after_hooks(&id) && !attempt.is_gone() {
            attempt.after = AfterHooksState::Pending;
        }
        attempt.moving = GpuMove::found(record.away);
        attempt.frozen = record.frozen;
        attempt.storage = record.storage;
        attempt.end_reported = record.end_reported;
        if matches!(record.phase, HostPhase::Gone(_)) {
            // The project was released, and may belong to another attempt by now.
            attempt.storage.project = None;
        }
        if let (Some(lease), Some(until)) = (&mut attempt.lease, renewed) {
            lease.renew(until);
        }
        if attempt.origin == Origin::TakenOver {
            log_taken_over(&id, &attempt);
        }
        attempts.insert(id, attempt);
    }
    spool.retain_after_hooks(|id| attempts.get(id).is_some_and(|it| !it.is_gone()))?;
    let damaged = loaded.damaged.into_iter().map(|id| (id, "lost"));
    let missing = left.children.keys().map(|id| (id.clone(), "not there"));
    for (id, how) in damaged.chain(missing) {
        warn!(step = %id.step, attempt = id.number, "its record is {how}: what is left of it is killed");
        let mut lost = Attempt::lost(clock::wall_now());
        lost.unsaved = true;
        attempts.insert(id, lost);
    }
    Ok(attempts)
}

/// Logs the result of a spawn.
pub(super) fn log_birth(id: &AttemptId, attempt: &Attempt) {
    match attempt.phase() {
        Phase::Starting(process, _) => {
            info!(step = %id.step, attempt = id.number, pid = process.pid, "process started")
        }
        Phase::Gone(end) => {
            info!(step = %id.step, attempt = id.number, exit = ?end.exit, "process not started")
        }
        Phase::Running(..) | Phase::Ended(_) => {}
    }
}

fn log_taken_over(id: &AttemptId, attempt: &Attempt) {
    match attempt.phase() {
        Phase::Running(process, _) => {
            info!(step = %id.step, attempt = id.number, pid = process.pid, "taken over, running")
        }
        Phase::Ended(end) | Phase::Gone(end) => {
            info!(step = %id.step, attempt = id.number, exit = ?end.exit, "taken over, ended")
        }
        Phase::Starting(..) => {}
    }
}

/// `unseen` is the exit if the attempt has ended while no supervisor ran.
fn take_over(record: &Record, boot_id: &BootId, unseen: Exit) -> Attempt {
    let now = clock::wall_now();
    let same_boot = record.boot_id == *boot_id;
    let phase = match record.phase.clone() {
        HostPhase::Running(process) if !same_boot => {
            Phase::Gone(end_of(process, Exit::HostRebooted, now))
        }
        HostPhase::Running(process) => {
            // The exit was not seen, but the reason for its kill is known.
            let exceeded = record.storage.exceeded;
            let exit = exceeded.map_or(unseen, Exit::StorageExceeded);
            find(process).unwrap_or_else(|| Phase::Ended(end_of(process, exit, now)))
        }
        // After a reboot no process is left.
        HostPhase::Ended(end) if !same_boot => Phase::Gone(end),
        HostPhase::Ended(end) => Phase::Ended(end),
        HostPhase::Gone(end) => Phase::Gone(end),
    };
    let mut attempt = Attempt::taken_over(phase, record.memo.clone(), record.lease);
    attempt.unsaved = attempt.record(&record.attempt, boot_id).phase != record.phase;
    attempt
}

/// Time limit for a child without a supervisor to pass its gate or to exit; it does either at once.
const GATE_LIMIT: Duration = Duration::from_secs(1);

/// Whether the supervisor died after recording a child and before opening its gate. Such a child exits by
/// itself; one that does not is killed.
fn never_began(record: &Record, attempts_dir: &Path, boot_id: &BootId) -> bool {
    let HostPhase::Running(process) = record.phase else {
        return false;
    };
    if record.boot_id != *boot_id {
        return false;
    }
    let started_marker = started_marker(attempts_dir, &record.attempt);
    let deadline = Instant::now() + GATE_LIMIT;
    loop {
        // In this order, because a child that has passed its gate counts even if it has ended.
        let lives = find(process).is_some();
        if started_marker.exists() {
            return false;
        }
        if !lives {
            return true;
        }
        if Instant::now() > deadline {
            kill(process);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill(process: Process) {
    if let Ok(pid) = i32::try_from(process.pid) {
        // Fails if the process has ended by itself.
        let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The process, if it is still the recorded one.
fn find(process: Process) -> Option<Phase> {
    let lives = || {
        process::stat(process.pid)
            .is_some_and(|p| p.start_ticks == process.start_ticks && p.is_alive())
    };
    if !lives() {
        return None;
    }
    // If the kernel has no pidfds, or no more of them, the process is polled instead.
    let watch = sys::open_pidfd(process.pid).ok();
    // The pid may have been reused between the check and the opening.
    lives().then_some(Phase::Running(process, watch))
}

fn end_of(process: Process, exit: Exit, now: Time) -> ProcessEnd {
    ProcessEnd {
        process: Some(process),
        exit,
        ended_at: now.max(process.started_at),
        usage: Usage::default(),
        kept: None,
    }
}

/// Warns that strays are found by marks if there are no groups: marks are in the memory of a step's process,
/// which can block the reader (see [`crate::process_scan`]).
fn warn_of_marks(groups: &Groups) {
    if groups.capabilities().get(&Capability::Kill) == Some(&Mechanism::ProcessGroup) {
        warn!(
            "no control groups can be created, so processes that a step leaves behind are found by their environment: those that clear or hide it are not found"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervision::LaunchRecord;
    use sluice_common::time::Span;

    /// A process that has ended.
    fn gone() -> Process {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let start_ticks = process::stat(pid).map_or(1, |p| p.start_ticks);
        child.wait().unwrap();
        let started_at = Time::from_unix_millis(1);
        Process {
            pid,
            start_ticks,
            started_at,
            workdir_refused: None,
        }
    }

    #[test]
    fn a_child_that_died_at_its_gate_never_began() {
        let dir = tempfile::tempdir().unwrap();
        let boot_id = BootId::new("boot-1").unwrap();
        let attempt: AttemptId = "a.1".parse().unwrap();
        fs::create_dir(dir.path().join("a.1")).unwrap();
        let memo = LaunchRecord {
            timeout: None,
            grace: Span::ZERO,
            gpus: Vec::new(),
            processors: Default::default(),
            is_allocation: false,
        };
        let record = Record {
            attempt: attempt.clone(),
            boot_id: boot_id.clone(),
            memo,
            lease: None,
            phase: HostPhase::Running(gone()),
            hook_variables: BTreeMap::new(),
            uid: None,
            submitter: None,
            away: None,
            frozen: Default::default(),
            storage: Default::default(),
            end_reported: false,
        };
        assert!(never_began(&record, dir.path(), &boot_id));
        let other = BootId::new("boot-2").unwrap();
        assert!(
            !never_began(&record, dir.path(), &other),
            "a reboot says more"
        );
        fs::write(started_marker(dir.path(), &attempt), "").unwrap();
        assert!(!never_began(&record, dir.path(), &boot_id));
    }
}
