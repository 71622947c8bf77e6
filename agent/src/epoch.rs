//! Stores the highest epoch that this host has obeyed, with the seal that proves it to a coordinator.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_common::epoch::{EPOCH_SEAL_BYTES, EpochSeal, MAX_EPOCH, SealedEpoch};
use sluice_common::hex;
use sluice_common::id::{ClusterId, Epoch};
use tracing::warn;

use crate::durable_file;

/// The file with the epoch.
pub(crate) struct EpochFile {
    path: PathBuf,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredEpoch {
    cluster: ClusterId,
    counter: u64,
    /// Hex digits of the seal; earlier releases had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// Why the epoch cannot be read or stored. Without it the agent might obey a coordinator that was replaced,
/// so each error ends the agent.
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

    /// The highest epoch; `None` on a host that never obeyed one. An impossible number was invented by
    /// another host, at a time when coordinators believed it: the number is forgotten, but not the cluster.
    pub(crate) fn load(&self) -> Result<Option<SealedEpoch>, EpochError> {
        let Some(known) = self.read()? else {
            return Ok(None);
        };
        if known.epoch.counter <= MAX_EPOCH {
            return Ok(Some(known));
        }
        warn!(
            "{} holds epoch {}, which no coordinator can have reached: it is forgotten, and the next coordinator of cluster \
             `{}` is obeyed",
            self.path.display(),
            known.epoch.counter,
            known.epoch.cluster
        );
        Ok(Some(unobeyed(known.epoch.cluster)))
    }

    /// Forgets the number and keeps the cluster; returns what was forgotten.
    pub(crate) fn forget(&self) -> Result<Option<Epoch>, EpochError> {
        let Some(known) = self.read()? else {
            return Ok(None);
        };
        self.save(&unobeyed(known.epoch.cluster.clone()))?;
        Ok(Some(known.epoch))
    }

    fn read(&self) -> Result<Option<SealedEpoch>, EpochError> {
        let path = || self.path.clone();
        let written = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice::<StoredEpoch>(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(EpochError::Read {
                    path: path(),
                    source,
                });
            }
        };
        let written = written.map_err(|source| EpochError::Damaged {
            path: path(),
            source,
        })?;
        Ok(Some(written.into()))
    }

    /// Stores the epoch durably, by sync and rename.
    pub(crate) fn save(&self, epoch: &SealedEpoch) -> Result<(), EpochError> {
        let bytes = serde_json::to_vec(&StoredEpoch::from(epoch)).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| durable_file::replace(&self.path, &bytes));
        written.map_err(|source| EpochError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

/// Coordinators count from 1, so every epoch of this cluster is higher.
fn unobeyed(cluster: ClusterId) -> SealedEpoch {
    Epoch {
        cluster,
        counter: 0,
    }
    .into()
}

impl From<&SealedEpoch> for StoredEpoch {
    fn from(epoch: &SealedEpoch) -> Self {
        let SealedEpoch { epoch, seal } = epoch;
        Self {
            cluster: epoch.cluster.clone(),
            counter: epoch.counter,
            seal: seal.map(|seal| hex::encode(&seal.0)),
        }
    }
}

impl From<StoredEpoch> for SealedEpoch {
    fn from(written: StoredEpoch) -> Self {
        let StoredEpoch {
            cluster,
            counter,
            seal,
        } = written;
        // A damaged seal proves nothing; the coordinator reports that if it matters.
        let seal = seal.and_then(|digits| hex::decode::<EPOCH_SEAL_BYTES>(&digits));
        Self {
            epoch: Epoch { cluster, counter },
            seal: seal.map(EpochSeal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(counter: u64) -> SealedEpoch {
        SealedEpoch {
            epoch: Epoch {
                cluster: ClusterId::new("c1").unwrap(),
                counter,
            },
            seal: Some(EpochSeal([7; EPOCH_SEAL_BYTES])),
        }
    }

    #[test]
    fn the_epoch_survives_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = EpochFile::new(dir.path());
        assert_eq!(file.load().unwrap(), None);
        file.save(&sealed(7)).unwrap();
        assert_eq!(file.load().unwrap(), Some(sealed(7)));
        fs::write(dir.path().join("epoch.json"), b"{\"clus").unwrap();
        let message = file.load().unwrap_err().to_string();
        assert!(message.contains("epoch.json is damaged"), "{message}");
    }

    #[test]
    fn what_agents_without_seals_wrote_is_read_and_what_cannot_be_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = EpochFile::new(dir.path());
        let write = |counter: u64| {
            let text = format!(r#"{{"cluster":"c1","counter":{counter}}}"#);
            fs::write(dir.path().join("epoch.json"), text).unwrap();
        };
        let cluster = ClusterId::new("c1").unwrap();
        write(7);
        let known = file.load().unwrap().unwrap();
        assert_eq!((known.epoch.counter, known.seal), (7, None));
        write((1 << 53) + 1);
        assert_eq!(file.load().unwrap(), Some(unobeyed(cluster)));
    }

    #[test]
    fn what_is_forgotten_is_the_number_and_not_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let file = EpochFile::new(dir.path());
        assert_eq!(file.forget().unwrap(), None);
        file.save(&sealed(900)).unwrap();
        assert_eq!(file.forget().unwrap(), Some(sealed(900).epoch));
        let known = file.load().unwrap().unwrap();
        assert_eq!((known.epoch.counter, known.seal), (0, None));
        assert_eq!(known.epoch.cluster.as_str(), "c1");
    }
}
