//! Starts a program beside a step (`sluice exec`): in the step's groups, so within its limits and device
//! filter; as its user; with the environment and directory of its main process. `table` decides whether it
//! may start, and ends it.
//!
//! Its streams are named pipes in a directory that belongs to the supervisor and that only the agent may
//! open. The child opens them before it switches to the step's user, and waits there for the agent. So the
//! supervisor copies no bytes and never waits.
//!
//! A compromised agent gains nothing that it could not do by a step: user, groups and device filter are those
//! of an attempt that this supervisor started and still runs; environment and directory are read from the
//! kernel; and of the file names the agent chooses only a number.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::pty::Winsize;
use nix::sys::resource::rlim_t;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, dup2_stderr, dup2_stdout, fchdir, mkfifo};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::attempt_dir::{CONTAINER_FILE, EXEC_DIR_PREFIX, EXEC_STREAMS};
use sluice_common::exec::{ExecId, ExecProgram, TerminalRequest};
use sluice_common::helper::{COPY_FILES, ENTER_CONTAINER, START_REPORT_VARIABLE};
use sluice_common::supervision::Process;
use sluice_common::supervisor_config::StepRules;

use super::child::{self, StepProgram};
use super::start_report::STEP_FAILED;
use super::streams::{DEFAULT_SIZE, InputSource, ProgramStart, StreamSetup};
use super::wrapper::shown;
use super::{
    SpawnError, Spawner, StartReport, TRAVERSABLE, arguments, confine, fork_by, host, make_dir,
    nonblocking, pipe,
};
use crate::helper_program::HelperProgram;
use crate::identity::{Identity, StepOwner};
use crate::process;

/// A program to run, and the step that it runs beside.
#[derive(Debug)]
pub struct ExecSpec<'a> {
    pub exec: &'a ExecId,
    pub program: &'a ExecProgram,
    /// The terminal that the program gets, if any.
    pub terminal: Option<&'a TerminalRequest>,
    /// Main process of the attempt.
    pub main: Process,
    pub step_owner: &'a StepOwner,
    /// The attempt's own user id, if it has one.
    pub own: Option<Uid>,
}

impl Spawner {
    /// Forks a child that becomes the program when the agent has opened its streams. Returns its pid and
    /// start report.
    ///
    /// # Errors
    /// If the command is invalid or the host lacks resources.
    pub fn fork_exec(
        &self,
        wanted: &ExecSpec<'_>,
        group_entry: &GroupEntry,
    ) -> Result<(u32, StartReport), SpawnError> {
        let dir = self.attempt_dir(&wanted.exec.attempt);
        let identity = self.identity(wanted.step_owner, wanted.own, &dir)?;
        let has_container = dir.join(CONTAINER_FILE).exists();
        let (argv, terminal) = match wanted.program {
            ExecProgram::Command { command, .. } | ExecProgram::Probe { command } => {
                // Invalid commands are rejected before anything starts.
                arguments(command)?;
                let own = [shown(&dir), wanted.main.pid.to_string()];
                let command = match has_container {
                    false => command.clone(),
                    true => self.by_helper(ENTER_CONTAINER, &own, command),
                };
                (arguments(&command)?, wanted.terminal)
            }
            ExecProgram::CopyFiles => (copier_arguments()?, None),
            // The table starts nothing for a connection, so this is an empty command.
            ExecProgram::Connect { .. } => (arguments(&[])?, None),
        };
        let (dir, stdin) = self.make_exec_dir(wanted.exec)?;
        let source = match terminal {
            Some(it) => {
                let size = Winsize {
                    ws_row: it.rows,
                    ws_col: it.columns,
                    ..DEFAULT_SIZE
                };
                InputSource::Terminal(self.input_socket(&dir)?, size)
            }
            None => InputSource::Given,
        };
        let (report, to_report) = pipe()?;
        nonblocking(&report)?;
        let child = ExecChild {
            group_entry,
            stdin: &stdin,
            setup: StreamSetup {
                source: &source,
                helper: &self.helper_program,
                null: &self.null,
                files: None,
            },
            term: terminal.map(|it| it.term.as_str()),
            null: &self.null,
            report: &to_report,
            open_files: self.open_files,
            streams: EXEC_STREAMS.map(|name| dir.join(name)),
            main: wanted.main,
            identity: &identity,
            rules: &self.identities.rules,
            argv,
            has_container,
            copies_files: *wanted.program == ExecProgram::CopyFiles,
        };
        let forked = fork_by(group_entry.clone_target(), |inside| child.run(inside));
        let pid = host(|| "make a process".to_owned(), forked)?;
        Ok((pid, StartReport::new(report)))
    }

