//! Consequences of GPU failures: errors that the driver reports by number (XIDs), uncorrectable memory
//! errors, throttled clocks. `docs/gpu-health.md` has the same table for admins.

use std::collections::BTreeMap;

use agent_core::GpuHealth;
use sluice_common::inventory::{Gpu, GpuReading};
use tracing::warn;

/// Consequence of an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XidAction {
    /// None: a program caused it, and its own exit shows that.
    BlameStep,
    /// A log line; the GPU stays in service.
    Note,
    /// The GPU is not granted until an admin returns it to service.
    Quarantine,
    /// The host is drained, because only a reboot helps.
    Drain,
}

/// XIDs with NVIDIA's numbers and names. Those caused by programs rather than hardware are the ones that
/// NVIDIA's device plugin for Kubernetes ignores. Those for which NVIDIA's catalog recommends a reset or
/// inspection quarantine the GPU.
const XIDS: [(u64, XidAction, &str); 30] = [
    (13, XidAction::BlameStep, "graphics engine exception"),
    (31, XidAction::BlameStep, "GPU memory page fault"),
    (43, XidAction::BlameStep, "GPU stopped processing"),
    (
        45,
        XidAction::BlameStep,
        "preemptive cleanup, due to previous errors",
    ),
    (
        46,
        XidAction::Quarantine,
        "GPU stopped processing (timeout)",
    ),
    (48, XidAction::Quarantine, "double bit ECC error"),
    (
        54,
        XidAction::Quarantine,
        "auxiliary power is not connected",
    ),
    (62, XidAction::Quarantine, "internal micro-controller halt"),
    (
        63,
        XidAction::Note,
        "ECC page retirement or row remapping recorded",
    ),
    (
        64,
        XidAction::Quarantine,
        "ECC page retirement or row remapping failed",
    ),
    (68, XidAction::BlameStep, "NVDEC exception"),
    (74, XidAction::Quarantine, "NVLink error"),
    (79, XidAction::Drain, "GPU has fallen off the bus"),
    (92, XidAction::Note, "high rate of single bit ECC errors"),
    (94, XidAction::Quarantine, "contained ECC error"),
    (95, XidAction::Quarantine, "uncontained ECC error"),
    (109, XidAction::BlameStep, "context switch timeout"),
    (110, XidAction::Quarantine, "security fault"),
    (119, XidAction::Drain, "GSP RPC timeout"),
    (120, XidAction::Drain, "GSP error"),
    (121, XidAction::Note, "corrected error on the C2C NVLink"),
    (136, XidAction::Quarantine, "link training failed"),
    (140, XidAction::Quarantine, "unrecovered ECC error"),
    (143, XidAction::Quarantine, "GPU initialization failure"),
    (149, XidAction::Quarantine, "NVLink NETIR error"),
    (151, XidAction::Quarantine, "key rotation error"),
    (156, XidAction::Quarantine, "resource retirement"),
    (158, XidAction::Quarantine, "GPU fatal timeout"),
    (171, XidAction::Quarantine, "uncorrectable DRAM error"),
    (172, XidAction::Quarantine, "uncorrectable SRAM error"),
];

/// Consequence and name of an XID; an unlisted one is logged.
pub(crate) fn of_xid(xid: u64) -> (XidAction, &'static str) {
    let known = XIDS.iter().find(|(number, ..)| *number == xid);
    known.map_or(
        (XidAction::Note, "see NVIDIA's list"),
        |(_, action, name)| (*action, *name),
    )
}

/// Failures handled before, so that each is handled once: a higher count is a new failure, even on a GPU that
/// an admin has returned to service.
#[derive(Debug, Default)]
pub(crate) struct SeenFailures {
    xids: BTreeMap<(String, u64), u64>,
    ecc: BTreeMap<String, u64>,
    slowed: BTreeMap<String, &'static str>,
}

impl SeenFailures {
    /// New failures in these readings. `xids` are all XIDs so far, by whole GPU.
    pub(crate) fn new_failures(
        &mut self,
        gpus: &[Gpu],
        readings: &[GpuReading],
        xids: &BTreeMap<String, BTreeMap<u64, u64>>,
    ) -> Vec<GpuHealth> {
        let mut new_failures = Vec::new();
        for (gpu, raised) in xids {
            for (xid, count) in raised {
                if grew(&mut self.xids, (gpu.clone(), *xid), *count) {
                    new_failures.extend(of_raised(gpus, gpu, *xid));
                }
            }
        }
        for reading in readings {
            let lost = reading.ecc_uncorrected.unwrap_or(0);
            if grew(&mut self.ecc, reading.uuid.clone(), lost) {
                let why = format!("{lost} errors of its memory could not be corrected");
                new_failures.extend(quarantine(gpus, &reading.uuid, &why, true));
            }
        }
        new_failures
    }

    /// Logs once which GPUs are throttled, and why.
    pub(crate) fn note_slowed(&mut self, slowed: &BTreeMap<String, &'static str>) {
        for (gpu, why) in slowed {
            if self.slowed.get(gpu) != Some(why) {
                warn!(gpu, "a GPU is slowed down: {why}");
            }
        }
        self.slowed.clone_from(slowed);
    }
}

/// Whether a count has grown. A lower count means that the GPU was reset.
fn grew<K: Ord>(before: &mut BTreeMap<K, u64>, key: K, count: u64) -> bool {
    count > before.insert(key, count).unwrap_or(0)
}

