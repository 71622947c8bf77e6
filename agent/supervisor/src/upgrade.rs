//! Upgrades a supervisor without losing its children: the installed program is executed in the same process, so children
//! stay children, and the kernel keeps their exits until they are reaped.
//!
//! ```text
//! (SIGHUP) -> rehearsal -(ends well)-> due -(everything is on disk)-> exec
//!                 \-(ends badly, or not in time)-> no change
//! ```
//!
//! The rehearsal runs the new program beside this one with the same command line: it reads the config, looks up the users
//! and checks the version of the handover. An `exec` cannot be undone, so errors must be found before. `server`
//! drives it.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, execv};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::Span;
use tracing::{error, info, warn};

use crate::clock;
use crate::handover::{FORMAT, Handover, keep_open};

/// Time limit of a rehearsal. It reads two files, and a user database may be slow.
const REHEARSAL_LIMIT: Span = Span::from_secs(20);

/// Flag of a rehearsal.
pub const REHEARSE: &str = "rehearse";
/// Flag of a program that takes over.
pub const HANDOVER: &str = "handover";

/// Stage of an upgrade.
#[derive(Debug)]
enum UpgradeStage {
    None,
    Rehearsal { pid: u32, until: BootMillis },
    Due,
}

/// The program, its arguments, and the stage of an upgrade.
#[derive(Debug)]
pub struct Upgrade {
    program: PathBuf,
    /// Arguments with the program's name, without those that an upgrade adds.
    args: Vec<OsString>,
    stage: UpgradeStage,
}

impl Upgrade {
    /// For this process.
    ///
    /// # Errors
    /// If the path of the program cannot be read.
    pub fn new(args: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let mut args: Vec<OsString> = args.into_iter().collect();
        let flag = format!("--{HANDOVER}");
        // An earlier upgrade appended these.
        if args.len() >= 2 && args[args.len() - 2] == *flag {
            args.truncate(args.len() - 2);
        }
        // By path and not by file, because a package replaces the file. If the program was started by name
        // alone, the kernel knows the path.
        let typed = args.first().filter(|name| name.as_bytes().contains(&b'/'));
        let program = match typed {
            Some(path) => std::path::absolute(path)?,
            None => std::env::current_exe()?,
        };
        Ok(Self {
            program,
            args,
            stage: UpgradeStage::None,
        })
    }

