//! What failures of GPUs ask for: errors that the driver reports by number (XIDs), memory that cannot be corrected, clocks
//! that are held down. `docs/gpu-health.md` is this table for people.

use std::collections::BTreeMap;

use agent_core::GpuHealth;
use sluice_common::inventory::{Gpu, GpuReading};
use tracing::warn;

/// What a failure asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A program did it: whoever runs it learns that by the program's own end.
    BlameStep,
    /// A line in the log; the GPU goes on.
    Note,
    /// The GPU is granted to nobody until an admin has looked at it.
    Quarantine,
    /// The host is drained: only a reboot helps.
    Drain,
}

/// XIDs by NVIDIA's numbers, with NVIDIA's names. Those that tell of what a program did rather than of the hardware are
/// the ones that NVIDIA's device plugin for Kubernetes passes over. Those after which NVIDIA's catalog of XIDs asks for a
/// reset of the GPU, or for a look at it, quarantine it.
const XIDS: [(u64, Action, &str); 30] = [
    (13, Action::BlameStep, "graphics engine exception"),
    (31, Action::BlameStep, "GPU memory page fault"),
    (43, Action::BlameStep, "GPU stopped processing"),
    (
        45,
        Action::BlameStep,
        "preemptive cleanup, due to previous errors",
    ),
    (46, Action::Quarantine, "GPU stopped processing (timeout)"),
    (48, Action::Quarantine, "double bit ECC error"),
    (54, Action::Quarantine, "auxiliary power is not connected"),
    (62, Action::Quarantine, "internal micro-controller halt"),
    (
        63,
        Action::Note,
        "ECC page retirement or row remapping recorded",
    ),
    (
        64,
        Action::Quarantine,
        "ECC page retirement or row remapping failed",
    ),
    (68, Action::BlameStep, "NVDEC exception"),
    (74, Action::Quarantine, "NVLink error"),
    (79, Action::Drain, "GPU has fallen off the bus"),
    (92, Action::Note, "high rate of single bit ECC errors"),
    (94, Action::Quarantine, "contained ECC error"),
    (95, Action::Quarantine, "uncontained ECC error"),
    (109, Action::BlameStep, "context switch timeout"),
    (110, Action::Quarantine, "security fault"),
    (119, Action::Drain, "GSP RPC timeout"),
    (120, Action::Drain, "GSP error"),
    (121, Action::Note, "corrected error on the C2C NVLink"),
    (136, Action::Quarantine, "link training failed"),
    (140, Action::Quarantine, "unrecovered ECC error"),
    (143, Action::Quarantine, "GPU initialization failure"),
    (149, Action::Quarantine, "NVLink NETIR error"),
    (151, Action::Quarantine, "key rotation error"),
    (156, Action::Quarantine, "resource retirement"),
    (158, Action::Quarantine, "GPU fatal timeout"),
    (171, Action::Quarantine, "uncorrectable DRAM error"),
    (172, Action::Quarantine, "uncorrectable SRAM error"),
];

/// What an XID asks for; one that nobody listed here is noted.
pub(crate) fn of_xid(xid: u64) -> (Action, &'static str) {
    let known = XIDS.iter().find(|(number, ..)| *number == xid);
    known.map_or((Action::Note, "see NVIDIA's list"), |(_, action, name)| {
        (*action, *name)
    })
}

/// What was concluded before, so that each failure is acted on once: a count that has grown is a new one, and a GPU that an
/// admin took back into service goes out of it again.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    xids: BTreeMap<(String, u64), u64>,
    ecc: BTreeMap<String, u64>,
    slowed: BTreeMap<String, &'static str>,
}

impl Judged {
    /// What is new in these readings. `xids` are all that were raised, by whole GPU.
    pub(crate) fn verdicts(
        &mut self,
        gpus: &[Gpu],
        readings: &[GpuReading],
        xids: &BTreeMap<String, BTreeMap<u64, u64>>,
    ) -> Vec<GpuHealth> {
        let mut verdicts = Vec::new();
        for (gpu, raised) in xids {
            for (xid, count) in raised {
                if grew(&mut self.xids, (gpu.clone(), *xid), *count) {
                    verdicts.extend(of_raised(gpus, gpu, *xid));
                }
            }
        }
        for reading in readings {
            let lost = reading.ecc_uncorrected.unwrap_or(0);
            if grew(&mut self.ecc, reading.uuid.clone(), lost) {
                let why = format!("{lost} errors of its memory could not be corrected");
                verdicts.extend(quarantine(gpus, &reading.uuid, &why, true));
            }
        }
        verdicts
    }

