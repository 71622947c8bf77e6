//! System calls that need `unsafe`, in functions as small as possible, so that they can be reviewed in one
//! place. `spawn`, `reap` and `table` use them.

pub mod placement;
pub mod project;
pub mod xattr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::{fs, io};

use nix::errno::Errno;
use nix::unistd::{ForkResult, Gid, Uid, fork, setgroups, setresgid, setresuid};
use sluice_common::usage::Usage;

use crate::reap::EndedChild;

/// Exit of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// The child called `exit` with this code.
    Code(i32),
    /// This signal killed the child.
    Signal(i32),
}

/// Forks this process. `child` runs in the copy and never returns there: if it returns or panics, the copy
/// exits with 127, so that none of the parent's code runs twice.
///
/// # Errors
/// If the kernel cannot create a process.
/// # Panics
/// Never in the parent; a panic in the child ends the child.
#[expect(unsafe_code, reason = "fork has no safe form")]
pub fn fork_into(child: impl FnOnce()) -> io::Result<u32> {
    changed_signals();
    // SAFETY: the supervisor has one thread (`server` checks that before the first attempt), so no other
    // thread can hold a lock, and the child may allocate and open files like any program.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw().cast_unsigned()),
        ForkResult::Child => {
            drop(catch_unwind(AssertUnwindSafe(child)));
            exit_now(127)
        }
    }
}

/// First version of the argument of `clone3` that has a cgroup: see clone(2).
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

/// `CLONE_INTO_CGROUP`, which does not fit into the C library's integer for such flags.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// Like [`fork_into`], with the copy in a control group of version 2 from its first instruction.
///
/// # Errors
/// If the kernel cannot create a process, or lacks this call.
#[expect(unsafe_code, reason = "clone3 has no wrapper")]
pub fn fork_in_group(group: BorrowedFd<'_>, child: impl FnOnce()) -> io::Result<u32> {
    changed_signals();
    let arguments = CloneArguments {
        flags: INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        cgroup: u64::from(group.as_raw_fd().cast_unsigned()),
        ..CloneArguments::default()
    };
    // SAFETY: without CLONE_VM this is a fork, which is sound for the reason given in `fork_into`. The C
    // library's fork additionally handles other threads, of which there are none, and the cached thread id,
    // which only signals to oneself use: the copy sends none. `arguments` is valid for the call.
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

/// Exits without running destructors, buffers or exit hooks of the parent.
#[expect(unsafe_code, reason = "_exit has no safe form")]
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any number, touches no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// Resets all signals to their default. A new program inherits ignored signals, and this one ignores SIGPIPE.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
pub fn default_signals() {
    for signal in changed_signals() {
        // SAFETY: SIG_DFL installs no handler.
        unsafe { libc::signal(*signal, libc::SIG_DFL) };
    }
}

/// Signals that had another disposition than the default when this was first called: this program changes none later.
/// Called before a fork, so that each child need not ask for all of them.
#[expect(unsafe_code, reason = "asking for a disposition has no safe form")]
fn changed_signals() -> &'static [libc::c_int] {
    static CHANGED: OnceLock<Vec<libc::c_int>> = OnceLock::new();
    CHANGED.get_or_init(|| {
        let is_changed = |signal: &libc::c_int| {
            let mut now = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: the call writes the structure and changes nothing. It rejects signals that the C library reserves,
            // and the structure stays zero, which is the default.
            let now = unsafe {
                libc::sigaction(*signal, std::ptr::null(), now.as_mut_ptr());
                now.assume_init()
            };
            now.sa_sigaction != libc::SIG_DFL
        };
        (1..=libc::SIGRTMAX()).filter(is_changed).collect()
    })
}

/// Resets SIGCHLD, so that the kernel keeps ended children for us and signals their end. A process inherits
/// an ignored SIGCHLD, under which neither happens.
#[expect(unsafe_code, reason = "setting a disposition has no safe form")]
pub fn enable_child_signals() {
    // SAFETY: SIG_DFL installs no handler, and SIGCHLD's default effect is none.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Reaps one ended child; `None` if there is none.
///
/// Not `nix::waitpid`: it fails on a real-time signal after the child is reaped, and does not return the
/// usage.
#[expect(
    unsafe_code,
    reason = "waitpid of nix loses children that a real-time signal killed"
)]
pub fn wait_any() -> Option<EndedChild> {
    let mut status: libc::c_int = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for what the call writes.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, used.as_mut_ptr()) };
    if pid <= 0 {
        return None;
    }
    let ending = if libc::WIFSIGNALED(status) {
        ChildExit::Signal(libc::WTERMSIG(status))
    } else {
        ChildExit::Code(libc::WEXITSTATUS(status))
    };
    // SAFETY: all zeros are a valid `rusage`, and the call may have overwritten them.
    let used = unsafe { used.assume_init() };
    let usage = usage_of(&used);
    let pid = pid.cast_unsigned();
    Some(EndedChild { pid, ending, usage })
}

/// The kernel counts memory in units of 1,024 bytes, and storage blocks in units of 512.
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

/// A descriptor that becomes readable when the process ends. The process must not be a child that this
/// process reaps.
///
/// # Errors
/// `ESRCH` if the process does not exist, `ENOSYS` before Linux 5.3.
#[expect(unsafe_code, reason = "pidfd_open has no wrapper")]
pub fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1; the kernel sets close-on-exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.cast_signed(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).expect("the kernel's descriptors are ints");
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adopts a descriptor that the previous program in this process left open, and makes it close-on-exec.
///
/// # Errors
/// If the descriptor is not open.
#[expect(unsafe_code, reason = "a number becomes a descriptor")]
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::other("it is a standard stream"));
    }
    // SAFETY: the call takes two integers, and fails if the descriptor is not open.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, and no object of this program owns a descriptor that is named on the
    // command line of an upgrade.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor above the standard three except `keep`. Only for a child that is about to execute
/// another program: objects that own the descriptors must not be used again.
///
/// # Errors
/// If the kernel lacks the call and `/proc` cannot be read.
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
    // SAFETY: the call takes three integers, and the caller has promised that the descriptors are not used
    // any more.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Before Linux 5.9, or under a seccomp filter without the call.
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
        // Fails for the directory that was just read, which is in its own list and already closed.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Removes every capability from this process's bounding set, as far as permitted.
///
/// # Errors
/// If the kernel has no bounding set.
#[expect(unsafe_code, reason = "the bounding set has no safe form")]
pub fn drop_bounding_set() -> nix::Result<()> {
    for capability in 0..=libc::c_ulong::from(u8::MAX) {
        // SAFETY: prctl takes integers here and touches no memory.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(done) {
            Ok(_) => {}
            // The number after the last capability of this kernel.
            Err(Errno::EINVAL) if capability > 0 => break,
            // Without CAP_SETPCAP this is harmless: the step has no capabilities and can gain none by `exec`.
            Err(Errno::EPERM) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Switches to a user id for attempts, and the group with the same number. Root only.
///
/// # Errors
/// If the kernel rejects it.
pub fn become_user(uid: Uid) -> nix::Result<()> {
    let gid = Gid::from_raw(uid.as_raw());
    setgroups(&[gid])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Version of the kernel's capability structures: two halves of 32 bits each.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Drops all capabilities, including those that another program could inherit.
///
/// # Errors
/// If the kernel rejects it.
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
    // Effective, permitted and inheritable sets of both halves: empty. An ambient capability must be
    // permitted, so that set is empty too.
    let none = [0_u32; 6];
    // SAFETY: both pointers are what capset(2) requires in this version, and valid for the call, which writes
    // nothing.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    Errno::result(done).map(drop)
}
