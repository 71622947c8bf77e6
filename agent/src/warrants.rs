//! The warrants of attempts, one file each: what the coordinator gave with an assignment, shown to it again where it was
//! brought back from a time before it. They hold the whole step, its variables included, encrypted by a key that the
//! coordinator alone has: nothing in them can be read here. Those of an earlier release lie in the clear, so all are for
//! the agent's user alone.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_WARRANT_BYTES;
use sluice_common::warrant::SealedWarrant;
use tracing::warn;

/// The directory that holds them.
pub(crate) struct Warrants {
    dir: PathBuf,
}

impl Warrants {
    /// Those in this state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            dir: state_dir.join("warrants"),
        }
    }

    fn path(&self, attempt: &AttemptId) -> PathBuf {
        self.dir.join(attempt.to_string())
    }

    /// Keeps one. Where that fails the attempt runs all the same, and only a coordinator that lost its store would miss it.
    /// It need not outlive the machine: what it is for does not.
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

    /// What came with an attempt; `None` where it is not there, or is no text of a length that a coordinator gives.
    pub(crate) fn of(&self, attempt: &AttemptId) -> Option<SealedWarrant> {
        let warrant = fs::read_to_string(self.path(attempt)).ok()?;
        let fits = warrant.len() <= MAX_WARRANT_BYTES;
        fits.then(|| SealedWarrant::new(warrant))
    }

    /// The coordinator knows how the attempt ended.
    pub(crate) fn drop(&self, attempt: &AttemptId) {
        let path = self.path(attempt);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("cannot remove {}: {error}", path.display());
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Drops those of attempts that the host does not know: an earlier agent died between the two.
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