    /// Directory with the streams of a program beside an attempt.
    pub fn exec_dir(&self, exec: &ExecId) -> PathBuf {
        let name = format!("{EXEC_DIR_PREFIX}{}", exec.number);
        self.attempt_dir(&exec.attempt).join(name)
    }

    /// Removes a directory of the same number that an earlier supervisor left. Opens stdin before the agent
    /// can, so that input which the agent writes and closes at once is not lost.
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

/// State of the child at the fork.
struct ExecChild<'a> {
    group_entry: &'a GroupEntry,
    stdin: &'a File,
    setup: StreamSetup<'a>,
    /// Value of `TERM`, if it gets a terminal.
    term: Option<&'a str>,
    null: &'a File,
    report: &'a PipeWriter,
    open_files: (rlim_t, rlim_t),
    streams: [PathBuf; 3],
    main: Process,
    identity: &'a Identity,
    rules: &'a StepRules,
    argv: Vec<CString>,
    has_container: bool,
    /// Whether the program is the helper that copies files.
    copies_files: bool,
}

impl ExecChild<'_> {
    /// Becomes the program, or reports why not. Returns only to exit.
    fn run(&self, was_cloned_inside: bool) {
        let Err(sentence) = self.become_program(was_cloned_inside) else {
            return;
        };
        child::report_failure(self.report, STEP_FAILED, &sentence);
    }

    fn become_program(&self, was_cloned_inside: bool) -> Result<(), String> {
        self.group_entry.enter(was_cloned_inside)?;
        let helper = self.copies_files.then(|| self.setup.helper.as_raw_fd());
        let keep = [self.report.as_raw_fd()]
            .into_iter()
            .chain(self.setup.keeps())
            .chain(helper);
        let keep: Vec<RawFd> = keep.collect();
        let streams = [self.stdin, self.null, self.null].map(AsFd::as_fd);
        child::detach(streams, &keep, self.open_files)?;
        let (mut envp, cwd) = surroundings(self.main)?;
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
        if let Some(term) = self
            .term
            .and_then(|it| CString::new(format!("TERM={it}")).ok())
        {
            envp.retain(|line| !line.to_bytes().starts_with(b"TERM="));
            envp.push(term);
        }
        let argv = self.argv.clone();
        // The step's own start is over.
        envp.retain(|line| {
            let value = line
                .to_bytes()
                .strip_prefix(START_REPORT_VARIABLE.as_bytes());
            !value.is_some_and(|value| value.starts_with(b"="))
        });
        let program = StepProgram {
            argv,
            envp,
            path,
            reports: self.has_container,
        };
        self.setup.start(&ProgramStart {
            envp: &program.envp,
            in_own_directory: false,
            execute: &|| match self.copies_files {
                true => self.become_helper(&program),
                false => program.start_with(self.report),
            },
            report: &|why| child::report_failure(self.report, STEP_FAILED, why),
        })
    }

    /// Becomes the helper, in the environment of the step. Returns only on failure.
    fn become_helper(&self, program: &StepProgram) -> Result<(), String> {
        let envp: Vec<_> = program.envp.iter().map(CString::as_c_str).collect();
        self.setup.helper.execute(&program.argv, &envp);
        Err("the host could not run sluice-helper".to_owned())
    }

    /// Waits until the agent has opened the output pipes. Reading input waits only from then on.
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

/// The helper's command line for copying files.
fn copier_arguments() -> Result<Vec<CString>, SpawnError> {
    host(
        || "name the helper".to_owned(),
        HelperProgram::arguments([COPY_FILES]),
    )
}

/// Environment and directory of a process. Its start time is checked last, so that both belong to this
/// process and not to a later one with the same pid.
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
            "the environment of the step's main process, {pid}, cannot be read: it has ended"
        ));
    };
    let lines = environ.split(|b| *b == 0).filter(|line| !line.is_empty());
    // The lines were split at NUL bytes, so they contain none.
    let envp = lines.filter_map(|line| CString::new(line).ok()).collect();
    Ok((envp, cwd))
}
