//! The one thing that an agent must remember by itself: the highest epoch that this host has obeyed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sluice_common::id::Epoch;

/// The file that holds it.
pub(crate) struct EpochFile {
    path: PathBuf,
}

/// Why the epoch could not be read or kept. An agent that forgot it might obey a coordinator that was replaced, so
/// each of these ends the agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EpochError {
    #[error("cannot read {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{path} is damaged: remove it only if you are sure that no replaced coordinator of this cluster still runs",
        path = path.display()
    )]
    Damaged {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl EpochFile {
    /// The file in this state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join("epoch.json"),
        }
    }

    /// The highest epoch, `None` on a host that never obeyed one.
    pub(crate) fn load(&self) -> Result<Option<Epoch>, EpochError> {
        let path = || self.path.clone();
        match fs::read(&self.path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes)
                    .map(Some)
                    .map_err(|source| EpochError::Damaged {
                        path: path(),
                        source,
                    })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EpochError::Read {
                path: path(),
                source,
            }),
        }
    }

    /// Keeps it, durably: written beside, synced, renamed.
    pub(crate) fn save(&self, epoch: &Epoch) -> Result<(), EpochError> {
        let write = || -> io::Result<()> {
            let beside = self.path.with_extension("json.new");
            let mut file = File::create(&beside)?;
            file.write_all(&serde_json::to_vec(epoch)?)?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)?;
            let parent = self.path.parent().expect("the file lies in a directory");
            File::open(parent)?.sync_all()
        };
        write().map_err(|source| EpochError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::ClusterId;

    #[test]
    fn the_epoch_survives_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = EpochFile::new(dir.path());
        assert_eq!(file.load().unwrap(), None);
        let epoch = Epoch {
            cluster: ClusterId::new("c1").unwrap(),
            counter: 7,
        };
        file.save(&epoch).unwrap();
        assert_eq!(file.load().unwrap(), Some(epoch));
        fs::write(dir.path().join("epoch.json"), b"{\"clus").unwrap();
        let message = file.load().unwrap_err().to_string();
        assert!(message.contains("epoch.json is damaged"), "{message}");
    }
}
