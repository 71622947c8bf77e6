//! Starts a process of an attempt: the child's half, between `fork` and `exec`. The parent learns of errors
//! only by the start report.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, execve, setsid};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::helper::START_REPORT_VARIABLE;
use sluice_common::limit::MAX_SENTENCE_BYTES;
use sluice_common::supervisor_config::StepRules;
use sluice_common::template::launch::ProcessLimit;

use super::start_directory::StartDirectory;
use super::start_report::{DIRECTORY_REFUSED, HOST_FAILED, PROLOG_FAILED, STEP_FAILED};
use super::step_hooks::{self, StepHook};
use super::step_inputs::StepInputs;
use super::streams::{ProgramStart, StreamSetup};
use super::{confine, lookup};
use crate::hooks::run::HookCommand;
use crate::identity::Identity;
use crate::{oom, sys};

/// The program to execute.
pub(super) struct StepProgram {
    /// Program and arguments; not empty.
    pub(super) argv: Vec<CString>,
    /// Lines of `NAME=value`.
    pub(super) envp: Vec<CString>,
    /// The step's own PATH.
    pub(super) path: Option<String>,
    /// Whether it is the helper that starts a container, and goes on with the start report.
    pub(super) reports: bool,
}

/// State of the child at the fork.
pub(super) struct StepChild<'a> {
    pub(super) group_entry: &'a GroupEntry,
    pub(super) stdin: &'a File,
    /// The program's own streams, connected last.
    pub(super) setup: StreamSetup<'a>,
    pub(super) stdout: &'a File,
    pub(super) stderr: &'a File,
    pub(super) gate: &'a PipeReader,
    pub(super) report: &'a PipeWriter,
    pub(super) open_files: (rlim_t, rlim_t),
    /// Marker file that is made when the gate has opened. By it the next supervisor tells a child that was
    /// about to become the program from one that never will.
    pub(super) started_marker: &'a Path,
    /// The user to switch to before anything of the step's own is touched.
    pub(super) identity: &'a Identity,
    pub(super) rules: &'a StepRules,
    pub(super) start_directory: &'a StartDirectory,
    pub(super) program: &'a StepProgram,
    pub(super) limits: &'a [(Resource, &'a ProcessLimit)],
    /// Templates' hooks before the program, run as the step's user.
    pub(super) before: &'a [StepHook<'a>],
    /// The admin's prolog, run before the child switches user and enters the step's groups.
    pub(super) prolog: Option<&'a HookCommand<'a>>,
    /// Inputs for the step's own directory, unpacked before the templates' hooks run.
    pub(super) inputs: Option<&'a StepInputs<'a>>,
}

