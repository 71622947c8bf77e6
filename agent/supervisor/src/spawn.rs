//! Starts the processes of attempts: the parent's half. The child's half is [`child`], the search for the
//! program [`lookup`]; [`exec`] starts a program beside a step.
//!
//! `identity` decides the user of a step; [`confine`] switches to it.
//!
//! The child waits at a gate until its record is on disk, and exits if the supervisor dies before. So no
//! program runs without a record. The child does everything that touches the step's own files (its working
//! directory, its program, the directories of its PATH), because a network file system that hangs must block
//! the step and not the supervisor. The child reports errors over a pipe that `exec` closes.
//!
//! `posix_spawn` has no such gate, hence `fork`, which is cheap because the supervisor's memory is small.

pub mod after_hooks;
pub mod carver;
mod child;
mod confine;
mod environment;
pub mod exec;
pub mod helper;
mod input_socket;
pub mod keep;
pub(crate) mod lookup;
mod output_files;
mod run_as;
mod start_directory;
mod start_report;
pub mod step_hooks;
mod step_inputs;
mod streams;
pub mod wrapper;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, Uid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::attempt_dir::{OWN_WORKDIR, STEP_DIR};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{Exit, Process, SpawnSpec};
use sluice_common::supervisor_config::HostHooks;

use crate::helper_program::HelperProgram;
use crate::hooks;
use crate::hooks::run::HookCommand;
use crate::identity::{Identities, Identity, NoUser, StepOwner};
use crate::output::cap;
use crate::output::writer::AttemptStreams;
use crate::seal::SubmitterRejection;
use crate::{clock, process, sys};
use environment::environment;
use output_files::OutputFiles;
use start_directory::StartDirectory;
pub use start_report::{StartReport, StartStatus};
use step_inputs::StepInputs;
use streams::StreamSetup;

/// Why no process was started. Errors of the child arrive by a [`StartReport`] instead.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command is empty.
    #[error("the command is empty: name a program")]
    EmptyCommand,
    /// A string contains a NUL byte.
    #[error("{field} contains a NUL byte, which cannot be passed to a program")]
    Nul { field: String },
    /// The name of an environment variable is invalid.
    #[error("`{name}` cannot be the name of an environment variable: it is empty or holds `=`")]
    VariableName { name: String },
    /// A value has a line break, which the wrapper's file of variables cannot express.
    #[error(
        "environment variable `{name}` contains a line break, which the pool's wrapper cannot pass on in its file of variables: put the value into a file that the step reads"
    )]
    LineBreak { name: String },
    /// The working directory is not absolute.
    #[error("working directory `{workdir}` is not an absolute path: begin it with `/`")]
    RelativeWorkdir { workdir: String },
    /// No user on this host may run the step.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// No user on this host may run a program beside or after the step.
    #[error("{}", .0.of_program())]
    NoProgram(NoUser),
    /// The submitter of the step is not accepted.
    #[error(transparent)]
    Submitter(#[from] SubmitterRejection),
    /// The step requires processors of its own, and this host cannot pin, or the order names no processors.
    #[error(
        "it asks for processors of its own (`cpu_mode: pinned`), which this host cannot give: the supervisor has no cpuset there; use a pool that requires `cpuset` of its hosts"
    )]
    NotPinned,
    /// A resource of the host is missing.
    #[error("the host could not {action}: {why}")]
    Host { action: String, why: io::Error },
}

impl SpawnError {
    /// The attempt's exit because of this error: whether the step or the host is at fault.
    pub fn into_exit(self) -> Exit {
        let sentence = self.to_string();
        match self {
            SpawnError::EmptyCommand
            | SpawnError::Nul { .. }
            | SpawnError::VariableName { .. }
            | SpawnError::LineBreak { .. }
            // The host works for other steps, so it must not be closed because of a user that it does not
            // have.
            | SpawnError::NoUser(_)
            | SpawnError::NoProgram(_)
            | SpawnError::Submitter(_)
            | SpawnError::NotPinned
            | SpawnError::RelativeWorkdir { .. } => Exit::StartFailed(sentence),
            SpawnError::Host { .. } => Exit::HostFailed(sentence),
        }
    }
}

fn host<T>(action: impl FnOnce() -> String, result: io::Result<T>) -> Result<T, SpawnError> {
    result.map_err(|why| SpawnError::Host {
        action: action(),
        why,
    })
}

/// The gate at which the child waits. If it is dropped unopened, the child exits.
#[derive(Debug)]
#[must_use = "a child whose gate is dropped exits"]
pub struct StartGate(PipeWriter);

impl StartGate {
    /// Lets the child continue.
    pub fn open(mut self) {
        // Fails if the child was killed at the gate, which is noticed when it is reaped.
        let _ = self.0.write_all(b"!");
    }
}

/// A child that waits at its gate.
#[derive(Debug)]
pub struct WaitingChild {
    pub process: Process,
    pub gate: StartGate,
    pub report: StartReport,
    pub streams: AttemptStreams,
}

