//! Making a process of an attempt: the parent's half. The child's is in [`child`], the search for the program in
//! [`lookup`]; a program that runs beside a step is made in [`beside`].
//!
//! Who the step runs as is decided by `identity`; [`confine`] becomes it.
//!
//! A fork and a gate: the child waits at the gate until its record is on disk, and exits if the supervisor dies before.
//! So no program ever runs unrecorded. Everything that touches the step's own files (its working directory, its
//! program, the directories of its PATH) is done by the child, because a network file system that hangs must hang the
//! step and not the supervisor. The child reports what went wrong over a pipe that `exec` closes.
//!
//! It forks rather than `posix_spawn`s because of the gate; the supervisor's heap is small, so a fork is cheap.

pub mod after_hooks;
mod child;
mod confine;
mod environment;
pub mod exec;
pub mod helper;
pub(crate) mod lookup;
mod run_as;
pub mod step_hooks;
pub mod wrapper;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, Uid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::attempt_dir::{OWN_WORKDIR, STEP_DIR};
use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_SENTENCE_BYTES;
use sluice_common::supervision::{Exit, Process, SpawnSpec};
use sluice_common::supervisor_config::HostHooks;

use crate::helper_program::HelperProgram;
use crate::hooks;
use crate::hooks::run::HookCommand;
use crate::identity::{Identities, Identity, NoUser, StepOwner};
use crate::output::cap;
use crate::output::writer::AttemptStreams;
use crate::seal::SubmitterRejection;
use crate::{clock, handover, process, sys};
use environment::environment;

/// Why no process was made. What the child finds is not here: it arrives as a [`StartReport`].
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is nothing to run.
    #[error("the command is empty: name a program")]
    EmptyCommand,
    /// The kernel's strings end at a NUL.
    #[error("{field} holds a NUL byte, which no program can be given")]
    Nul {
        /// Where.
        field: String,
    },
    /// No variable can be called that.
    #[error("`{name}` cannot be the name of an environment variable: it is empty or holds `=`")]
    VariableName {
        /// What it was called.
        name: String,
    },
    /// The wrapper's file of variables has one a line.
    #[error(
        "environment variable `{name}` holds a line break, which the pool's wrapper cannot hand on by its file of variables: \
         put the value into a file that the step reads"
    )]
    LineBreak {
        /// What it was called.
        name: String,
    },
    /// The working directory depends on where the supervisor stands.
    #[error("working directory `{workdir}` is not an absolute path: begin it with `/`")]
    RelativeWorkdir {
        /// What was written.
        workdir: String,
    },
    /// Nobody on this host may run it.
    #[error(transparent)]
    NoUser(#[from] NoUser),
    /// Nobody on this host may run a program beside or after it.
    #[error("{}", .0.of_program())]
    NoProgram(NoUser),
    /// Nobody vouches for the user who is said to have submitted it.
    #[error(transparent)]
    Submitter(#[from] SubmitterRejection),
    /// It is to have processors of its own, and this host keeps nobody to any, or it names none.
    #[error(
        "it is to have processors of its own (`cpu_mode: pinned`), which this host cannot give: it has no cpuset that the \
         supervisor may use; take a pool that requires `cpuset` of its hosts"
    )]
    NotPinned,
    /// The host did not give what a process needs.
    #[error("the host could not {action}: {why}")]
    Host {
        /// What was tried.
        action: String,
        /// Why not.
        why: io::Error,
    },
}