impl StepChild<'_> {
    /// Becomes the program, or reports why not. Returns only to exit.
    pub(super) fn run(&self, was_cloned_inside: bool) {
        let enter = || self.group_entry.enter(was_cloned_inside);
        // Without a prolog, not even the waiting happens outside of the step's groups.
        let entered = self.prolog.map_or_else(enter, |_| Ok(()));
        let prepared = entered.and_then(|()| self.prepare());
        let by_host = |sentence| (HOST_FAILED, sentence);
        let packed = prepared
            .map_err(by_host)
            .and_then(|()| self.inputs.map(StepInputs::open).transpose());
        let mut gate = self.gate;
        // End of file means that the supervisor died or could not write the record.
        if !matches!(gate.read(&mut [0]), Ok(1)) {
            return;
        }
        let begun = packed.and_then(|packed| self.begin().map(|()| packed).map_err(by_host));
        let prepared = begun.and_then(|packed| {
            let done = self.run_prolog().map_err(|why| (PROLOG_FAILED, why));
            done.map(|()| packed)
        });
        let enter = || self.prolog.map_or(Ok(()), |_| enter());
        let confined = || {
            enter()
                .and_then(|()| confine::become_user(self.identity, self.rules))
                .and_then(|()| self.enter_own())
                .and_then(|refused| step_hooks::lower(self.limits).map(|()| refused))
                .map_err(by_host)
        };
        let program = |refused, packed: Option<File>| {
            self.start_directory
                .enter_named(self.rules)
                .and_then(|()| self.unpack(packed))
                .and_then(|()| step_hooks::run(self.before))
                .and_then(|()| self.start_program(refused))
                .map_err(|why| (STEP_FAILED, self.start_directory.explain(&why, refused)))
        };
        let started =
            prepared.and_then(|packed| confined().and_then(|refused| program(refused, packed)));
        let Err((fault, sentence)) = started else {
            return;
        };
        report_failure(self.report, fault, &sentence);
    }

    fn prepare(&self) -> Result<(), String> {
        let keep = [self.gate.as_raw_fd(), self.report.as_raw_fd()];
        let of_inputs = self
            .inputs
            .map(|it| [it.helper.as_raw_fd(), it.null.as_raw_fd()]);
        let keep = keep.into_iter().chain(self.setup.keeps());
        let keep: Vec<RawFd> = keep.chain(of_inputs.into_iter().flatten()).collect();
        let streams = [self.stdin, self.stdout, self.stderr].map(AsFd::as_fd);
        detach(streams, &keep, self.open_files)
    }

    /// A step that is stopped during its prolog ends after the prolog: the prolog gets the signal too, and
    /// may have to clean up.
    fn run_prolog(&self) -> Result<(), String> {
        let Some(prolog) = self.prolog else {
            return Ok(());
        };
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTERM);
        let failed = |e: Errno| format!("its signals could not be held: {}", e.desc());
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), None).map_err(failed)?;
        let ended = prolog.run_to_end();
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&stop), None).map_err(failed)?;
        ended
    }

    fn begin(&self) -> Result<(), String> {
        let made = File::create(self.started_marker);
        made.map(drop).map_err(|e| {
            format!(
                "the host could not make {}: {e}",
                self.started_marker.display()
            )
        })
    }

    fn unpack(&self, packed: Option<File>) -> Result<(), String> {
        match (self.inputs, packed) {
            (Some(inputs), Some(packed)) => inputs.unpack(&packed),
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn start_program(&self, refused: Option<DirectoryRefusal>) -> Result<(), String> {
        self.setup.start(&ProgramStart {
            envp: &self.program.envp,
            in_own_directory: self.start_directory.is_own(refused),
            execute: &|| self.program.start_with(self.report),
            report: &|why| {
                let why = self.start_directory.explain(why, refused);
                report_failure(self.report, STEP_FAILED, &why);
            },
        })
    }

    /// Enters the directory that the step prefers, or its own; reports the reason if it is not the preferred one.
    fn enter_own(&self) -> Result<Option<DirectoryRefusal>, String> {
        let refused = self.start_directory.enter_own(self.rules)?;
        if let Some(why) = refused {
            // Fails if the supervisor has died meanwhile.
            let _ = (&mut &*self.report).write_all(&[DIRECTORY_REFUSED, why.code()]);
        }
        Ok(refused)
    }
}

impl StepProgram {
    /// Executes the program, and leaves it the report if it goes on with it. Returns only on failure.
    pub(super) fn start_with(&self, report: &PipeWriter) -> Result<(), String> {
        if !self.reports {
            return self.start();
        }
        let failed = |why: &str| format!("the host could not pass on the start report: {why}");
        fcntl(report, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| failed(e.desc()))?;
        let number = report.as_raw_fd();
        let line = CString::new(format!("{START_REPORT_VARIABLE}={number}"));
        let line = line.map_err(|e| failed(&e.to_string()))?;
        let envp: Vec<CString> = self.envp.iter().cloned().chain([line]).collect();
        self.execute(&envp)
    }

    /// Executes the program in this process. Returns only on failure.
    pub(super) fn start(&self) -> Result<(), String> {
        self.execute(&self.envp)
    }

    fn execute(&self, envp: &[CString]) -> Result<(), String> {
        let Self { argv, path, .. } = self;
        let name = argv[0].to_string_lossy();
        let found = lookup::find(&name, path.as_deref()).map_err(|e| e.to_string())?;
        let Err(e) = execve(found.as_c_str(), argv, envp);
        let bytes: usize = argv.iter().chain(envp).map(|c| CStr::count_bytes(c)).sum();
        Err(lookup::explain_exec(
            &name,
            &found.to_string_lossy(),
            bytes,
            e,
        ))
    }
}

/// Reports why a child does not become its program.
pub(super) fn report_failure(mut report: &PipeWriter, fault: u8, sentence: &str) {
    let mut told = vec![fault];
    told.extend(lookup::cut(sentence, MAX_SENTENCE_BYTES).as_bytes());
    // Fails if the supervisor has died meanwhile.
    let _ = report.write_all(&told);
}

/// Drops the supervisor's state, first of all its sockets and the gate's other end: this process may block
/// for long, and must not appear to be the supervisor.
pub(super) fn detach(
    [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
    keep: &[RawFd],
    (soft, hard): (rlim_t, rlim_t),
) -> Result<(), String> {
    let failed = |what: &str, e: Errno| format!("the host could not {what}: {}", e.desc());
    dup2_stdin(stdin).map_err(|e| failed("redirect stdin", e))?;
    dup2_stdout(stdout).map_err(|e| failed("redirect stdout", e))?;
    dup2_stderr(stderr).map_err(|e| failed("redirect stderr", e))?;
    sys::close_all_but(keep).map_err(|e| format!("the host could not close descriptors: {e}"))?;
    setsid().map_err(|e| failed("make a session", e))?;
    oom::give_up().map_err(|e| format!("the host could not set oom_score_adj: {e}"))?;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)
        .map_err(|e| failed("set the limit of open files", e))?;
    sys::default_signals();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .map_err(|e| failed("unblock signals", e))
}
