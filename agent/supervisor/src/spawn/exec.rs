//! Making a program that runs beside a step: in the step's groups, and so behind its fence and within its limits; as its
//! user; with the environment and in the directory of its main process. `table` decides whether one may, and ends it.
//!
//! Its streams are pipes with names, in a directory of its own that is the supervisor's. They are the agent's to open,
//! and nobody else's; the child opens them before it becomes the step's user, and waits there for the agent. So the
//! supervisor copies no bytes and waits for nobody.
//!
//! An agent that is in somebody else's hands gains nothing by it that it could not do by a step: the user, the groups
//! and the fence are those of an attempt that this supervisor has started and still leads, the environment and the
//! directory are read from the kernel and not from the agent, and of the names of files the agent chooses a number.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::resource::rlim_t;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, dup2_stderr, dup2_stdout, fchdir, mkfifo};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::attempt_dir::{EXEC_DIR_PREFIX, EXEC_STREAMS};
use sluice_common::exec::ExecId;
use sluice_common::supervision::Process;
use sluice_common::supervisor_config::StepRules;

use super::child::{self, STEP_FAILED, StepProgram};
use super::{
    SpawnError, Spawner, StartReport, TRAVERSABLE, arguments, confine, fork_by, host, make_dir,
    nonblocking, pipe,
};
use crate::identity::{Identity, StepOwner};
use crate::process;

/// What is to run, and beside whom.
#[derive(Debug)]
pub struct ExecSpec<'a> {
    /// Which.
    pub exec: &'a ExecId,
    /// Program and arguments.
    pub command: &'a [String],
    /// The main process of the attempt.
    pub main: Process,
    /// For whom the attempt runs.
    pub step_owner: &'a StepOwner,
    /// The user id that it has of its own.
    pub own: Option<Uid>,
}

impl Spawner {
    /// Makes a child that becomes the program as soon as the agent has opened its streams; its number, and how it will
    /// go.
    ///
    /// # Errors
    /// Where the command is impossible or the host has no room.
    pub fn fork_exec(
        &self,
        wanted: &ExecSpec<'_>,
        group_entry: &GroupEntry,
    ) -> Result<(u32, StartReport), SpawnError> {
        let dir = self.attempt_dir(&wanted.exec.attempt);
        let identity = self.identity(wanted.step_owner, wanted.own, &dir)?;
        let argv = arguments(wanted.command)?;
        let (dir, stdin) = self.make_exec_dir(wanted.exec)?;
        let (report, to_report) = pipe()?;
        nonblocking(&report)?;
        let child = ExecChild {
            group_entry,
            stdin: &stdin,
            null: &self.null,
            report: &to_report,
            open_files: self.open_files,
            streams: EXEC_STREAMS.map(|name| dir.join(name)),
            main: wanted.main,
            identity: &identity,
            rules: &self.identities.rules,
            argv,
        };
        let forked = fork_by(group_entry.clone_target(), |inside| child.run(inside));
        let pid = host(|| "make a process".to_owned(), forked)?;
        let failure = None;
        Ok((
            pid,
            StartReport {
                pipe: report,
                failure,
            },
        ))
    }

    /// Where a program beside an attempt has its streams.
    pub fn exec_dir(&self, exec: &ExecId) -> PathBuf {
        let name = format!("{EXEC_DIR_PREFIX}{}", exec.number);
        self.attempt_dir(&exec.attempt).join(name)
    }

    /// Anew: an earlier supervisor may have died before it removed one of the same number. With it the program's stdin,
    /// open before the agent can open it: what the agent writes and closes at once is not lost.
    fn make_exec_dir(&self, exec: &ExecId) -> Result<(PathBuf, File), SpawnError> {
        let dir = self.exec_dir(exec);
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            removed => host(|| format!("clear {}", dir.display()), removed)?,
        }
        make_dir(&dir, TRAVERSABLE, None)?;
        for name in EXEC_STREAMS {
            let path = dir.join(name);
            let made = mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io::Error::from);
            host(|| format!("make {}", path.display()), made)?;
        }
        let path = dir.join(EXEC_STREAMS[0]);
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let stdin = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path);
        let stdin = host(|| format!("open {}", path.display()), stdin)?;
        for path in EXEC_STREAMS.map(|name| dir.join(name)) {
            let given = match self.reader_uid {
                Some(uid) => lchown(&path, Some(uid), None),
                None => Ok(()),
            };
            host(|| format!("give {} to the agent", path.display()), given)?;
        }
        Ok((dir, stdin))
    }
}