/// State that every spawn needs.
#[derive(Debug)]
pub struct Spawner {
    attempts_dir: PathBuf,
    null: File,
    reader_uid: Option<u32>,
    identities: Identities,
    hooks: HostHooks,
    open_files: (rlim_t, rlim_t),
    /// Path of this program, which runs behind wrappers.
    own_program: PathBuf,
    helper_program: HelperProgram,
}

/// Mode of a directory of an attempt: other users may pass through if the attempt's user is not the
/// supervisor's.
const TRAVERSABLE: u32 = 0o711;
const PRIVATE: u32 = 0o700;

impl Spawner {
    /// Makes attempts' directories below `attempts_dir`. Output is readable by `reader_uid`. Raises this
    /// process's own limit of open files to its maximum.
    ///
    /// # Errors
    /// If `/dev/null` cannot be opened or the limits cannot be read.
    pub fn new(
        attempts_dir: PathBuf,
        reader_uid: Option<u32>,
        identities: Identities,
        hooks: HostHooks,
        helper_program: HelperProgram,
    ) -> io::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        // Each attempt that is starting or was taken over needs a descriptor. If this fails, the old limit
        // remains.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        Ok(Self {
            attempts_dir,
            null: File::open("/dev/null")?,
            reader_uid,
            identities,
            hooks,
            open_files: (soft, hard),
            own_program: std::env::current_exe()?,
            helper_program,
        })
    }

    /// Restores this process's own limit of open files, or raises it again. An `exec` inherits it, and the
    /// next program would give its steps the raised limit.
    pub fn lower_own_limit(&self, lower: bool) {
        let (soft, hard) = self.open_files;
        // Open files stay open. If this fails, the old limit remains.
        let _ = setrlimit(
            Resource::RLIMIT_NOFILE,
            if lower { soft } else { hard },
            hard,
        );
    }

    /// Forks a child for an attempt, in its groups; the child waits at its gate.
    ///
    /// # Errors
    /// If the specification is invalid or the host lacks resources.
    pub fn fork(
        &self,
        spec: &SpawnSpec,
        (step_owner, own): (&StepOwner, Option<Uid>),
        group_entry: &GroupEntry,
    ) -> Result<WaitingChild, SpawnError> {
        let dir = self.attempt_dir(&spec.attempt);
        let identity = &*self.identity(step_owner, own, &dir)?;
        let program = self.program(spec, identity, &dir)?;
        let around_env = environment(&spec.hook_env, identity, &dir)?;
        let before = step_hooks::hooks(&spec.hooks.before, &around_env, spec.hook_env.get("PATH"))?;
        let limits = step_hooks::rlimits(&spec.hooks.limits);
        let named = spec.workdir.as_deref().map(absolute).transpose()?;
        let preferred = spec.prefer_workdir.as_deref().map(absolute).transpose()?;
        let start_directory = StartDirectory::of(named, preferred, &dir);
        self.make_own(&dir, identity)?;
        // The own directory is also the home of a user without one in the user database.
        make_step_dirs(&dir, identity, start_directory.needs_own() || own.is_some())?;
        self.write_launch_files(spec, identity, &dir)?;
        host(
            || format!("make the marks of output in {}", dir.display()),
            cap::make_marks(&dir, self.reader_uid),
        )?;
        let ([stdout, stderr], streams) = self.streams(&dir, identity)?;
        let source = self.input_source(&spec.streams, &dir)?;
        let files = OutputFiles::of(&spec.streams, identity, &self.identities.rules);
        let (at_gate, gate) = pipe()?;
        let (report, to_report) = pipe()?;
        nonblocking(&report)?;
        let told = hooks::variables(spec);
        let prolog = self.hooks.prolog.as_ref().map(|program| HookCommand {
            program: program.as_ref(),
            told: &told,
            timeout: self.hooks.timeout,
            output_dir: &self.attempts_dir,
        });
        let inputs = self.inputs(spec);
        let child = child::StepChild {
            group_entry,
            stdin: &self.null,
            setup: StreamSetup {
                source: &source,
                helper: &self.helper_program,
                null: &self.null,
                files: Some(&files),
            },
            stdout: &stdout,
            stderr: &stderr,
            gate: &at_gate,
            report: &to_report,
            open_files: self.open_files,
            started_marker: &started_marker(&self.attempts_dir, &spec.attempt),
            identity,
            rules: &self.identities.rules,
            start_directory: &start_directory,
            program: &program,
            limits: &limits,
            before: &before,
            prolog: prolog.as_ref(),
            inputs: inputs.as_ref(),
        };
        let started_at = clock::wall_now();
        let pid = host(|| "make a process".to_owned(), fork(group_entry, &child))?;
        Ok(WaitingChild {
            process: Process {
                pid,
                // The child waits at its gate and is not reaped yet, so the pid is its own.
                start_ticks: process::stat(pid).map_or(0, |p| p.start_ticks),
                started_at,
                // The child has not entered it yet.
                workdir_refused: None,
            },
            gate: StartGate(gate),
            report: StartReport::new(report),
            streams,
        })
    }

    /// Directory of an attempt.
    pub fn attempt_dir(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string())
    }

    /// The inputs that an attempt gets into its own directory.
    fn inputs(&self, spec: &SpawnSpec) -> Option<StepInputs<'_>> {
        let file = spec.inputs.as_ref().filter(|_| spec.workdir.is_none())?;
        Some(StepInputs {
            file: PathBuf::from(file),
            agent_uid: self.reader_uid,
            helper: &self.helper_program,
            null: &self.null,
        })
    }

    /// The ends of an attempt's streams for its processes, and for the writer.
    fn streams(
        &self,
        dir: &Path,
        identity: &Identity,
    ) -> Result<([File; 2], AttemptStreams), SpawnError> {
        let made = AttemptStreams::make(dir, identity.uid, self.reader_uid);
        host(|| format!("make the streams in {}", dir.display()), made)
    }
}

