//! The few calls that need `unsafe`, each as small as it can be, so that they are read in one place. What they mean
//! together is the business of `spawn`, `reap` and `table`.

pub mod project;
pub mod xattr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io};

use nix::errno::Errno;
use nix::unistd::{ForkResult, Gid, Uid, fork, setgroups, setresgid, setresuid};
use sluice_common::usage::Usage;

use crate::reap::EndedChild;

/// A child that has ended, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// It called `exit` with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Makes a copy of this process. In the copy `child` runs, and it never comes back from there: should it return or
/// panic, the copy exits with 127 and nothing of the parent's code runs twice.
///
/// # Errors
/// Where the kernel has no room for one more process.
///
/// # Panics
/// Never in the parent; a panic in the child ends the child.
#[expect(unsafe_code, reason = "fork has no safe form")]
pub fn fork_into(child: impl FnOnce()) -> io::Result<u32> {
    // SAFETY: the supervisor has one thread (`server` checks it before the first attempt), so no lock can be held by
    // a thread that does not exist in the child, and the child may allocate and open files like any program.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw().cast_unsigned()),
        ForkResult::Child => {
            drop(catch_unwind(AssertUnwindSafe(child)));
            exit_now(127)
        }
    }
}

/// What `clone3` takes, as its first version with a group has it: see clone(2).
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `CLONE_INTO_CGROUP`, which does not fit into the integer that the C library has for such flags.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// As [`fork_into`], with the copy in a control group of version 2 from its first instruction.
///
/// # Errors
/// Where the kernel has no room for one more process, or does not know how.
#[expect(unsafe_code, reason = "clone3 has no wrapper")]
pub fn fork_in_group(group: BorrowedFd<'_>, child: impl FnOnce()) -> io::Result<u32> {
    let arguments = CloneArguments {
        flags: INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        cgroup: u64::from(group.as_raw_fd().cast_unsigned()),
        ..CloneArguments::default()
    };
    // SAFETY: without CLONE_VM this is a fork, and `fork_into` says why that is sound here. What the C library's own
    // fork would do beside it concerns other threads, of which there are none, and the number of the copy's thread that
    // the library remembers, which only signals to oneself use: the copy sends none. `arguments` is valid for the call.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<CloneArguments>(),
        )
    };
    match pid {
        0 => {
            drop(catch_unwind(AssertUnwindSafe(child)));
            exit_now(127)
        }
        1.. => Ok(u32::try_from(pid).expect("the kernel's process numbers are ints")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process without running anything of its parent's: no destructors, no buffers, no hooks.
#[expect(unsafe_code, reason = "_exit has no safe form")]
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any number, touches no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// Gives every signal its default effect. A new program inherits what is ignored, and this one ignores SIGPIPE.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
pub fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no handler of ours. Numbers that cannot be changed (SIGKILL, SIGSTOP, those that
        // the C library keeps for itself) are refused and stay at their default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Has the kernel keep ended children for us and tell of them. Where SIGCHLD is ignored it does neither, and a process
/// that was started by one that ignores it ignores it as well.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
pub fn enable_child_signals() {
    // SAFETY: SIG_DFL installs no handler of ours, and SIGCHLD's default effect is none.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Takes one child that has ended off the kernel's hands; `None` where no child has.
///
/// Not `nix::waitpid`: it fails on a real-time signal, after the child is gone, and does not tell what was used.
#[expect(
    unsafe_code,
    reason = "waitpid of nix loses children that a real-time signal killed"
)]
pub fn wait_any() -> Option<EndedChild> {
    let mut status: libc::c_int = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are valid places for what the call writes, for its length.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, used.as_mut_ptr()) };
    if pid <= 0 {
        return None;
    }
    let ending = if libc::WIFSIGNALED(status) {
        ChildExit::Signal(libc::WTERMSIG(status))
    } else {
        ChildExit::Code(libc::WEXITSTATUS(status))
    };
    // SAFETY: all zeros are a valid `rusage`, and the call has written over them or not.
    let used = unsafe { used.assume_init() };
    let usage = usage_of(&used);
    let pid = pid.cast_unsigned();
    Some(EndedChild { pid, ending, usage })
}