    /// Says once which GPUs are slowed down now, and by what.
    pub(crate) fn note_slowed(&mut self, slowed: &BTreeMap<String, &'static str>) {
        for (gpu, why) in slowed {
            if self.slowed.get(gpu) != Some(why) {
                warn!(gpu, "a GPU is slowed down: {why}");
            }
        }
        self.slowed.clone_from(slowed);
    }
}

/// Whether a count is higher than it was, or than none. One that falls was reset with its GPU.
fn grew<K: Ord>(before: &mut BTreeMap<K, u64>, key: K, count: u64) -> bool {
    count > before.insert(key, count).unwrap_or(0)
}

fn of_raised(gpus: &[Gpu], gpu: &str, xid: u64) -> Vec<GpuHealth> {
    let (action, name) = of_xid(xid);
    let why = format!("XID {xid}, {name}");
    match action {
        Action::BlameStep | Action::Note => Vec::new(),
        Action::Quarantine => quarantine(gpus, gpu, &why, false),
        Action::Drain => vec![GpuHealth::Drain {
            why: format!("GPU {gpu}: {why}"),
        }],
    }
}

/// A GPU, or all instances of one that is cut.
fn quarantine(gpus: &[Gpu], uuid: &str, why: &str, is_count: bool) -> Vec<GpuHealth> {
    let is_meant = |gpu: &&Gpu| {
        let parent = gpu.mig.as_ref().map(|mig| mig.parent.as_str());
        gpu.uuid == uuid || parent == Some(uuid)
    };
    let meant = gpus.iter().filter(is_meant);
    let verdicts = meant.map(|gpu| GpuHealth::Quarantine {
        uuid: gpu.uuid.clone(),
        why: why.to_owned(),
        is_count,
    });
    verdicts.collect()
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
        let found = Judged::default().verdicts(
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
        let mut judged = Judged::default();
        let found = judged.verdicts(&gpus, &[], &raised("GPU-a", &[48, 63]));
        assert_eq!(
            found,
            [quarantined("GPU-a", "XID 48, double bit ECC error")]
        );
        assert_eq!(judged.verdicts(&gpus, &[], &raised("GPU-a", &[48])), []);
        let twice = BTreeMap::from([("GPU-a".to_owned(), BTreeMap::from([(48, 2)]))]);
        let found = judged.verdicts(&gpus, &[], &twice);
        let expected = quarantined("GPU-a", "XID 48, double bit ECC error");
        assert_eq!(found, [expected], "it happened again");
        let found = judged.verdicts(&gpus, &[], &raised("GPU-b", &[94]));
        let why = "XID 94, contained ECC error";
        assert_eq!(
            found,
            [quarantined("MIG-1", why), quarantined("MIG-2", why)]
        );
        let found = judged.verdicts(&gpus, &[], &raised("unknown", &[79]));
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
        let mut judged = Judged::default();
        for fine in [None, Some(0)] {
            assert_eq!(
                judged.verdicts(&gpus, &[reading(fine)], &BTreeMap::new()),
                []
            );
        }
        let found = judged.verdicts(&gpus, &[reading(Some(2))], &BTreeMap::new());
        let counted = |why: &str| GpuHealth::Quarantine {
            uuid: "GPU-a".to_owned(),
            why: why.to_owned(),
            is_count: true,
        };
        let why = "2 errors of its memory could not be corrected";
        assert_eq!(found, [counted(why)]);
        let again = judged.verdicts(&gpus, &[reading(Some(2))], &BTreeMap::new());
        assert_eq!(again, []);
        let again = judged.verdicts(&gpus, &[reading(Some(3))], &BTreeMap::new());
        let why = "3 errors of its memory could not be corrected";
        assert_eq!(again, [counted(why)]);
    }

    #[test]
    fn the_page_on_health_lists_the_same() {
        let page = include_str!("../../../docs/gpu-health.md");
        for (xid, action, name) in XIDS {
            let action = match action {
                Action::BlameStep => "blames the step",
                Action::Note => "noted",
                Action::Quarantine => "GPU quarantined",
                Action::Drain => "host drained",
            };
            let row = format!("| {xid} | {name} | {action} |\n");
            assert!(page.contains(&row), "{row}");
        }
    }
}
