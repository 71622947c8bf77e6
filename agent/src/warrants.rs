//! Stores the warrants of attempts, one file each: the coordinator sends one with each assignment, and gets
//! it back if it was restored from an older backup. A warrant contains the whole step with its variables,
//! encrypted with a key that only the coordinator has. Warrants of earlier releases are not encrypted, so
//! only the agent's user can read the files.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_WARRANT_BYTES;
use sluice_common::warrant::SealedWarrant;
use tracing::warn;

/// The directory of the files.
pub(crate) struct Warrants {
    dir: PathBuf,
}

impl Warrants {
    /// The directory in this state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            dir: state_dir.join("warrants"),
        }
    }

    fn path(&self, attempt: &AttemptId) -> PathBuf {
        self.dir.join(attempt.to_string())
    }

    /// Stores a warrant. If that fails, the attempt runs anyway, and only a coordinator that lost its store
    /// would miss it. Not synced, because a warrant is of no use after a crash of the host.
    pub(crate) fn keep(&self, attempt: &AttemptId, warrant: &SealedWarrant) {
        let path = self.path(attempt);
        if let Err(error) = self.write(&path, warrant.as_str()) {
            warn!("cannot write {}: {error}", path.display());
        }
    }

    fn write(&self, path: &Path, warrant: &str) -> io::Result<()> {
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
        file.write_all(warrant.as_bytes())?;
        fs::rename(&beside, path)
    }

    /// The warrant of an attempt; `None` if it is missing or has an impossible length.
    pub(crate) fn of(&self, attempt: &AttemptId) -> Option<SealedWarrant> {
        let warrant = fs::read_to_string(self.path(attempt)).ok()?;
        let fits = warrant.len() <= MAX_WARRANT_BYTES;
        fits.then(|| SealedWarrant::new(warrant))
    }

    /// Removes a warrant, because the coordinator knows how the attempt ended.
    pub(crate) fn drop(&self, attempt: &AttemptId) {
        let path = self.path(attempt);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("cannot remove {}: {error}", path.display());
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Removes the warrants of attempts that the host does not know, which an agent that died may have left.
    pub(crate) fn retain(&self, known: &BTreeSet<AttemptId>) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let attempt = name
                .to_str()
                .and_then(|name| name.parse::<AttemptId>().ok());
            if let Some(attempt) = attempt.filter(|attempt| !known.contains(attempt)) {
                self.drop(&attempt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn attempt(id: &str) -> AttemptId {
        id.parse().unwrap()
    }

    fn sealed(text: &str) -> SealedWarrant {
        SealedWarrant::new(text.to_owned())
    }

    #[test]
    fn a_warrant_is_kept_for_the_agent_alone_until_its_attempt_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let warrants = Warrants::new(dir.path());
        assert_eq!(warrants.of(&attempt("a.1")), None);
        warrants.keep(&attempt("a.1"), &sealed("one"));
        warrants.keep(&attempt("a.2"), &sealed("two"));
        warrants.keep(&attempt("b.1"), &sealed("three"));
        assert_eq!(warrants.of(&attempt("a.1")), Some(sealed("one")));
        for (path, mode) in [("warrants", 0o700), ("warrants/a.1", 0o600)] {
            let found = fs::metadata(dir.path().join(path)).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode, "{path}");
        }
        warrants.drop(&attempt("a.1"));
        warrants.drop(&attempt("a.1"));
        assert_eq!(warrants.of(&attempt("a.1")), None);
        warrants.retain(&[attempt("b.1")].into());
        assert_eq!(warrants.of(&attempt("a.2")), None);
        assert_eq!(warrants.of(&attempt("b.1")), Some(sealed("three")));
    }
}
