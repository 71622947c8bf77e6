//! The host file: named by an environment variable, examined at each call, parsed if it has changed.

use std::ffi::{CStr, OsStr};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper_sys::bindings as nvml;
use serde_json::Value;

use crate::host::Host;
use crate::{Code, NvmlResult};

/// Environment variable that names the host file.
const FILE_VARIABLE: &str = "SLUICE_NVML_STANDIN";

/// Ending of the host file beside this library.
const BESIDE: &str = ".json";

/// Identity of a parsed file. A rename changes the inode, a write in place the time or the size.
#[derive(PartialEq)]
struct FileStamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Result of the last parse.
struct ParsedFile {
    stamp: FileStamp,
    host: Result<Arc<Host>, Code>,
}

static LAST: Mutex<Option<ParsedFile>> = Mutex::new(None);

/// Returns the path of the host file: the one that the variable names, else the one beside this library. A helper of the
/// supervisor has no variables, so a test gives it a link to the library with a host file beside it.
fn path() -> Option<PathBuf> {
    let named = std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
    named.or_else(|| {
        let mut library = own_path()?.into_os_string();
        library.push(BESIDE);
        Some(PathBuf::from(library)).filter(|path| path.exists())
    })
}

/// Returns the path by which this library was loaded.
fn own_path() -> Option<PathBuf> {
    // SAFETY: the structure holds only pointers, for which null is a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here: fn() -> Option<PathBuf> = own_path;
    // SAFETY: any address may be asked for, and `found` is writable.
    let is_found = unsafe { libc::dladdr(here as *const libc::c_void, &raw mut found) } != 0;
    let name = Some(found.dli_fname).filter(|name| is_found && !name.is_null())?;
    // SAFETY: the loader's text ends with a NUL.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Changes the file, as a call that changes the host does.
pub(crate) fn change(edit: impl FnOnce(&mut Value) -> NvmlResult) -> NvmlResult {
    let unknown = nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN;
    let path = path().ok_or(unknown)?;
    let text = fs::read(&path).map_err(|_| unknown)?;
    let mut host: Value = serde_json::from_slice(&text).map_err(|_| unknown)?;
    edit(&mut host)?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}", std::process::id()));
    fs::write(&beside, host.to_string()).map_err(|_| unknown)?;
    fs::rename(&beside, &path).map_err(|_| unknown)
}

/// Returns the host as it is now. Without a file there is no driver; an invalid file is an unknown error, and standard
/// error says once per version what is wrong.
pub(crate) fn load() -> Result<Arc<Host>, Code> {
    let no_driver = |_| nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
    let path = path().ok_or_else(|| no_driver(io::ErrorKind::NotFound))?;
    let path = path.as_path();
    let metadata = fs::metadata(path).map_err(|error| no_driver(error.kind()))?;
    let stamp = FileStamp::of(path, &metadata);
    // Replaced as a whole, so no panic leaves it half-changed.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(parsed) = last.as_ref().filter(|parsed| parsed.stamp == stamp) {
        return parsed.host.clone();
    }
    let text = fs::read(path).map_err(|error| no_driver(error.kind()))?;
    let host = parse(path, &text);
    *last = Some(ParsedFile {
        stamp,
        host: host.clone(),
    });
    host
}

#[expect(
    clippy::print_stderr,
    reason = "NVML has no way to say what is wrong with a file, and a test must not guess"
)]
fn parse(path: &Path, text: &[u8]) -> Result<Arc<Host>, Code> {
    let parsed = serde_json::from_slice::<Host>(text)
        .map_err(|error| error.to_string())
        .and_then(Host::checked);
    parsed.map(Arc::new).map_err(|error| {
        eprintln!("the NVML stand-in cannot read {}: {error}", path.display());
        nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN
    })
}
