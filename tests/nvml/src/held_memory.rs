//! Memory that a process of a test holds: seen on the GPU while the process lives, and for a while after its death, as
//! with drivers that take their time to give memory back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::resolve::Device;

/// One process and what it holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryHold {
    /// The file to which the process writes its number. Until it is there, nothing is held.
    pid_file: PathBuf,
    used_mib: u32,
    /// How long the memory is held after the process was first seen dead. Left out: until the host file changes.
    linger_ms: Option<u64>,
    /// A process that is shown in place of the dead one while its memory is held; else nobody is.
    lingers_as: Option<u32>,
    /// The folder of the stand-in for CUDA. While the process is checkpointed there, it holds nothing.
    moved_by: Option<PathBuf>,
    /// Whether it is shown all the same then.
    #[serde(default)]
    shown_when_moved: bool,
}

/// What a GPU shows of a hold.
pub(crate) struct HeldMemory {
    pub(crate) pid: Option<u32>,
    pub(crate) bytes: u64,
}

/// When a process was first seen dead, by its file.
static DEATHS: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

/// All that is held so on a GPU now.
pub(crate) fn held(device: &Device) -> impl Iterator<Item = HeldMemory> {
    device.gpu().holds.iter().filter_map(MemoryHold::now)
}

impl MemoryHold {
    fn now(&self) -> Option<HeldMemory> {
        let bytes = u64::from(self.used_mib) << 20;
        let pid = fs::read_to_string(&self.pid_file).ok()?;
        let pid: u32 = pid.trim().parse().ok()?;
        if lives(pid) && self.is_moved(pid) {
            return Some(HeldMemory {
                pid: self.shown_when_moved.then_some(pid),
                bytes: 0,
            });
        }
        if lives(pid) {
            return Some(HeldMemory {
                pid: Some(pid),
                bytes,
            });
        }
        let lingers = self
            .linger_ms
            .is_none_or(|ms| since_death(&self.pid_file) < Duration::from_millis(ms));
        lingers.then_some(HeldMemory {
            pid: self.lingers_as,
            bytes,
        })
    }
}

impl MemoryHold {
    fn is_moved(&self, pid: u32) -> bool {
        let state = self
            .moved_by
            .iter()
            .map(|folder| folder.join(format!("state-{pid}")));
        let mut state = state.filter_map(|file| fs::read_to_string(file).ok());
        state.next().as_deref() == Some("checkpointed")
    }
}

fn since_death(pid_file: &Path) -> Duration {
    let mut deaths = DEATHS.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = deaths.entry(pid_file.to_owned());
    seen.or_insert_with(Instant::now).elapsed()
}

/// Whether a process is there that is more than an entry which nobody has read yet.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}
