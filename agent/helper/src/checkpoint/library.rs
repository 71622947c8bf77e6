//! Backend that calls the driver's own library, which can checkpoint from driver 570 on and is opened at run
//! time. Only the functions described under "CUDA Checkpointing" in NVIDIA's manual are called, with the
//! structures given there.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sluice_common::helper::{CheckpointError, CheckpointState};

use super::Checkpointer;

/// Name by which the dynamic loader finds the driver's library.
pub(super) const LIBRARY: &str = "libcuda.so.1";

/// Values of `CUresult` that are treated specially.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 3;
const NOT_READY: c_int = 600;
const NOT_SUPPORTED: c_int = 801;

/// `CUcheckpointLockArgs`. The reserved fields must be zero.
#[repr(C)]
struct LockArguments {
    timeout_ms: c_uint,
    reserved_0: c_uint,
    reserved_1: [u64; 7],
}

/// Arguments of the other calls: of the same length, and all zero.
#[repr(C)]
struct EmptyArguments {
    reserved: [u64; 8],
}

type LockFn = unsafe extern "C" fn(c_int, *mut LockArguments) -> c_int;
type CallFn = unsafe extern "C" fn(c_int, *mut EmptyArguments) -> c_int;
type GetStateFn = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type InitFn = unsafe extern "C" fn(c_uint) -> c_int;
type ErrorStringFn = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The library. It is never closed, because this process ends soon.
pub(super) struct Library {
    lock: LockFn,
    checkpoint: CallFn,
    restore: CallFn,
    unlock: CallFn,
    state: GetStateFn,
    init: Option<InitFn>,
    error_string: Option<ErrorStringFn>,
    lock_timeout_ms: c_uint,
}

impl Library {
    /// Opens the library. `path` replaces the loader's choice. A process whose GPU work does not finish
    /// within `lock_timeout_ms` is not locked.
    ///
    /// # Errors
    /// If the library is missing or lacks a function.
    pub(super) fn open(path: Option<&Path>, lock_timeout_ms: u32) -> Result<Self, CheckpointError> {
        let path = path.unwrap_or(Path::new(LIBRARY));
        let opened = LoadedLibrary::open(path)?;
        Ok(Self {
            lock: function(&opened, c"cuCheckpointProcessLock")?,
            checkpoint: function(&opened, c"cuCheckpointProcessCheckpoint")?,
            restore: function(&opened, c"cuCheckpointProcessRestore")?,
            unlock: function(&opened, c"cuCheckpointProcessUnlock")?,
            state: function(&opened, c"cuCheckpointProcessGetState")?,
            init: function(&opened, c"cuInit").ok(),
            error_string: function(&opened, c"cuGetErrorString").ok(),
            lock_timeout_ms,
        })
    }

