//! The two calls of `bpf(2)` that load a device filter's program and attach it to a control group.
//! [`super::DeviceFilter`] decides what the program does.
//!
//! The kernel keeps the program as long as a group holds it, so neither this process nor a descriptor needs
//! to stay. Before Linux 5.11 programs count against the limit of locked memory; EPERM can mean that this
//! limit is reached.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
/// The kernel's `BPF_PROG_TYPE_CGROUP_DEVICE`.
const TYPE_CGROUP_DEVICE: u32 = 15;
/// The kernel's `BPF_CGROUP_DEVICE`.
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: filters of parent groups apply as well, so this filter never allows what a service
/// manager or a container denies; and a filter attached inside the group cannot replace this one.
const ALLOW_MULTI: u32 = 2;

/// Name of the program in `bpftool prog`.
const NAME: [u8; 16] = *b"sluice_devices\0\0";

/// First fields of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes the rest as zero.
#[repr(C)]
struct LoadAttributes {
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

/// First fields of `union bpf_attr` for `BPF_PROG_ATTACH`.
#[repr(C)]
struct AttachAttributes {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Loads a program of instructions that are laid out as `struct bpf_insn`.
///
/// # Errors
/// If the kernel lacks this program type, denies this process the call, or rejects the program.
pub(super) fn load<Instruction: Copy>(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    const {
        assert!(
            size_of::<Instruction>() == 8,
            "an instruction has eight bytes"
        )
    };
    let attributes = LoadAttributes {
        kind: TYPE_CGROUP_DEVICE,
        instructions: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        first: address(instructions.as_ptr()),
        // Any licence will do, because the program calls no kernel function.
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
    // SAFETY: the descriptor is new and has no other owner; the kernel sets close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a group (an open directory), so that it decides about every access to a device from
/// that group and the groups below it.
///
/// # Errors
/// If the directory is no group of version 2, or a filter of a parent group allows no other.
pub(super) fn attach(program: BorrowedFd<'_>, group: BorrowedFd<'_>) -> io::Result<()> {
    let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
    let attributes = AttachAttributes {
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
