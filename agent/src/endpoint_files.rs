//! Stores ports, probes and readiness of attempts, one file each beside their warrants, so that an agent that is started
//! again gives no port twice and knows what was ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agent_core::StoredEndpoint;
use serde::{Deserialize, Serialize};
use sluice_common::id::{AttemptId, BootId};
use sluice_common::port::{MAX_PORTS, PortName};
use sluice_common::probe::Probes;
use sluice_common::supervision::BootMillis;
use tracing::warn;

/// Largest file: two probes with the longest commands and paths.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The directory of the files.
pub(crate) struct EndpointFiles {
    dir: PathBuf,
    boot_id: BootId,
}

#[derive(Serialize, Deserialize)]
struct EndpointFile {
    boot_id: BootId,
    ports: Vec<(PortName, u16)>,
    probes: Probes,
    #[serde(default)]
    is_measured: bool,
    is_ready: bool,
    times_ready: u32,
    ready_at: BootMillis,
}

impl EndpointFiles {
    /// The files in this state directory, for this boot.
    pub(crate) fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            dir: state_dir.join("endpoints"),
            boot_id,
        }
    }

    /// Stores an endpoint. Not synced, because no attempt outlives a crash of the host. If it fails, the attempt runs
    /// anyway, and the next agent does not know its ports.
    pub(crate) fn keep(&self, attempt: &AttemptId, endpoint: StoredEndpoint) {
        let path = self.dir.join(attempt.to_string());
        if let Err(error) = self.write(&path, endpoint) {
            warn!("cannot write {}: {error}", path.display());
        }
    }

    fn write(&self, path: &Path, endpoint: StoredEndpoint) -> io::Result<()> {
        let StoredEndpoint {
            ports,
            probes,
            is_measured,
            is_ready,
            times_ready,
            ready_at,
        } = endpoint;
        let file = EndpointFile {
            boot_id: self.boot_id.clone(),
            ports,
            probes,
            is_measured,
            is_ready,
            times_ready,
            ready_at,
        };
        let bytes = serde_json::to_vec(&file)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let beside = self.dir.join(".new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&bytes)?;
        fs::rename(&beside, path)
    }

    /// The endpoints of this boot. An unreadable file is logged and ignored.
    pub(crate) fn load(&self) -> BTreeMap<AttemptId, StoredEndpoint> {
        let attempts = self.attempts().into_iter();
        let endpoints = attempts.filter_map(|attempt| {
            let path = self.dir.join(attempt.to_string());
            match self.read(&path) {
                Ok(found) => Some((attempt, found?)),
                Err(error) => {
                    warn!(
                        "{} cannot be read, so the ports of the attempt may be given again: {error}",
                        path.display()
                    );
                    None
                }
            }
        });
        endpoints.collect()
    }

    /// The endpoint in a file; `None` if it is of an earlier boot.
    fn read(&self, path: &Path) -> io::Result<Option<StoredEndpoint>> {
        if fs::symlink_metadata(path)?.len() > MAX_FILE_BYTES {
            return Err(io::Error::other("it is too large"));
        }
        let file: EndpointFile = serde_json::from_slice(&fs::read(path)?)?;
        if file.ports.len() > MAX_PORTS {
            return Err(io::Error::other("it has too many ports"));
        }
        Ok((file.boot_id == self.boot_id).then_some(StoredEndpoint {
            ports: file.ports,
            probes: file.probes,
            is_measured: file.is_measured,
            is_ready: file.is_ready,
            times_ready: file.times_ready,
            ready_at: file.ready_at,
        }))
    }

    fn attempts(&self) -> Vec<AttemptId> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok()).collect()
    }

    /// Removes a file, because the attempt is forgotten and its ports are free.
    pub(crate) fn drop(&self, attempt: &AttemptId) {
        let path = self.dir.join(attempt.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("cannot remove {}: {error}", path.display());
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Removes the files of attempts that the host does not know, which an agent that died may have left.
    pub(crate) fn retain(&self, known: &BTreeSet<AttemptId>) {
        let attempts = self.attempts().into_iter();
        let unknown = attempts.filter(|attempt| !known.contains(attempt));
        unknown.for_each(|attempt| self.drop(&attempt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn attempt(id: &str) -> AttemptId {
        id.parse().unwrap()
    }

    #[test]
    fn ports_are_kept_for_the_agent_alone_until_the_boot_or_the_attempt_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let boot = |id: &str| BootId::new(id).unwrap();
        let files = EndpointFiles::new(dir.path(), boot("b1"));
        assert!(files.load().is_empty());
        let endpoint = StoredEndpoint {
            ports: vec![("http".parse().unwrap(), 20_000)],
            is_measured: true,
            is_ready: true,
            times_ready: 3,
            ready_at: BootMillis(7),
            ..StoredEndpoint::default()
        };
        files.keep(&attempt("a.1"), endpoint.clone());
        files.keep(&attempt("b.1"), endpoint.clone());
        let path = dir.path().join("endpoints/a.1");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(files.load()[&attempt("a.1")], endpoint);
        fs::write(dir.path().join("endpoints/c.1"), "{").unwrap();
        assert_eq!(files.load().len(), 2);
        assert!(EndpointFiles::new(dir.path(), boot("b2")).load().is_empty());
        files.retain(&[attempt("b.1")].into());
        files.drop(&attempt("b.1"));
        files.drop(&attempt("b.1"));
        assert!(files.load().is_empty());
    }
}
