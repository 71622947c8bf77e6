//! What this host has: one file for each detector, and their sum. A detector that cannot answer leaves its part empty
//! and says why in the inventory's notes; none of them fails.

mod host;
mod nvml;
mod storage;

use std::path::PathBuf;
use std::time::Duration;

use sluice_common::inventory::Inventory;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::config::Reserve;
use crate::engine::Event;

/// Between two looks at the host while the agent runs. A GPU that falls off the bus should be gone from the pool within
/// seconds; a look costs a few calls of the driver.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What detection needs to know, and what it keeps open between two looks.
pub(crate) struct Host {
    state_dir: PathBuf,
    reserve: Reserve,
    driver: nvml::Driver,
}

impl Host {
    /// `state_dir` tells which disk counts; `nvml_library` replaces the loader's choice; `reserve` is kept for the
    /// system and not reported.
    pub(crate) fn new(state_dir: PathBuf, nvml_library: Option<PathBuf>, reserve: Reserve) -> Self {
        Self {
            state_dir,
            reserve,
            driver: nvml::Driver::new(nvml_library),
        }
    }

    /// Asks every detector. Takes milliseconds, with NVML up to seconds where the driver is cold.
    pub(crate) fn look(&mut self) -> Inventory {
        let mut inventory = Inventory::default();
        host::detect(&mut inventory);
        storage::detect(&self.state_dir, &mut inventory);
        self.driver.detect(&mut inventory);
        keep_back(&self.reserve, &mut inventory);
        inventory
    }
}

/// Looks again and again, and tells the loop when the host has changed. Ends with the loop.
///
/// A detector that does not come back holds up the next look and nothing else: what was last seen stays.
pub(crate) async fn watch(mut host: Host, mut last: Inventory, events: mpsc::Sender<Event>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let look = spawn_blocking(move || {
            let found = host.look();
            (host, found)
        });
        let Ok((back, found)) = look.await else {
            warn!("detection has died of a defect: what was last seen stays");
            return std::future::pending().await;
        };
        host = back;
        if found == last {
            continue;
        }
        info!(
            gpus = found.gpus.len(),
            cpus = found.cpus,
            "the host has changed"
        );
        found
            .notes
            .iter()
            .filter(|note| !last.notes.contains(note))
            .for_each(|note| warn!("{note}"));
        last = found.clone();
        if events
            .send(Event::HostChanged(Box::new(found)))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn keep_back(reserve: &Reserve, inventory: &mut Inventory) {
    inventory.cpus = inventory.cpus.saturating_sub(reserve.cpus);
    inventory.memory_bytes = inventory.memory_bytes.saturating_sub(reserve.memory_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn inventory(dir: &Path, library: Option<&Path>, reserve: &Reserve) -> Inventory {
        Host::new(dir.into(), library.map(Path::to_path_buf), reserve.clone()).look()
    }

    #[test]
    fn a_host_reports_itself_less_what_is_kept_back() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = Reserve {
            cpus: 0,
            memory_bytes: 0,
        };
        let whole = inventory(dir.path(), None, &nothing);
        assert!(
            whole.cpus > 0 && whole.memory_bytes > 0 && whole.storage_bytes > 0,
            "{whole:?}"
        );
        assert!(!whole.kernel.is_empty() && !whole.arch.is_empty());

        let reserve = Reserve {
            cpus: 1,
            memory_bytes: 1 << 20,
        };
        let rest = inventory(dir.path(), None, &reserve);
        assert_eq!(rest.cpus, whole.cpus - 1);
        assert_eq!(rest.memory_bytes, whole.memory_bytes - (1 << 20));
    }

    #[test]
    fn a_library_that_is_not_there_leaves_a_cpu_only_host_and_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("libnvidia-ml.so.1");
        let found = inventory(
            dir.path(),
            Some(&missing),
            &Reserve {
                cpus: 0,
                memory_bytes: 0,
            },
        );
        assert!(found.gpus.is_empty() && found.driver.is_none());
        assert!(
            found.notes.iter().any(|note| note.contains("libnvidia-ml")),
            "{:?}",
            found.notes
        );
    }
}
