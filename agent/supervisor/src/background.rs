//! Forks of the supervisor, as its own user, for work that may take long or hang.

use std::io;
use std::os::fd::RawFd;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{Pid, getpid, getppid};

use crate::{oom, sys};

/// Starts a child that runs `work` and exits; returns its process id. It keeps only the descriptors in
/// `keep`, and dies with the supervisor, so that the next one can repeat the work.
///
/// # Errors
/// If the kernel cannot create a process.
pub fn start(keep: &[RawFd], work: impl FnOnce()) -> io::Result<u32> {
    let supervisor = getpid();
    sys::fork_into(|| {
        if stand_alone(supervisor, keep) {
            work();
        }
    })
}

fn stand_alone(supervisor: Pid, keep: &[RawFd]) -> bool {
    let alone = sys::close_all_but(keep).is_ok() && oom::give_up().is_ok();
    sys::default_signals();
    let unblocked = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    let dies = set_pdeathsig(Signal::SIGKILL);
    alone && unblocked.is_ok() && dies.is_ok() && getppid() == supervisor
}
