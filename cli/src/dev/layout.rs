//! Files of `sluice dev`: its folder, temporary or given, the lock, and the daemons' programs beside this one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Longest name of a socket below the folder: the supervisor's while it is made.
const LONGEST_SOCKET: &str = "supervisor/supervisor.sock.new";
/// Longest path of a Unix socket in bytes.
const MAX_SOCKET_BYTES: usize = 107;

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// A folder or file could not be made or read.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another `dev` uses it.
    #[error("another `sluice dev` (process {pid}) works in {}: stop it first, or choose another folder with --data", dir.display())]
    Taken {
        dir: PathBuf,
        /// Process id of the other `dev`, if known.
        pid: String,
    },
    /// The path is too long for a socket below it.
    #[error(
        "{} is too long a path for the sockets in it (by {over} bytes): choose a shorter one with --data",
        dir.display()
    )]
    TooLong { dir: PathBuf, over: usize },
    /// The path is not UTF-8, so no config can name it.
    #[error("{} is not UTF-8: choose another folder with --data", dir.display())]
    NotUtf8 { dir: PathBuf },
    /// A daemon's program is missing.
    #[error(
        "{name} is not beside this program in {}: build it with `cargo build -p {package}`, or install the whole package",
        dir.display()
    )]
    NoProgram {
        name: &'static str,
        /// Package that builds it.
        package: &'static str,
        /// Folder that was searched.
        dir: PathBuf,
    },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    let path = path.to_owned();
    move |source| LayoutError::Io {
        action,
        path,
        source,
    }
}

/// Paths of the daemons' programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) coordinator: PathBuf,
    pub(super) supervisor: PathBuf,
    pub(super) agent: PathBuf,
}

impl Programs {
    /// Finds the programs beside this one, links resolved.
    pub(super) fn find() -> Result<Self, LayoutError> {
        let us = std::env::current_exe().map_err(failed("find", Path::new("our own program")))?;
        Self::in_dir(us.parent().unwrap_or(Path::new("/")))
    }

    fn in_dir(dir: &Path) -> Result<Self, LayoutError> {
        let find = |name: &'static str| {
            let path = dir.join(name);
            let found = path.is_file().then_some(path);
            found.ok_or_else(|| LayoutError::NoProgram {
                name,
                package: name,
                dir: dir.to_owned(),
            })
        };
        let coordinator = find("sluice-coordinator")?;
        let supervisor = find("sluice-supervisor")?;
        // The supervisor finds the helper itself.
        find("sluice-helper")?;
        Ok(Self {
            coordinator,
            supervisor,
            agent: find("sluice-agent")?,
        })
    }
}

/// The locked folder. A temporary one is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    lock: File,
    temporary: Option<TempDir>,
    unclean: bool,
}

impl Layout {
    /// Opens `data`, made if absent, or a new temporary folder.
    pub(super) fn open(data: Option<&Path>) -> Result<Self, LayoutError> {
        let temporary = match data {
            Some(_) => None,
            None => Some(temporary_dir()?),
        };
        let root = match (&temporary, data) {
            (Some(dir), _) => dir.path().to_owned(),
            (None, data) => made(data.unwrap_or(Path::new(".")))?,
        };
        let root = fs::canonicalize(&root).map_err(failed("resolve", &root))?;
        check_path(&root)?;
        let (lock, unclean) = lock(&root)?;
        let layout = Self {
            root,
            lock,
            temporary,
            unclean,
        };
        made(&layout.logs_dir())?;
        Ok(layout)
    }

    /// Returns the folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder is removed at the end.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Whether the last `dev` here was killed, so that its children may still be ending.
    pub(super) fn was_left_unclean(&self) -> bool {
        self.unclean
    }

    pub(super) fn coordinator_dir(&self) -> PathBuf {
        self.root.join("coordinator")
    }

    /// Returns the paths of this machine as a host.
    pub(super) fn this_host(&self) -> Result<HostPaths, LayoutError> {
        HostPaths::open(self.root.clone(), String::new())
    }

    /// Returns the paths of a declared host.
    pub(super) fn made_host(&self, name: &str) -> Result<HostPaths, LayoutError> {
        let dir = self.root.join("hosts").join(name);
        check_path(&dir)?;
        HostPaths::open(dir, format!("{name}."))
    }

    pub(super) fn token_file(&self) -> PathBuf {
        self.root.join("api-token")
    }

    pub(super) fn context_file(&self) -> PathBuf {
        self.root.join("context.json")
    }

    pub(super) fn logs_dir(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Writes a file that only its owner may read.
    pub(super) fn write_private(&self, path: &Path, text: &str) -> Result<(), LayoutError> {
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, path))
            .map_err(failed("write", path))
    }

    /// Marks a clean end in the lock, and removes a temporary folder.
    pub(super) fn close(self) -> Result<(), LayoutError> {
        let root = self.root.clone();
        self.lock
            .set_len(0)
            .map_err(failed("write the lock of", &root))?;
        match self.temporary {
            Some(dir) => dir.close().map_err(failed("remove", &root)),
            None => Ok(()),
        }
    }
}

/// Paths of one host's agent and supervisor.
#[derive(Clone, Debug)]
pub(super) struct HostPaths {
    dir: PathBuf,
    /// Prefix of its log files.
    prefix: String,
}

