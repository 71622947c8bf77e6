//! The host file: named by an environment variable, examined at each call, parsed if it has changed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper_sys::bindings as nvml;

use crate::Code;
use crate::host::Host;

/// Environment variable that names the host file.
const FILE_VARIABLE: &str = "SLUICE_NVML_STANDIN";

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

/// Returns the host as it is now. Without a file there is no driver; an invalid file is an unknown error, and standard
/// error says once per version what is wrong.
pub(crate) fn load() -> Result<Arc<Host>, Code> {
    let no_driver = |_| nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
    let path = std::env::var_os(FILE_VARIABLE).ok_or_else(|| no_driver(io::ErrorKind::NotFound))?;
    let path = Path::new(&path);
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