impl SpawnError {
    /// How the attempt ended by it: whether the step asks for what cannot be, or the host lacks what it should have.
    pub fn into_exit(self) -> Exit {
        let sentence = self.to_string();
        match self {
            SpawnError::EmptyCommand
            | SpawnError::Nul { .. }
            | SpawnError::VariableName { .. }
            | SpawnError::LineBreak { .. }
            // The host serves others as it should: not to be closed for the sake of one whom it does not know.
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

/// The child's word on how it went. Its other end closes when the child becomes the program.
#[derive(Debug)]
pub struct StartReport {
    pipe: PipeReader,
    failure: Option<Exit>,
}

/// What a [`StartReport`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartStatus {
    /// Nothing yet.
    Pending,
    /// The child is the program now, or has died on the way without a word.
    Started,
    /// It could not become the program and is about to exit: for this it did.
    Failed(Exit),
}

impl StartReport {
    /// Reads it, without waiting.
    pub fn read(&mut self) -> StartStatus {
        if let Some(failure) = &self.failure {
            return StartStatus::Failed(failure.clone());
        }
        let mut told = [0; 1 + MAX_SENTENCE_BYTES];
        // The child writes whose fault it is and its sentence at once, and a pipe keeps so few bytes together.
        let failure = match self.pipe.read(&mut told) {
            Ok(0) => return StartStatus::Started,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return StartStatus::Pending,
            Ok(len) => {
                let sentence = String::from_utf8_lossy(&told[1..len]).into_owned();
                match told[0] {
                    child::HOST_FAILED => Exit::HostFailed(sentence),
                    child::PROLOG_FAILED => Exit::PrologFailed(sentence),
                    _ => Exit::StartFailed(sentence),
                }
            }
            Err(e) => Exit::HostFailed(format!("the start could not be watched: {e}")),
        };
        self.failure = Some(failure.clone());
        StartStatus::Failed(failure)
    }

    /// As it is left to the next program in this process.
    pub fn hand_over(&self) -> handover::HandedReport {
        handover::HandedReport {
            pipe: handover::number(&self.pipe),
            failure: self.failure.clone(),
        }
    }

    /// As it was left.
    ///
    /// # Errors
    /// Where its pipe is not open.
    pub fn take_over(left: handover::HandedReport) -> io::Result<Self> {
        Ok(Self {
            pipe: PipeReader::from(sys::adopt(left.pipe)?),
            failure: left.failure,
        })
    }

    /// Whether there is anything left to wait for.
    pub fn is_awaited(&self) -> bool {
        self.failure.is_none()
    }
}

impl AsFd for StartReport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// What the child waits at. Dropped unopened, the child exits.
#[derive(Debug)]
#[must_use = "a child whose gate is dropped exits"]
pub struct StartGate(PipeWriter);

impl StartGate {
    /// Lets the child go on.
    pub fn open(mut self) {
        // A child that was killed at the gate is seen when it is reaped.
        let _ = self.0.write_all(b"!");
    }
}

/// A child that waits at its gate.
#[derive(Debug)]
pub struct WaitingChild {
    /// Who it is.
    pub process: Process,
    /// What it waits at.
    pub gate: StartGate,
    /// How it will go.
    pub report: StartReport,
    /// What it gives.
    pub streams: AttemptStreams,
}

/// What every spawn needs.
#[derive(Debug)]
pub struct Spawner {
    attempts_dir: PathBuf,
    null: File,
    reader_uid: Option<u32>,
    identities: Identities,
    hooks: HostHooks,
    open_files: (rlim_t, rlim_t),
    /// Where this program is, to be run behind wrappers.
    own_program: PathBuf,
    helper_program: HelperProgram,
}

/// Whose an attempt's directory is beside its own: everybody may pass through where its user is not the supervisor's.
const TRAVERSABLE: u32 = 0o711;
const PRIVATE: u32 = 0o700;

impl Spawner {
    /// Attempts get their directories below `attempts_dir`; where `reader_uid` is given, their output is that user's
    /// to read. Raises this process's own limit of open files as far as it goes.
    ///
    /// # Errors
    /// Where `/dev/null` cannot be opened or the limits cannot be read.
    pub fn new(
        attempts_dir: PathBuf,
        reader_uid: Option<u32>,
        identities: Identities,
        hooks: HostHooks,
        helper_program: HelperProgram,
    ) -> io::Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        // Each attempt that is being started or was taken over takes a descriptor. Where this is refused, the old
        // limit holds.
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

    /// Puts this process's own limit of open files back, or up again. An `exec` hands it on, and the next program would
    /// give its steps what this one raised for itself.
    pub fn lower_own_limit(&self, lower: bool) {
        let (soft, hard) = self.open_files;
        // What is open stays open. Where it is refused, the old limit holds.
        let _ = setrlimit(
            Resource::RLIMIT_NOFILE,
            if lower { soft } else { hard },
            hard,
        );
    }

    /// Makes a child for an attempt, in its groups; it waits at its gate.
    ///
    /// # Errors
    /// Where the specification is impossible or the host has no room.
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
        let workdir = workdir(spec.workdir.as_deref(), &dir)?;
        self.make_own(&dir, identity)?;
        // The agent looks at the time of a file in it, and at nothing else.
        make_dir(&dir.join(STEP_DIR), TRAVERSABLE, Some(identity))?;
        // It is also the home of whoever has none in the user database.
        if spec.workdir.is_none() || own.is_some() {
            make_dir(&dir.join(OWN_WORKDIR), PRIVATE, Some(identity))?;
        }
        self.write_env_file(spec, identity, &dir)?;
        host(
            || format!("make the marks of output in {}", dir.display()),
            cap::make_marks(&dir, self.reader_uid),
        )?;
        let ([stdout, stderr], streams) = self.streams(&dir, identity)?;
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
        let child = child::StepChild {
            group_entry,
            stdin: &self.null,
            stdout: &stdout,
            stderr: &stderr,
            gate: &at_gate,
            report: &to_report,
            open_files: self.open_files,
            started_marker: &started_marker(&self.attempts_dir, &spec.attempt),
            identity,
            rules: &self.identities.rules,
            workdir: &workdir,
            own_workdir: spec.workdir.is_none(),
            program: &program,
            limits: &limits,
            before: &before,
            prolog: prolog.as_ref(),
        };
        let started_at = clock::wall_now();
        let pid = host(|| "make a process".to_owned(), fork(group_entry, &child))?;
        Ok(WaitingChild {
            process: Process {
                pid,
                // It cannot be gone: it waits, and as our child it keeps its number until it is reaped.
                start_ticks: process::stat(pid).map_or(0, |p| p.start_ticks),
                started_at,
            },
            gate: StartGate(gate),
            report: StartReport {
                pipe: report,
                failure: None,
            },
            streams,
        })
    }

    /// Where an attempt has its files.
    pub fn attempt_dir(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string())
    }

