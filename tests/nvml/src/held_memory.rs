//! GPU memory that a test's process holds: while it lives, and for a while after its death, like drivers that free
//! memory late.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::resolve::Device;

/// A process, and the memory that it holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryHold {
    /// File to which the process writes its pid. Nothing is held before.
    pid_file: PathBuf,
    used_mib: u32,
    /// Time that the memory is held after the process was first seen dead; absent: until the host file changes.
    linger_ms: Option<u64>,
    /// Process shown instead of the dead one while its memory is held; absent: none.
    lingers_as: Option<u32>,
    /// Folder of the stand-in for CUDA. A process that is checkpointed there holds nothing.
    moved_by: Option<PathBuf>,
    /// Whether it is still listed then.
    #[serde(default)]
    shown_when_moved: bool,
}

/// The part of a hold that a GPU shows.
pub(crate) struct HeldMemory {
    pub(crate) pid: Option<u32>,
    pub(crate) bytes: u64,
}

/// Time at which a process was first seen dead, by its file.
static DEATHS: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

/// Returns everything held on a GPU now.
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

/// Whether a process exists that is more than a zombie.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}