impl HostPaths {
    fn open(dir: PathBuf, prefix: String) -> Result<Self, LayoutError> {
        let place = Self { dir, prefix };
        made(&place.agent_dir())?;
        Ok(place)
    }

    pub(super) fn supervisor_dir(&self) -> PathBuf {
        self.dir.join("supervisor")
    }

    pub(super) fn supervisor_socket(&self) -> PathBuf {
        self.supervisor_dir().join("supervisor.sock")
    }

    pub(super) fn agent_dir(&self) -> PathBuf {
        self.dir.join("agent")
    }

    pub(super) fn agent_config(&self) -> PathBuf {
        self.agent_dir().join("agent.toml")
    }

    pub(super) fn supervisor_config(&self) -> PathBuf {
        self.dir.join("supervisor.toml")
    }

    pub(super) fn agent_tls(&self) -> PathBuf {
        self.agent_dir().join("tls")
    }

    /// Returns the path of the declared inventory.
    pub(super) fn declared(&self) -> PathBuf {
        self.agent_dir().join("declared.json")
    }

    /// Returns the name of a daemon's log.
    pub(super) fn log(&self, daemon: &str) -> String {
        format!("{}{daemon}", self.prefix)
    }
}

fn temporary_dir() -> Result<TempDir, LayoutError> {
    let temp = std::env::temp_dir();
    tempfile::Builder::new()
        .prefix("sluice-dev-")
        .tempdir()
        .map_err(failed("make a temporary folder in", &temp))
}

/// Makes a folder that others may traverse but not list: steps of other users need their own output.
fn made(dir: &Path) -> Result<PathBuf, LayoutError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
        .map_err(failed("make", dir))?;
    Ok(dir.to_owned())
}

fn check_path(root: &Path) -> Result<(), LayoutError> {
    let dir = || root.to_owned();
    if root.to_str().is_none() {
        return Err(LayoutError::NotUtf8 { dir: dir() });
    }
    let socket = root.join(LONGEST_SOCKET).as_os_str().as_bytes().len();
    match socket.checked_sub(MAX_SOCKET_BYTES) {
        Some(over @ 1..) => Err(LayoutError::TooLong { dir: dir(), over }),
        _ => Ok(()),
    }
}

/// Takes the lock and writes our process id into it; returns whether it held one that was never removed.
fn lock(root: &Path) -> Result<(File, bool), LayoutError> {
    let path = root.join("dev.lock");
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut file = options.open(&path).map_err(failed("open", &path))?;
    let mut pid = String::new();
    file.read_to_string(&mut pid)
        .map_err(failed("read", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = if pid.trim().is_empty() {
                "unknown"
            } else {
                pid.trim()
            };
            return Err(LayoutError::Taken {
                dir: root.to_owned(),
                pid: pid.escape_default().to_string(),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write", &path))?;
    Ok((file, !pid.trim().is_empty()))
}

/// Makes a node name of the host name: invalid characters become dashes.
pub(super) fn node_name(host: &OsString) -> String {
    let host = host.to_string_lossy();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = host
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name: String = name
        .chars()
        .take(sluice_common::id::MAX_NAME_BYTES)
        .collect();
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::NodeName;

    #[test]
    fn any_host_name_becomes_a_node_name() {
        for (host, name) in [
            ("gpu-1.example.com", "gpu-1.example.com"),
            ("my laptop", "my-laptop"),
            ("-x", "x"),
            ("", "localhost"),
            ("é", "localhost"),
        ] {
            assert_eq!(node_name(&OsString::from(host)), name);
        }
        let long = node_name(&OsString::from("a".repeat(100)));
        assert!(NodeName::new(long).is_ok());
    }

    #[test]
    fn a_folder_is_made_locked_and_told_clean_from_unclean() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("a/b");
        let first = Layout::open(Some(&dir)).unwrap();
        assert!(!first.was_left_unclean() && !first.is_temporary());
        let refusal = Layout::open(Some(&dir)).unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("process {}", std::process::id())),
            "{refusal}"
        );
        drop(first);
        let second = Layout::open(Some(&dir)).unwrap();
        assert!(
            second.was_left_unclean(),
            "the first was dropped without being closed"
        );
        second.close().unwrap();
        assert!(!Layout::open(Some(&dir)).unwrap().was_left_unclean());
    }

    #[test]
    fn a_temporary_folder_goes_with_us() {
        let layout = Layout::open(None).unwrap();
        let root = layout.root().to_owned();
        assert!(root.is_dir() && layout.is_temporary());
        layout.close().unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_path_that_no_socket_fits_below_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let refusal = Layout::open(Some(&base.path().join("x".repeat(100)))).unwrap_err();
        assert!(matches!(refusal, LayoutError::TooLong { .. }), "{refusal}");
    }

    #[test]
    fn a_missing_daemon_is_named_with_the_way_to_build_it() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("sluice-coordinator")).unwrap();
        let refusal = Programs::in_dir(dir.path()).unwrap_err().to_string();
        assert!(
            refusal.contains("cargo build -p sluice-supervisor"),
            "{refusal}"
        );
    }
}
