//! A stand-in for the part of NVIDIA's CUDA driver library that checkpoints processes, for tests on machines without a
//! GPU: it exports the documented C functions and moves nothing.
//!
//! A process names its control folder in its environment, as `CUDA_STANDIN`; a process without one uses no CUDA. In the
//! folder are `calls`, a line for each call that changes something, and `state-PID`, the state of a process. A test
//! writes `faults`, a line for each: `refuse CALL`, `late CALL` (not at rest in time), `hang CALL` (for ever) or `lose
//! CALL` (the process is damaged). The stand-in for NVML reads the states, so that moved memory is seen free.
#![expect(
    unsafe_code,
    reason = "these are C functions, called through raw pointers"
)]

mod folder;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::thread::park;

use folder::{Fault, Folder, State};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const ILLEGAL_STATE: c_int = 401;
const NOT_READY: c_int = 600;

/// NVIDIA documents it under this name; `args` is a structure of 64 bytes that begins with the time limit.
///
/// # Safety
/// `args` is null, or points to such a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessLock(pid: c_int, _args: *mut c_void) -> c_int {
    go(pid, "lock", State::Running, State::Locked)
}

/// NVIDIA documents it under this name.
///
/// # Safety
/// `args` is null, or points to a structure of 64 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessCheckpoint(pid: c_int, _args: *mut c_void) -> c_int {
    go(pid, "checkpoint", State::Locked, State::Checkpointed)
}

/// NVIDIA documents it under this name.
///
/// # Safety
/// `args` is null, or points to a structure of 64 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessRestore(pid: c_int, _args: *mut c_void) -> c_int {
    go(pid, "restore", State::Checkpointed, State::Locked)
}

/// NVIDIA documents it under this name.
///
/// # Safety
/// `args` is null, or points to a structure of 64 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessUnlock(pid: c_int, _args: *mut c_void) -> c_int {
    go(pid, "unlock", State::Locked, State::Running)
}

/// NVIDIA documents it under this name.
///
/// # Safety
/// `state` points to an integer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_int) -> c_int {
    let Some(folder) = Folder::of(pid) else {
        return INVALID_VALUE;
    };
    // SAFETY: the caller has promised that it points to an integer.
    unsafe { state.write(folder.state(pid) as c_int) };
    SUCCESS
}

/// NVIDIA documents it under this name.
///
/// # Safety
/// `text` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    let found = match code {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        ILLEGAL_STATE => c"the operation cannot be performed in the present state",
        NOT_READY => c"device not ready",
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller has promised that it points to a pointer; the text lives as long as the library.
    unsafe { text.write(found.as_ptr()) };
    SUCCESS
}

/// NVIDIA documents it under this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    SUCCESS
}

fn go(pid: c_int, call: &str, from: State, to: State) -> c_int {
    let Some(folder) = Folder::of(pid) else {
        return INVALID_VALUE;
    };
    folder.note(call, pid);
    match folder.fault(call) {
        Some(Fault::Refuse) => return ILLEGAL_STATE,
        Some(Fault::Late) => return NOT_READY,
        Some(Fault::Hang) => loop {
            park();
        },
        Some(Fault::Lose) => {
            folder.set(pid, State::Failed);
            return ILLEGAL_STATE;
        }
        None => {}
    }
    if folder.state(pid) != from {
        return ILLEGAL_STATE;
    }
    folder.set(pid, to);
    SUCCESS
}