/// The kernel counts memory in units of 1,024 bytes, and of storage blocks of 512.
fn usage_of(used: &libc::rusage) -> Usage {
    let amount = |n: libc::c_long, unit: u64| u64::try_from(n).unwrap_or(0).saturating_mul(unit);
    let micros = |t: libc::timeval| amount(t.tv_sec, 1_000_000) + amount(t.tv_usec, 1);
    Usage {
        cpu_us: Some(micros(used.ru_utime) + micros(used.ru_stime)),
        peak_memory_bytes: Some(amount(used.ru_maxrss, 1_024)),
        read_bytes: Some(amount(used.ru_inblock, 512)),
        written_bytes: Some(amount(used.ru_oublock, 512)),
    }
}

/// A descriptor that becomes readable when the process ends. It must not be a child's that this process reaps.
///
/// # Errors
/// `ESRCH` where there is no such process, `ENOSYS` before Linux 5.3.
#[expect(unsafe_code, reason = "pidfd_open has no wrapper")]
pub fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: two integers go in, and a new descriptor or -1 comes out; the kernel sets close-on-exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).expect("the kernel's descriptors are ints");
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes over a descriptor that this process was left by the program that it was before. Children do not inherit it.
///
/// # Errors
/// Where none of that number is open.
#[expect(unsafe_code, reason = "a number becomes a descriptor")]
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::other("it is a standard stream"));
    }
    // SAFETY: two integers go in. Where the number is not open, the kernel says so.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and what is named on the command line of an upgrade was opened by no object of this program.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor above the standard three but `keep`. Only for a child that is about to become another
/// program: whatever object owned the descriptors must never be used again.
///
/// # Errors
/// Where the kernel cannot, and `/proc` cannot be read.
pub fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().filter(|fd| *fd > 2) {
        if fd > from {
            close_between(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_between(from, RawFd::MAX)
}

#[expect(unsafe_code, reason = "close_range has no wrapper")]
fn close_between(first: RawFd, last: RawFd) -> io::Result<()> {
    // SAFETY: three integers go in, and the caller has promised that nothing uses these descriptors any more.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Before Linux 5.9, and where a filter does not know the call.
        e if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            close_one_by_one(first, last)
        }
        e => Err(e),
    }
}

fn close_one_by_one(first: RawFd, last: RawFd) -> io::Result<()> {
    let mut open: Vec<RawFd> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<RawFd>().ok()),
        );
    }
    for fd in open.into_iter().filter(|fd| (first..=last).contains(fd)) {
        // The directory that was just read is in its own list and already closed: that one fails, harmlessly.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Takes every capability out of what this process and its children can ever get again, as far as it may.
///
/// # Errors
/// Where the kernel knows of no bounding set.
#[expect(unsafe_code, reason = "the bounding set has no safe form")]
pub fn drop_bounding_set() -> nix::Result<()> {
    for capability in 0..=libc::c_ulong::from(u8::MAX) {
        // SAFETY: prctl takes integers here and touches no memory.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(done) {
            Ok(_) => {}
            // One past the last that this kernel knows.
            Err(Errno::EINVAL) if capability > 0 => break,
            // Where this process may not (CAP_SETPCAP), nothing is lost by it: the step has no capabilities and may
            // gain none by what it runs.
            Err(Errno::EPERM) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Becomes a user that is given out by number and has the group of the same number alone. Root only.
///
/// # Errors
/// Where the kernel refuses.
pub fn become_user(uid: Uid) -> nix::Result<()> {
    let gid = Gid::from_raw(uid.as_raw());
    setgroups(&[gid])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// The version of the kernel's structures for capabilities: two halves of 32 bits each.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Lets go of all capabilities that this process has, or could hand on to another program.
///
/// # Errors
/// Where the kernel refuses, which it has no reason to.
#[expect(unsafe_code, reason = "capset has no wrapper")]
pub fn drop_capabilities() -> nix::Result<()> {
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: i32,
    }
    let header = CapabilityHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    // Effective, permitted and inheritable, of both halves: none. What is not permitted cannot be ambient either.
    let none = [0_u32; 6];
    // SAFETY: both point to what capset(2) asks for in this version, and live through the call, which writes nothing.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    Errno::result(done).map(drop)
}
