//! What the next agent of this boot must know of the host's GPUs: which did not come free, which have failed, how much of
//! their memory is held when nothing runs on them, and which frozen attempts hold nothing there. A boot resets all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use agent_core::{Holders, KeptGpu, KeptGpus};
use serde::{Deserialize, Serialize};
use sluice_common::id::{AttemptId, BootId};
use tracing::warn;

/// The file that holds it.
pub(crate) struct GpuFile {
    path: PathBuf,
    boot_id: BootId,
}

#[derive(Serialize, Deserialize)]
struct Written {
    boot_id: BootId,
    gpus: BTreeMap<String, WrittenGpu>,
}

#[derive(Serialize, Deserialize)]
struct WrittenGpu {
    idle_bytes: Option<u64>,
    held: Option<WrittenHolders>,
    sick: Option<String>,
    #[serde(default)]
    counted: Option<String>,
    #[serde(default)]
    left_by: BTreeSet<AttemptId>,
}

#[derive(Serialize, Deserialize)]
struct WrittenHolders {
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

    /// What was kept in this boot. One that cannot be read is said and passed over: what is wrong with a GPU is mostly
    /// seen again.
    pub(crate) fn load(&self) -> KeptGpus {
        let written = match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice::<Written>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return KeptGpus::new(),
            Err(error) => Err(error),
        };
        match written {
            Ok(written) if written.boot_id == self.boot_id => {
                let gpus = written.gpus.into_iter();
                gpus.map(|(uuid, gpu)| (uuid, gpu.kept())).collect()
            }
            Ok(_) => KeptGpus::new(),
            Err(error) => {
                warn!(
                    "{} cannot be read, so GPUs that were quarantined count as fit until they are looked at: {error}",
                    self.path.display()
                );
                KeptGpus::new()
            }
        }
    }

    /// Keeps it, durably: written beside, synced, renamed. Where that fails, only an agent that starts anew misses it.
    pub(crate) fn save(&self, kept: &KeptGpus) {
        let gpus = kept.iter();
        let written = Written {
            boot_id: self.boot_id.clone(),
            gpus: gpus
                .map(|(uuid, gpu)| (uuid.clone(), WrittenGpu::of(gpu)))
                .collect(),
        };
        if let Err(error) = self.write(&written) {
            warn!("cannot write {}: {error}", self.path.display());
        }
    }

    fn write(&self, written: &Written) -> io::Result<()> {
        let beside = self.path.with_extension("json.new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(written)?)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        let parent = self.path.parent().expect("the file lies in a directory");
        File::open(parent)?.sync_all()
    }
}

impl WrittenGpu {
    fn of(gpu: &KeptGpu) -> Self {
        let held = gpu.held.as_ref().map(|held| WrittenHolders {
            why: held.why.clone(),
            pids: held.pids.clone(),
        });
        Self {
            idle_bytes: gpu.idle_bytes,
            held,
            sick: gpu.sick.clone(),
            counted: gpu.counted.clone(),
            left_by: gpu.left_by.clone(),
        }
    }

    fn kept(self) -> KeptGpu {
        KeptGpu {
            idle_bytes: self.idle_bytes,
            held: self.held.map(|held| Holders {
                why: held.why,
                pids: held.pids,
            }),
            sick: self.sick,
            counted: self.counted,
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
        assert_eq!(file("one").load(), KeptGpus::new());
        let held = Holders {
            why: "held".to_owned(),
            pids: vec![7],
        };
        let gpu = KeptGpu {
            idle_bytes: Some(5),
            held: Some(held),
            sick: Some("XID 48".to_owned()),
            counted: Some("2 errors".to_owned()),
            left_by: ["a.1".parse().unwrap()].into(),
        };
        let kept = KeptGpus::from([("GPU-a".to_owned(), gpu)]);
        file("one").save(&kept);
        assert_eq!(file("one").load(), kept);
        assert_eq!(file("two").load(), KeptGpus::new());
        fs::write(dir.path().join("gpus.json"), b"{").unwrap();
        assert_eq!(file("one").load(), KeptGpus::new());
    }
}
