//! Stores GPU state for the next agent of this boot: quarantined and failed GPUs, idle memory levels, and
//! which suspended attempts hold nothing there. A reboot resets all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::{GpuHolders, StoredGpu, StoredGpus};
use serde::{Deserialize, Serialize};
use sluice_common::id::{AttemptId, BootId};
use tracing::warn;

use crate::durable_file;

/// The file with the state.
pub(crate) struct GpuFile {
    path: PathBuf,
    boot_id: BootId,
}

#[derive(Serialize, Deserialize)]
struct StoredGpuFile {
    boot_id: BootId,
    gpus: BTreeMap<String, GpuEntry>,
}

#[derive(Serialize, Deserialize)]
struct GpuEntry {
    idle_bytes: Option<u64>,
    held: Option<HoldersEntry>,
    sick: Option<String>,
    #[serde(default)]
    counted: Option<String>,
    #[serde(default)]
    accepted: BTreeSet<String>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    left_by: BTreeSet<AttemptId>,
}

#[derive(Serialize, Deserialize)]
struct HoldersEntry {
    why: String,
    pids: Vec<u32>,
}

impl GpuFile {
    /// The file in this state directory, for this boot.
    pub(crate) fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            path: state_dir.join("gpus.json"),
            boot_id,
        }
    }

    /// The state of this boot. An unreadable file is logged and ignored, because most faults will be observed
    /// again.
    pub(crate) fn load(&self) -> StoredGpus {
        let written = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice::<StoredGpuFile>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return StoredGpus::new(),
            Err(error) => Err(error),
        };
        match written {
            Ok(written) if written.boot_id == self.boot_id => {
                let gpus = written.gpus.into_iter();
                gpus.map(|(uuid, gpu)| (uuid, gpu.kept())).collect()
            }
            Ok(_) => StoredGpus::new(),
            Err(error) => {
                warn!(
                    "{} cannot be read, so GPUs that were quarantined count as fit until they are checked: {error}",
                    self.path.display()
                );
                StoredGpus::new()
            }
        }
    }

    /// Stores the state durably, by sync and rename. A failure matters only if the agent restarts.
    pub(crate) fn save(&self, kept: &StoredGpus) {
        let gpus = kept.iter();
        let written = StoredGpuFile {
            boot_id: self.boot_id.clone(),
            gpus: gpus
                .map(|(uuid, gpu)| (uuid.clone(), GpuEntry::of(gpu)))
                .collect(),
        };
        let bytes = serde_json::to_vec(&written).map_err(io::Error::from);
        if let Err(error) = bytes.and_then(|bytes| durable_file::replace(&self.path, &bytes)) {
            warn!("cannot write {}: {error}", self.path.display());
        }
    }
}

impl GpuEntry {
    fn of(gpu: &StoredGpu) -> Self {
        let held = gpu.held.as_ref().map(|held| HoldersEntry {
            why: held.why.clone(),
            pids: held.pids.clone(),
        });
        Self {
            idle_bytes: gpu.idle_bytes,
            held,
            sick: gpu.sick.clone(),
            counted: gpu.counted.clone(),
            accepted: gpu.accepted.clone(),
            parent: gpu.parent.clone(),
            left_by: gpu.left_by.clone(),
        }
    }

    fn kept(self) -> StoredGpu {
        StoredGpu {
            idle_bytes: self.idle_bytes,
            held: self.held.map(|held| GpuHolders {
                why: held.why,
                pids: held.pids,
            }),
            sick: self.sick,
            counted: self.counted,
            accepted: self.accepted,
            parent: self.parent,
            left_by: self.left_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_survives_in_its_boot_alone_and_damage_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = |boot: &str| GpuFile::new(dir.path(), BootId::new(boot).unwrap());
        assert_eq!(file("one").load(), StoredGpus::new());
        let held = GpuHolders {
            why: "held".to_owned(),
            pids: vec![7],
        };
        let gpu = StoredGpu {
            idle_bytes: Some(5),
            held: Some(held),
            sick: Some("XID 48".to_owned()),
            counted: Some("2 errors".to_owned()),
            accepted: ["its compute mode is prohibited".to_owned()].into(),
            parent: Some("GPU-b".to_owned()),
            left_by: ["a.1".parse().unwrap()].into(),
        };
        let kept = StoredGpus::from([("GPU-a".to_owned(), gpu)]);
        file("one").save(&kept);
        assert_eq!(file("one").load(), kept);
        assert_eq!(file("two").load(), StoredGpus::new());
        fs::write(dir.path().join("gpus.json"), b"{").unwrap();
        assert_eq!(file("one").load(), StoredGpus::new());
    }
}