    /// Starts the rehearsal.
    pub fn begin(&mut self, now: BootMillis) {
        if !matches!(self.stage, UpgradeStage::None) {
            return info!("an upgrade is under way already");
        }
        let rehearsal = Command::new(&self.program)
            .args(self.args.iter().skip(1))
            .args([format!("--{REHEARSE}"), FORMAT.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match rehearsal {
            Ok(child) => {
                info!(program = %self.program.display(), "upgrade requested: the new program is tested first");
                self.stage = UpgradeStage::Rehearsal {
                    pid: child.id(),
                    until: clock::after(now, REHEARSAL_LIMIT),
                };
            }
            Err(e) => self.give_up(&format!("it cannot be run: {e}")),
        }
    }

    /// Handles the end of a child; returns whether it was the rehearsal.
    pub fn on_child_ended(&mut self, ended: u32, exit: &Exit) -> bool {
        match self.stage {
            UpgradeStage::Rehearsal { pid, .. } if pid == ended => {}
            UpgradeStage::Rehearsal { .. } | UpgradeStage::None | UpgradeStage::Due => {
                return false;
            }
        }
        match exit.code() {
            Some(0) => self.stage = UpgradeStage::Due,
            Some(_) | None => self.give_up(&format!("its test run ended with {exit:?}")),
        }
        true
    }

    /// Handles the time limit.
    pub fn on_time(&mut self, now: BootMillis) {
        if let UpgradeStage::Rehearsal { pid, until } = self.stage
            && now >= until
        {
            self.give_up("its test run takes too long");
            // The child is not reaped yet, so the pid is its own.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }

    /// When to call [`Upgrade::on_time`] at the latest.
    pub fn wake_at(&self) -> Option<BootMillis> {
        match self.stage {
            UpgradeStage::Rehearsal { until, .. } => Some(until),
            UpgradeStage::None | UpgradeStage::Due => None,
        }
    }

    /// Whether the rehearsal has succeeded.
    pub fn is_due(&self) -> bool {
        matches!(self.stage, UpgradeStage::Due)
    }

    fn give_up(&mut self, why: &str) {
        self.stage = UpgradeStage::None;
        warn!(program = %self.program.display(), "not upgraded, this one goes on: {why}");
    }

    /// Executes the new program, with the descriptors in `kept` open. Returns only on failure, without any
    /// change.
    pub fn exec(&mut self, handover: &Handover, kept: &[BorrowedFd<'_>]) {
        let failed = self.try_exec(handover, kept);
        for fd in kept {
            // If this fails, children still close the descriptor.
            let _ = keep_open(*fd, false);
        }
        error!(program = %self.program.display(), "the new program could not be run: {failed}");
        self.stage = UpgradeStage::None;
    }

    fn try_exec(&self, handover: &Handover, kept: &[BorrowedFd<'_>]) -> io::Error {
        let prepare = || {
            for fd in kept {
                keep_open(*fd, true)?;
            }
            let memory = handover.write()?;
            let args = self.arguments(crate::handover::number(&memory))?;
            let program = c_string(self.program.as_os_str().as_bytes())?;
            Ok((memory, program, args))
        };
        match prepare() {
            Ok((_memory, program, args)) => {
                info!(program = %self.program.display(), "upgrading");
                let Err(e) = execv(&program, &args);
                e.into()
            }
            Err(e) => e,
        }
    }

    fn arguments(&self, handover: RawFd) -> io::Result<Vec<CString>> {
        let added = [format!("--{HANDOVER}"), handover.to_string()].map(OsString::from);
        let all = self.args.iter().chain(&added);
        all.map(|arg| c_string(arg.as_bytes())).collect()
    }

    /// Path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgrade(args: &[&str]) -> Upgrade {
        Upgrade::new(args.iter().map(OsString::from)).unwrap()
    }

    #[test]
    fn the_program_is_known_by_its_path_and_what_an_upgrade_adds_is_taken_away() {
        let plain = upgrade(&["/usr/bin/s", "--state-dir", "/x"]);
        assert_eq!(plain.program(), Path::new("/usr/bin/s"));
        let again = upgrade(&["/usr/bin/s", "--state-dir", "/x", "--handover", "7"]);
        assert_eq!(again.args, plain.args);
        let found = upgrade(&["s"]);
        assert_eq!(found.program(), std::env::current_exe().unwrap());
        assert!(upgrade(&["./s"]).program().is_absolute());
    }

    #[test]
    fn a_program_that_is_not_there_changes_nothing() {
        let mut upgrade = upgrade(&["/no/such/program"]);
        upgrade.begin(BootMillis(0));
        assert!(!upgrade.is_due() && upgrade.wake_at().is_none());
    }

    #[test]
    fn a_rehearsal_counts_once_it_has_ended_well() {
        let mut upgrade = upgrade(&["/bin/true"]);
        for (exit, due) in [
            (Exit::Code(2), false),
            (Exit::Signal(9), false),
            (Exit::Code(0), true),
        ] {
            upgrade.begin(BootMillis(0));
            let UpgradeStage::Rehearsal { pid, .. } = upgrade.stage else {
                panic!("{:?}", upgrade.stage)
            };
            assert!(!upgrade.on_child_ended(pid + 1, &Exit::Code(0)));
            assert!(upgrade.on_child_ended(pid, &exit));
            assert_eq!(upgrade.is_due(), due, "{exit:?}");
        }
    }

    #[test]
    fn a_rehearsal_that_does_not_end_is_given_up() {
        let mut upgrade = upgrade(&["/bin/true"]);
        // The upgrade must not have seen the child's end yet.
        upgrade.begin(BootMillis(0));
        upgrade.on_time(BootMillis(19_999));
        assert!(upgrade.wake_at().is_some());
        upgrade.on_time(BootMillis(20_000));
        assert!(upgrade.wake_at().is_none() && !upgrade.is_due());
    }
}