    /// The ends of an attempt's streams that its processes have, and the writer's.
    fn streams(
        &self,
        dir: &Path,
        identity: &Identity,
    ) -> Result<([File; 2], AttemptStreams), SpawnError> {
        let made = AttemptStreams::make(dir, identity.uid, self.reader_uid);
        host(|| format!("make the streams in {}", dir.display()), made)
    }
}

/// Makes a directory, and gives it away where `owner` says to whom.
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
        // Said once more, because the umask has had its say.
        made.set_permissions(Permissions::from_mode(mode))
    });
    host(|| format!("make directory {}", dir.display()), made)
}

/// Kills a child that was not reaped, with the group that it leads: so both numbers are its own. It may not have made
/// its group yet, and then has nobody with it.
pub fn kill_child(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed());
    let _not_made_yet = killpg(pid, Signal::SIGKILL);
    let _has_ended = kill(pid, Signal::SIGKILL);
}

/// The sign that an attempt's child has passed its gate. Where a recorded attempt has none and its child is gone, its
/// program never ran.
pub fn started_marker(attempts_dir: &Path, attempt: &AttemptId) -> PathBuf {
    attempts_dir.join(attempt.to_string()).join("begun")
}

/// In its group from birth, where the kernel and whatever confines this program allow that. One that has a prolog to run
/// is born outside: the admin's program is not the step's, neither its limits nor its fence are for it.
fn fork(group_entry: &GroupEntry, child: &child::StepChild<'_>) -> io::Result<u32> {
    // A prolog is the host's, and runs outside.
    let clone_target = group_entry
        .clone_target()
        .filter(|_| child.prolog.is_none());
    fork_by(clone_target, |inside| child.run(inside))
}

/// The same of any child, which is told whether it was born in its group.
fn fork_with(group_entry: &GroupEntry, run: impl Fn(bool)) -> io::Result<u32> {
    fork_by(group_entry.clone_target(), run)
}

fn fork_by(clone_target: Option<BorrowedFd<'_>>, child: impl Fn(bool)) -> io::Result<u32> {
    let cloned_inside = clone_target.map(|group| sys::fork_in_group(group, || child(true)));
    match cloned_inside {
        Some(Ok(pid)) => Ok(pid),
        // A kernel before 5.7, or a filter of calls. One that knows the call and has no room for a process says so to
        // the plain fork as well.
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

fn workdir(workdir: Option<&str>, dir: &Path) -> Result<PathBuf, SpawnError> {
    let Some(workdir) = workdir else {
        return Ok(dir.join(OWN_WORKDIR));
    };
    if workdir.contains('\0') {
        let field = "the working directory".to_owned();
        return Err(SpawnError::Nul { field });
    }
    if !workdir.starts_with('/') {
        let workdir = lookup::shown(workdir, 200);
        return Err(SpawnError::RelativeWorkdir { workdir });
    }
    Ok(PathBuf::from(workdir))
}

fn c_string(text: String, field: impl FnOnce() -> String) -> Result<CString, SpawnError> {
    CString::new(text).map_err(|_| SpawnError::Nul { field: field() })
}
