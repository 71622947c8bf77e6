//! Checkpointing by the driver's own library, opened at run time: drivers have it from 570 on. Only the functions that
//! NVIDIA's manual describes under "CUDA Checkpointing" are called, with the structures that it gives there.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sluice_common::helper::{CheckpointError, CheckpointState};

use super::Checkpointing;

/// The name by which the loader finds the driver's library.
pub(super) const LIBRARY: &str = "libcuda.so.1";

/// `CUresult`, as far as it means something of its own here.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 3;
const NOT_READY: c_int = 600;
const NOT_SUPPORTED: c_int = 801;

/// `CUcheckpointLockArgs`. What is reserved must be zero.
#[repr(C)]
struct LockArguments {
    timeout_ms: c_uint,
    reserved_0: c_uint,
    reserved_1: [u64; 7],
}

/// The arguments of all others: of the same length, and nothing in them is asked for here.
#[repr(C)]
struct NoArguments {
    reserved: [u64; 8],
}

type Lock = unsafe extern "C" fn(c_int, *mut LockArguments) -> c_int;
type Call = unsafe extern "C" fn(c_int, *mut NoArguments) -> c_int;
type GetState = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The library, never closed: this process ends soon.
pub(super) struct Library {
    lock: Lock,
    checkpoint: Call,
    restore: Call,
    unlock: Call,
    state: GetState,
    init: Option<Init>,
    error_string: Option<ErrorString>,
    lock_timeout_ms: c_uint,
}

impl Library {
    /// Opens it. `path` replaces the loader's choice; a process that does not come to rest within `lock_timeout_ms` is
    /// not locked.
    ///
    /// # Errors
    /// Where it is not there, or lacks what this needs.
    pub(super) fn open(path: Option<&Path>, lock_timeout_ms: u32) -> Result<Self, CheckpointError> {
        let path = path.unwrap_or(Path::new(LIBRARY));
        let opened = Opened::open(path)?;
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

    fn judge(&self, what: &str, pid: u32, code: c_int) -> Result<(), CheckpointError> {
        match code {
            SUCCESS => Ok(()),
            NOT_READY => Err(CheckpointError::TimedOut(pid)),
            NOT_SUPPORTED => Err(CheckpointError::Unsupported(format!(
                "the driver cannot {what} process {pid}: {}",
                self.words(code)
            ))),
            code => Err(CheckpointError::Refused(format!(
                "the driver does not {what} process {pid}: {}",
                self.words(code)
            ))),
        }
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn words(&self, code: c_int) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the function has the type that NVIDIA's manual gives it, and writes one pointer.
        let found = self
            .error_string
            .is_some_and(|ask| unsafe { ask(code, &raw mut text) } == SUCCESS);
        if !found || text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: it is one of the library's own constant texts.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} (error {code})", text.to_string_lossy())
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn call(&self, what: &str, function: Call, pid: u32) -> Result<(), CheckpointError> {
        let mut none = NoArguments { reserved: [0; 8] };
        // SAFETY: the function has the type that NVIDIA's manual gives it, and the structure lives through the call.
        let code = unsafe { function(pid.cast_signed(), &raw mut none) };
        self.judge(what, pid, code)
    }

    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn ask_state(&self, pid: u32, found: &mut c_int) -> c_int {
        // SAFETY: the function has the type that NVIDIA's manual gives it, and writes one integer.
        unsafe { (self.state)(pid.cast_signed(), found) }
    }

    /// Drivers differ in whether they want this before they answer for another process.
    #[expect(unsafe_code, reason = "the driver's library speaks C")]
    fn initialize(&self) {
        if let Some(init) = self.init {
            // SAFETY: the function has the type that NVIDIA's manual gives it. What it says is said again by the next call.
            unsafe { init(0) };
        }
    }
}

impl Checkpointing for Library {
    fn state(&self, pid: u32) -> Result<Option<CheckpointState>, CheckpointError> {
        let mut found = 0;
        let mut code = self.ask_state(pid, &mut found);
        if code == NOT_INITIALIZED {
            self.initialize();
            code = self.ask_state(pid, &mut found);
        }
        self.judge("look at", pid, code)?;
        Ok(match found {
            0 => Some(CheckpointState::Running),
            1 => Some(CheckpointState::Locked),
            2 => Some(CheckpointState::Checkpointed),
            // What a later driver may add is nothing that this program can bring back.
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
        self.judge("lock", pid, code)
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

/// A library that the loader has found.
struct Opened {
    handle: *mut c_void,
    shown: String,
}

impl Opened {
    #[expect(unsafe_code, reason = "opening a library has no safe form")]
    fn open(path: &Path) -> Result<Self, CheckpointError> {
        let shown = path.display().to_string();
        let lacking =
            |why: &str| CheckpointError::Unsupported(format!("{shown} cannot be opened: {why}"));
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| lacking("its name holds a NUL byte"))?;
        // SAFETY: the name ends with a NUL. What runs at its loading is NVIDIA's, or what the config names, in a process
        // that is the step's user's and ends soon.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(lacking(&last_words()));
        }
        Ok(Self { handle, shown })
    }

    #[expect(unsafe_code, reason = "looking up a symbol has no safe form")]
    fn symbol(&self, name: &CStr) -> Result<*mut c_void, CheckpointError> {
        // SAFETY: the handle is open, and the name ends with a NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            return Err(CheckpointError::Unsupported(format!(
                "{} lacks {}: NVIDIA's driver has it from 570 on",
                self.shown,
                name.to_string_lossy()
            )));
        }
        Ok(found)
    }
}

#[expect(unsafe_code, reason = "the loader's message has no safe form")]
fn last_words() -> String {
    // SAFETY: this process has one thread, so the message is not replaced while it is copied.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: it is not null, and ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// A function of the library. `F` is its type, a pointer to a function.
#[expect(unsafe_code, reason = "an address becomes a function")]
fn function<F: Copy>(library: &Opened, name: &CStr) -> Result<F, CheckpointError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = library.symbol(name)?;
    // SAFETY: every `F` of this file is the type that NVIDIA's manual gives the function of that name, and a pointer to a
    // function has the size and the form of the address that the loader gives.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_driver_s() {
        assert_eq!(size_of::<LockArguments>(), 64);
        assert_eq!(size_of::<NoArguments>(), 64);
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
