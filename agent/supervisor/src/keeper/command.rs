//! `sluice-supervisor keep`: the command line of keepers, and their loops.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lexopt::prelude::{Long, Short, Value};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::setsid;
use sluice_common::id::BootId;
use sluice_common::limit::KEEPER_PERIOD;
use sluice_log::{Filter, FilterError, Format, FormatError, LogError};
use tracing::{error, info, warn};

use super::Keeper;
use super::group_roots::make_directory;
use super::heartbeat::{Heartbeat, KeeperKind};
use crate::atomic_file::FileError;
use crate::notify::InitSystem;
use crate::process::{self, BootIdError};
use crate::state_dir::{self, StateDir, StateDirError};
use crate::{clock, oom, sys};

/// First argument of the program if it is a keeper.
pub const MODE: &str = "keep";

/// Flag of a keeper that a supervisor has started: it exits by itself when it has nothing to do.
pub const LEAVE: &str = "leave";

const HELP: &str = "\
Stops steps whose lease has expired if the supervisor of this host does not.

Usage: sluice-supervisor keep --state-dir DIR [--once | --end | --leave]

Options:
      --state-dir DIR   the directory of the supervisor
      --once            look at the deadlines once, and exit
      --end             end every step of this directory, whether or not it has a lease: SIGTERM, and SIGKILL 10 s later
      --leave           exit when no supervisor works in the directory and nothing is left to keep
  -h, --help            print this

Without --once and --end it looks every second. SIGTERM has it leave as soon as no step with a lease is left, SIGHUP has it
become the program that is installed now.
";

/// Time between SIGTERM and SIGKILL of `--end`, which an admin runs to stop a host or remove a package.
const END_GRACE: Duration = Duration::from_secs(10);
/// Time that `--end` continues after SIGKILL: processes blocked by a device or a disk cannot be waited for.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Time between two checks while processes are about to end.
const SOON: Duration = Duration::from_millis(100);

/// Why a keeper cannot work.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The command line is invalid.
    #[error("{0}; see `sluice-supervisor keep --help`")]
    Usage(#[from] lexopt::Error),
    /// The option `--state-dir` is missing.
    #[error("--state-dir is missing: name the directory of the supervisor")]
    NoStateDir,
    /// The variable for the log filter is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The variable for the log format is invalid.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The boot id cannot be read.
    #[error("cannot read the boot id of this host")]
    BootId(#[from] BootIdError),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The keeper's own directory cannot be used.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// The deadlines cannot be read.
    #[error("the deadlines in {} cannot be read", dir.display())]
    Blind { dir: PathBuf },
    /// Steps still run.
    #[error("{left} steps have not ended within {} s: look for processes in state D", END_LIMIT.as_secs())]
    Left { left: usize },
    /// A system call failed.
    #[error("cannot {action}")]
    Kernel { action: &'static str, source: Errno },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeeperMode {
    KeeperLoop { leaves: bool },
    Once,
    End,
}

/// Runs the command line, which lacks the program's name and the mode. Returns a text to print, if that was
/// asked for.
///
/// # Errors
/// If the command line is invalid, the deadlines cannot be read, or steps do not end.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Option<&'static str>, KeeperError> {
    let Some((state_dir, how)) = parse(args)? else {
        return Ok(Some(HELP));
    };
    let format = Format::from_environment()?.unwrap_or_default();
    sluice_log::start(format, &Filter::from_env_or(None)?)?;
    oom::protect(oom::LEAST);
    let boot_id = process::boot_id()?;
    // The records decide which processes the keeper signals.
    if state_dir.exists() {
        StateDir::check(&state_dir)?;
    }
    let keeper = Keeper::new(&state_dir, boot_id.clone());
    sys::enable_child_signals();
    match how {
        KeeperMode::End => end(keeper).map(|()| None),
        KeeperMode::Once => once(keeper, &state_dir, &boot_id).map(|()| None),
        KeeperMode::KeeperLoop { leaves } => {
            // Detaches from the terminal of the supervisor that started this keeper. Fails for a session
            // leader, which is detached already.
            let _ = setsid();
            KeeperLoop::new(keeper, state_dir, boot_id, leaves)?
                .run()
                .map(|()| None)
        }
    }
}

fn parse(
    args: impl IntoIterator<Item = OsString>,
) -> Result<Option<(PathBuf, KeeperMode)>, KeeperError> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut state_dir, mut how) = (None, KeeperMode::KeeperLoop { leaves: false });
    while let Some(arg) = parser.next()? {
        match arg {
            Long("state-dir") => state_dir = Some(PathBuf::from(parser.value()?)),
            Long("once") => how = KeeperMode::Once,
            Long("end") => how = KeeperMode::End,
            Long(LEAVE) => how = KeeperMode::KeeperLoop { leaves: true },
            Long("help") | Short('h') => return Ok(None),
            Value(_) | Long(_) | Short(_) => return Err(arg.unexpected().into()),
        }
    }
    let state_dir = state_dir.ok_or(KeeperError::NoStateDir)?;
    Ok(Some((state_dir, how)))
}

