//! What this host has: one file for each detector, and their sum. A detector that cannot answer leaves its part empty
//! and says why in the inventory's notes; none of them fails.

mod host;
mod nvml;
mod storage;

use std::path::Path;

use sluice_common::inventory::Inventory;

use crate::config::Reserve;

/// Asks every detector. Takes milliseconds, with NVML up to seconds where the driver is cold.
///
/// `state_dir` tells which disk counts; `nvml_library` replaces the loader's choice; `reserve` is kept for the system
/// and not reported.
pub(crate) fn inventory(
    state_dir: &Path,
    nvml_library: Option<&Path>,
    reserve: &Reserve,
) -> Inventory {
    let mut inventory = Inventory::default();
    host::detect(&mut inventory);
    storage::detect(state_dir, &mut inventory);
    nvml::detect(nvml_library, &mut inventory);
    keep_back(reserve, &mut inventory);
    inventory
}

fn keep_back(reserve: &Reserve, inventory: &mut Inventory) {
    inventory.cpus = inventory.cpus.saturating_sub(reserve.cpus);
    inventory.memory_bytes = inventory.memory_bytes.saturating_sub(reserve.memory_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

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