fn of_raised(gpus: &[Gpu], gpu: &str, xid: u64) -> Vec<GpuHealth> {
    let (action, name) = of_xid(xid);
    let why = format!("XID {xid}, {name}");
    match action {
        XidAction::BlameStep | XidAction::Note => Vec::new(),
        XidAction::Quarantine => quarantine(gpus, gpu, &why, false),
        XidAction::Drain => vec![GpuHealth::Drain {
            why: format!("GPU {gpu}: {why}"),
        }],
    }
}

/// Quarantines a GPU, or all instances of a MIG GPU.
fn quarantine(gpus: &[Gpu], uuid: &str, why: &str, is_count: bool) -> Vec<GpuHealth> {
    let is_meant = |gpu: &&Gpu| {
        let parent = gpu.mig.as_ref().map(|mig| mig.parent.as_str());
        gpu.uuid == uuid || parent == Some(uuid)
    };
    let meant = gpus.iter().filter(is_meant);
    let new_failures = meant.map(|gpu| GpuHealth::Quarantine {
        uuid: gpu.uuid.clone(),
        why: why.to_owned(),
        is_count,
    });
    new_failures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::inventory::MigInstance;

    fn gpu(uuid: &str, parent: Option<&str>) -> Gpu {
        Gpu {
            uuid: uuid.to_owned(),
            mig: parent.map(|parent| MigInstance {
                profile: "1g.10gb".to_owned(),
                parent: parent.to_owned(),
            }),
            ..Gpu::default()
        }
    }

    fn raised(gpu: &str, xids: &[u64]) -> BTreeMap<String, BTreeMap<u64, u64>> {
        let counts = xids.iter().map(|xid| (*xid, 1)).collect();
        BTreeMap::from([(gpu.to_owned(), counts)])
    }

    fn quarantined(uuid: &str, why: &str) -> GpuHealth {
        GpuHealth::Quarantine {
            uuid: uuid.to_owned(),
            why: why.to_owned(),
            is_count: false,
        }
    }

    #[test]
    fn what_programs_cause_blames_no_gpu() {
        let gpus = [gpu("GPU-a", None)];
        let found = SeenFailures::default().new_failures(
            &gpus,
            &[],
            &raised("GPU-a", &[13, 31, 43, 45, 68, 109, 999]),
        );
        assert_eq!(found, []);
    }

    #[test]
    fn each_failure_is_acted_on_once_by_its_class() {
        let gpus = [
            gpu("GPU-a", None),
            gpu("MIG-1", Some("GPU-b")),
            gpu("MIG-2", Some("GPU-b")),
        ];
        let mut seen_failures = SeenFailures::default();
        let found = seen_failures.new_failures(&gpus, &[], &raised("GPU-a", &[48, 63]));
        assert_eq!(
            found,
            [quarantined("GPU-a", "XID 48, double bit ECC error")]
        );
        assert_eq!(
            seen_failures.new_failures(&gpus, &[], &raised("GPU-a", &[48])),
            []
        );
        let twice = BTreeMap::from([("GPU-a".to_owned(), BTreeMap::from([(48, 2)]))]);
        let found = seen_failures.new_failures(&gpus, &[], &twice);
        let expected = quarantined("GPU-a", "XID 48, double bit ECC error");
        assert_eq!(found, [expected], "it happened again");
        let found = seen_failures.new_failures(&gpus, &[], &raised("GPU-b", &[94]));
        let why = "XID 94, contained ECC error";
        assert_eq!(
            found,
            [quarantined("MIG-1", why), quarantined("MIG-2", why)]
        );
        let found = seen_failures.new_failures(&gpus, &[], &raised("unknown", &[79]));
        let why = "GPU unknown: XID 79, GPU has fallen off the bus".to_owned();
        assert_eq!(found, [GpuHealth::Drain { why }]);
    }

    #[test]
    fn memory_that_cannot_be_corrected_is_kept_back() {
        let gpus = [gpu("GPU-a", None)];
        let reading = |lost| GpuReading {
            uuid: "GPU-a".to_owned(),
            ecc_uncorrected: lost,
            ..GpuReading::default()
        };
        let mut seen_failures = SeenFailures::default();
        for fine in [None, Some(0)] {
            assert_eq!(
                seen_failures.new_failures(&gpus, &[reading(fine)], &BTreeMap::new()),
                []
            );
        }
        let found = seen_failures.new_failures(&gpus, &[reading(Some(2))], &BTreeMap::new());
        let counted = |why: &str| GpuHealth::Quarantine {
            uuid: "GPU-a".to_owned(),
            why: why.to_owned(),
            is_count: true,
        };
        let why = "2 errors of its memory could not be corrected";
        assert_eq!(found, [counted(why)]);
        let again = seen_failures.new_failures(&gpus, &[reading(Some(2))], &BTreeMap::new());
        assert_eq!(again, []);
        let again = seen_failures.new_failures(&gpus, &[reading(Some(3))], &BTreeMap::new());
        let why = "3 errors of its memory could not be corrected";
        assert_eq!(again, [counted(why)]);
    }

    #[test]
    fn the_page_on_health_lists_the_same() {
        let page = include_str!("../../../docs/gpu-health.md");
        for (xid, action, name) in XIDS {
            let action = match action {
                XidAction::BlameStep => "blames the step",
                XidAction::Note => "noted",
                XidAction::Quarantine => "GPU quarantined",
                XidAction::Drain => "host drained",
            };
            let row = format!("| {xid} | {name} | {action} |\n");
            assert!(page.contains(&row), "{row}");
        }
    }
}