/// What the child is born with.
struct ExecChild<'a> {
    group_entry: &'a GroupEntry,
    stdin: &'a File,
    null: &'a File,
    report: &'a PipeWriter,
    open_files: (rlim_t, rlim_t),
    streams: [PathBuf; 3],
    main: Process,
    identity: &'a Identity,
    rules: &'a StepRules,
    argv: Vec<CString>,
}

impl ExecChild<'_> {
    /// Becomes the program, or says why not. Comes back only to exit.
    fn run(&self, was_cloned_inside: bool) {
        let Err(sentence) = self.become_program(was_cloned_inside) else {
            return;
        };
        child::report_failure(self.report, STEP_FAILED, &sentence);
    }

    fn become_program(&self, was_cloned_inside: bool) -> Result<(), String> {
        self.group_entry.enter(was_cloned_inside)?;
        let keep = [self.report.as_raw_fd()];
        let streams = [self.stdin, self.null, self.null].map(AsFd::as_fd);
        child::detach(streams, &keep, self.open_files)?;
        let (envp, cwd) = surroundings(self.main)?;
        self.open_streams()?;
        confine::become_user(self.identity, self.rules)?;
        fchdir(cwd.as_fd()).map_err(|e| {
            let why = e.desc();
            format!("the directory that the step works in cannot be entered: {why}")
        })?;
        let path = envp.iter().find_map(|line| {
            let path = line.to_bytes().strip_prefix(b"PATH=")?;
            Some(String::from_utf8_lossy(path).into_owned())
        });
        let argv = self.argv.clone();
        StepProgram { argv, envp, path }.start()
    }

    /// Waits at those that it writes to until the agent has opened them. Reading waits from here on.
    fn open_streams(&self) -> Result<(), String> {
        let [_, stdout, stderr] = &self.streams;
        let failed = |path: &Path, why: String| {
            let path = path.display();
            format!("the host could not use {path} as a stream: {why}")
        };
        let opened = |path: &Path| {
            let opened = OpenOptions::new().write(true).open(path);
            opened.map_err(|e| failed(path, e.to_string()))
        };
        let redirected = |path: &Path, done: Result<(), Errno>| {
            done.map_err(|e| failed(path, e.desc().to_owned()))
        };
        redirected(stdout, dup2_stdout(opened(stdout)?))?;
        redirected(stderr, dup2_stderr(opened(stderr)?))?;
        fcntl(io::stdin(), FcntlArg::F_SETFL(OFlag::empty()))
            .map(drop)
            .map_err(|e| format!("the host could not use stdin: {}", e.desc()))
    }
}

/// The environment and the directory of a process, whose own start time is looked at last: what was read before is of
/// it, and not of another that was given its number.
fn surroundings(main: Process) -> Result<(Vec<CString>, OwnedFd), String> {
    let pid = main.pid;
    let environ = fs::read(format!("/proc/{pid}/environ"));
    let cwd = open(
        format!("/proc/{pid}/cwd").as_str(),
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    );
    let is_it = process::stat(pid).is_some_and(|p| p.start_ticks == main.start_ticks);
    let (Ok(environ), Ok(cwd), true) = (environ, cwd, is_it) else {
        return Err(format!(
            "what the step's main process, {pid}, has around it cannot be read: it has ended"
        ));
    };
    let lines = environ.split(|b| *b == 0).filter(|line| !line.is_empty());
    // No line holds a NUL: they were split there.
    let envp = lines.filter_map(|line| CString::new(line).ok()).collect();
    Ok((envp, cwd))
}