/// A host on which no supervisor has run yet has no directory and no attempts.
fn once(mut keeper: Keeper, state_dir: &Path, boot_id: &BootId) -> Result<(), KeeperError> {
    let now = clock::boot_now();
    let is_seeing = keeper.look(now);
    if state_dir.exists() {
        make_directory(state_dir)?;
        leave_heartbeat(state_dir, KeeperKind::Timer, boot_id, is_seeing);
    }
    match is_seeing {
        true => Ok(()),
        false => Err(KeeperError::Blind {
            dir: state_dir.to_owned(),
        }),
    }
}

fn end(mut keeper: Keeper) -> Result<(), KeeperError> {
    let begun = Instant::now();
    let mut left = keeper.signal_all(Some(Signal::SIGTERM));
    if left > 0 {
        info!(steps = left, "ending every step of this host");
    }
    while left > 0 && begun.elapsed() < END_GRACE {
        std::thread::sleep(SOON);
        left = keeper.signal_all(None);
    }
    while left > 0 && begun.elapsed() < END_LIMIT {
        left = keeper.signal_all(Some(Signal::SIGKILL));
        std::thread::sleep(SOON);
    }
    match left {
        0 => Ok(()),
        left => Err(KeeperError::Left { left }),
    }
}

/// A keeper whose heartbeat cannot be written still enforces leases.
fn leave_heartbeat(state_dir: &Path, kind: KeeperKind, boot_id: &BootId, is_seeing: bool) {
    let now = clock::boot_now();
    if is_seeing && let Err(e) = Heartbeat::leave(state_dir, kind, boot_id, now) {
        warn!("the keeper's heartbeat cannot be written: {e}");
    }
}

/// The loop of a permanent keeper.
struct KeeperLoop {
    keeper: Keeper,
    state_dir: PathBuf,
    boot_id: BootId,
    /// Whether to exit if no supervisor runs and no lease is left.
    leaves: bool,
    /// Whether a signal asked the keeper to exit if no lease is left.
    is_told: bool,
    signals: SignalFd,
}

impl KeeperLoop {
    fn new(
        keeper: Keeper,
        state_dir: PathBuf,
        boot_id: BootId,
        leaves: bool,
    ) -> Result<Self, KeeperError> {
        let kernel = |action| move |source| KeeperError::Kernel { action, source };
        let mut mask = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ] {
            mask.add(signal);
        }
        mask.thread_block().map_err(kernel("hold signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(kernel("watch signals"))?;
        make_directory(&state_dir)?;
        Ok(Self {
            keeper,
            state_dir,
            boot_id,
            leaves,
            is_told: false,
            signals,
        })
    }

    fn run(mut self) -> Result<(), KeeperError> {
        let mut init = None;
        loop {
            let is_seeing = self.keeper.look(clock::boot_now());
            leave_heartbeat(
                &self.state_dir,
                KeeperKind::KeeperLoop,
                &self.boot_id,
                is_seeing,
            );
            init.get_or_insert_with(|| InitSystem::notify_ready(clock::boot_now()))
                .notify_alive(clock::boot_now());
            if self.may_leave() {
                return Ok(());
            }
            self.wait()?;
            self.on_signals();
        }
    }

    fn may_leave(&self) -> bool {
        let is_over = self.is_told || self.leaves && !state_dir::is_taken(&self.state_dir);
        is_over && !self.keeper.keeps()
    }

    fn wait(&self) -> Result<(), KeeperError> {
        let pause = match self.is_told {
            true => SOON,
            false => Duration::from_millis(KEEPER_PERIOD.millis()),
        };
        let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, pause) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(source) => Err(KeeperError::Kernel {
                action: "wait",
                source,
            }),
        }
    }

    fn on_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            match Signal::try_from(number) {
                Ok(Signal::SIGTERM | Signal::SIGINT) => self.is_told = true,
                Ok(Signal::SIGHUP) => become_newer(),
                // Children that read marks are reaped at the next check.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Executes the program that is installed now in this process. Returns only on failure.
fn become_newer() {
    let mut args = std::env::args_os();
    let Some(program) = args.next() else { return };
    let failed: io::Error = Command::new(&program).args(args).exec();
    error!(program = %program.display(), "the newer keeper could not be run, this one goes on: {failed}");
}
