//! Forks of the supervisor that do for it, as the user that it is, what may take long or hang while its loop goes on.

use std::io;
use std::os::fd::RawFd;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{Pid, getpid, getppid};

use crate::{oom, sys};

/// Starts a child that does some work and ends: its process id. Of the supervisor's descriptors it has those of `keep`
/// alone, and it dies with the supervisor, so that the next one may begin the same work anew.
///
/// # Errors
/// If the kernel has no room for one more process.
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
