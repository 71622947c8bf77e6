//! The two calls of `bpf(2)` that put a filter of devices on a control group. What the filter says is the business of
//! [`super::DeviceFilter`].
//!
//! The kernel keeps the program for as long as a group holds it, so neither this process nor a descriptor needs to stay.
//! Before Linux 5.11 programs count against the limit of locked memory, which is then the reason of an EPERM here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Of `enum bpf_cmd`.
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
/// `BPF_PROG_TYPE_CGROUP_DEVICE`.
const TYPE_CGROUP_DEVICE: u32 = 15;
/// `BPF_CGROUP_DEVICE`.
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: the filters of the groups above hold as well, so a fence never opens what a service manager or
/// a container has closed; and one that is attached within cannot take this one's place.
const ALLOW_MULTI: u32 = 2;

/// What is shown of the program by `bpftool prog`.
const NAME: [u8; 16] = *b"sluice_fence\0\0\0\0";

/// The head of `union bpf_attr` as `BPF_PROG_LOAD` reads it; the kernel takes the rest for zero.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    first: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The same of `BPF_PROG_ATTACH`.
#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Hands a program to the kernel. `instructions` are laid out as `struct bpf_insn`.
///
/// # Errors
/// Where the kernel has no such programs, does not let this process load one, or does not trust this one.
pub(super) fn load<Instruction: Copy>(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    const {
        assert!(
            size_of::<Instruction>() == 8,
            "an instruction has eight bytes"
        )
    };
    let attributes = Load {
        kind: TYPE_CGROUP_DEVICE,
        instructions: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        first: address(instructions.as_ptr()),
        // It calls no function of the kernel, so the kernel does not mind which.
        licence: address(c"Apache-2.0".as_ptr()),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
    };
    let fd = call(PROG_LOAD, &attributes)?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "a new descriptor comes as a number")]
    // SAFETY: the descriptor is new, so nobody else owns it; the kernel sets close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has a program judge every access to a device from a group (an open directory) and those below.
///
/// # Errors
/// Where the directory is no group of version 2, or a filter above it admits no other.
pub(super) fn attach(program: BorrowedFd<'_>, group: BorrowedFd<'_>) -> io::Result<()> {
    let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
    let attributes = Attach {
        group: number(group),
        program: number(program),
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    call(PROG_ATTACH, &attributes).map(drop)
}

fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

#[expect(unsafe_code, reason = "bpf has no wrapper")]
fn call<Attributes>(command: libc::c_int, attributes: &Attributes) -> io::Result<i64> {
    // SAFETY: the kernel reads as many bytes of `attributes` as it is told there are, and what their addresses point
    // at (instructions and a string with its end, both borrowed by the callers for longer than the call); it writes
    // nothing, for no log is asked for.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<Attributes>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}