    fn check_code(&self, what: &str, pid: u32, code: c_int) -> Result<(), CheckpointError> {
        match code {
            SUCCESS => Ok(()),
            NOT_READY => Err(CheckpointError::TimedOut(pid)),
            NOT_SUPPORTED => Err(CheckpointError::Unsupported(format!(
                "the driver cannot {what} process {pid}: {}",
                self.error_text(code)
            ))),
            code => Err(CheckpointError::Refused(format!(
                "the driver does not {what} process {pid}: {}",
                self.error_text(code)
            ))),
        }
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn error_text(&self, code: c_int) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the function has the type that NVIDIA's manual gives it, and writes one pointer.
        let found = self
            .error_string
            .is_some_and(|ask| unsafe { ask(code, &raw mut text) } == SUCCESS);
        if !found || text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the text is a constant of the library.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} (error {code})", text.to_string_lossy())
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn call(&self, what: &str, function: CallFn, pid: u32) -> Result<(), CheckpointError> {
        let mut none = EmptyArguments { reserved: [0; 8] };
        // SAFETY: the function has the type that NVIDIA's manual gives it, and the structure lives through the call.
        let code = unsafe { function(pid.cast_signed(), &raw mut none) };
        self.check_code(what, pid, code)
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn ask_state(&self, pid: u32, found: &mut c_int) -> c_int {
        // SAFETY: the function has the type that NVIDIA's manual gives it, and writes one integer.
        unsafe { (self.state)(pid.cast_signed(), found) }
    }

    /// Calls `cuInit`, which some drivers require before they answer for another process.
    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn initialize(&self) {
        if let Some(init) = self.init {
            // SAFETY: the function has the type that NVIDIA's manual gives it. An error shows again at the
            // next call.
            unsafe { init(0) };
        }
    }
}

impl Checkpointer for Library {
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError> {
        let mut found = 0;
        let mut code = self.ask_state(pid, &mut found);
        if code == NOT_INITIALIZED {
            self.initialize();
            code = self.ask_state(pid, &mut found);
        }
        self.check_code("look at", pid, code)?;
        Ok(match found {
            0 => Some(CheckpointState::Running),
            1 => Some(CheckpointState::Locked),
            2 => Some(CheckpointState::Checkpointed),
            // States of later drivers are unknown here, so the process cannot be restored.
            _ => Some(CheckpointState::Failed),
        })
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn lock(&self, pid: u32) -> Result<(), CheckpointError> {
        let mut arguments = LockArguments {
            timeout_ms: self.lock_timeout_ms,
            reserved_0: 0,
            reserved_1: [0; 7],
        };
        // SAFETY: the function has the type that NVIDIA's manual gives it, and the structure lives through the call.
        let code = unsafe { (self.lock)(pid.cast_signed(), &raw mut arguments) };
        self.check_code("lock", pid, code)
    }

    fn checkpoint(&self, pid: u32) -> Result<(), CheckpointError> {
        self.call("checkpoint", self.checkpoint, pid)
    }

    fn restore(&self, pid: u32) -> Result<(), CheckpointError> {
        self.call("restore", self.restore, pid)
    }

    fn unlock(&self, pid: u32) -> Result<(), CheckpointError> {
        self.call("unlock", self.unlock, pid)
    }
}

/// A library opened by the dynamic loader.
struct LoadedLibrary {
    handle: *mut c_void,
    path_text: String,
}

impl LoadedLibrary {
    #[expect(unsafe_code, reason = "opening a library has no safe form")]
    fn open(path: &Path) -> Result<Self, CheckpointError> {
        let path_text = path.display().to_string();
        let lacking = |why: &str| {
            CheckpointError::Unsupported(format!("{path_text} cannot be opened: {why}"))
        };
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| lacking("its name holds a NUL byte"))?;
        // SAFETY: the name ends with a NUL. The code that runs at loading is NVIDIA's, or what the config
        // names, in a process that runs as the step's user and ends soon.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(lacking(&loader_error()));
        }
        Ok(Self { handle, path_text })
    }

    #[expect(unsafe_code, reason = "looking up a symbol has no safe form")]
    fn symbol(&self, name: &CStr) -> Result<*mut c_void, CheckpointError> {
        // SAFETY: the handle is open, and the name ends with a NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            return Err(CheckpointError::Unsupported(format!(
                "{} lacks {}: NVIDIA's driver has it from 570 on",
                self.path_text,
                name.to_string_lossy()
            )));
        }
        Ok(found)
    }
}

#[expect(unsafe_code, reason = "the loader's message has no safe form")]
fn loader_error() -> String {
    // SAFETY: this process has one thread, so the message is not replaced while it is copied.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: the pointer is not null, and the text ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// A function of the library, as a function pointer of type `F`.
#[expect(unsafe_code, reason = "an address becomes a function")]
fn function<F: Copy>(library: &LoadedLibrary, name: &CStr) -> Result<F, CheckpointError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = library.symbol(name)?;
    // SAFETY: every `F` in this file is the type that NVIDIA's manual gives the function of that name, and a
    // function pointer has the size and representation of the address that the loader returns.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_driver_s() {
        assert_eq!(size_of::<LockArguments>(), 64);
        assert_eq!(size_of::<EmptyArguments>(), 64);
        assert_eq!(std::mem::offset_of!(LockArguments, reserved_1), 8);
    }

    #[test]
    fn what_is_not_there_or_lacks_the_functions_is_named() {
        let told = |path: &str| match Library::open(Some(Path::new(path)), 1) {
            Err(CheckpointError::Unsupported(why)) => why,
            Err(why) => panic!("{why}"),
            Ok(_) => panic!("{path} is no driver"),
        };
        let why = told("/no/such/libcuda.so.1");
        assert!(
            why.starts_with("/no/such/libcuda.so.1 cannot be opened"),
            "{why}"
        );
        let why = told("libc.so.6");
        assert!(why.contains("lacks cuCheckpointProcessLock"), "{why}");
    }
}