/// Makes a directory, and changes its owner if `owner` is given.
fn make_dir(dir: &Path, mode: u32, owner: Option<&Identity>) -> Result<(), SpawnError> {
    let made = fs::DirBuilder::new().mode(PRIVATE).create(dir);
    let made = made.and_then(|()| {
        let made = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
            .open(dir)?;
        if let Some(owner) = owner.filter(|owner| !owner.is_own()) {
            fchown(&made, Some(owner.uid.as_raw()), Some(owner.gid.as_raw()))?;
        }
        // The mode is set again because of the umask.
        made.set_permissions(Permissions::from_mode(mode))
    });
    host(|| format!("make directory {}", dir.display()), made)
}

/// Kills a child that is not reaped yet, with the process group that it leads, so both numbers are its own. A
/// child that has no process group yet has no processes.
pub fn kill_child(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed());
    let _not_made_yet = killpg(pid, Signal::SIGKILL);
    let _has_ended = kill(pid, Signal::SIGKILL);
}

/// The marker file that an attempt's child makes after its gate. If a recorded attempt has none and its child
/// is gone, its program never ran.
pub fn started_marker(attempts_dir: &Path, attempt: &AttemptId) -> PathBuf {
    attempts_dir.join(attempt.to_string()).join("begun")
}

/// Makes the directories below an attempt's that belong to the step's user.
fn make_step_dirs(dir: &Path, identity: &Identity, needs_own: bool) -> Result<(), SpawnError> {
    // The agent reads only the time of a file in this directory.
    make_dir(&dir.join(STEP_DIR), TRAVERSABLE, Some(identity))?;
    match needs_own {
        true => make_dir(&dir.join(OWN_WORKDIR), PRIVATE, Some(identity)),
        false => Ok(()),
    }
}

/// Forks directly into the control group if the kernel allows it. A child with a prolog is forked outside of
/// it, because the step's limits and device filter must not apply to the admin's program.
fn fork(group_entry: &GroupEntry, child: &child::StepChild<'_>) -> io::Result<u32> {
    // A prolog runs outside of the step's groups.
    let clone_target = group_entry
        .clone_target()
        .filter(|_| child.prolog.is_none());
    fork_by(clone_target, |inside| child.run(inside))
}

/// Forks any child; `run` is told whether the child was forked into its group.
fn fork_with(group_entry: &GroupEntry, run: impl Fn(bool)) -> io::Result<u32> {
    fork_by(group_entry.clone_target(), run)
}

fn fork_by(clone_target: Option<BorrowedFd<'_>>, child: impl Fn(bool)) -> io::Result<u32> {
    let cloned_inside = clone_target.map(|group| sys::fork_in_group(group, || child(true)));
    match cloned_inside {
        Some(Ok(pid)) => Ok(pid),
        // A kernel before 5.7, or a seccomp filter. If the kernel lacks resources, the plain fork fails as
        // well.
        Some(Err(_)) | None => sys::fork_into(|| child(false)),
    }
}

fn pipe() -> Result<(PipeReader, PipeWriter), SpawnError> {
    host(|| "make a pipe".to_owned(), io::pipe())
}

fn nonblocking(report: &PipeReader) -> Result<(), SpawnError> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let set = fcntl(report, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    host(
        || "make a pipe".to_owned(),
        set.map(drop).map_err(Into::into),
    )
}

fn arguments(command: &[String]) -> Result<Vec<CString>, SpawnError> {
    if command.first().is_none_or(String::is_empty) {
        return Err(SpawnError::EmptyCommand);
    }
    command
        .iter()
        .enumerate()
        .map(|(n, argument)| c_string(argument.clone(), || format!("command[{n}]")))
        .collect()
}

fn absolute(path: &str) -> Result<PathBuf, SpawnError> {
    if path.contains('\0') {
        let field = "the working directory".to_owned();
        return Err(SpawnError::Nul { field });
    }
    if !path.starts_with('/') {
        let workdir = lookup::shown(path, 200);
        return Err(SpawnError::RelativeWorkdir { workdir });
    }
    Ok(PathBuf::from(path))
}

fn c_string(text: String, field: impl FnOnce() -> String) -> Result<CString, SpawnError> {
    CString::new(text).map_err(|_| SpawnError::Nul { field: field() })
}
