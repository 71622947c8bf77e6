//! Consequences of GPU failures: errors that the driver reports by number (XIDs), uncorrectable memory
//! errors, throttled clocks. `docs/gpu-health.md` has the same table for admins.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::GpuHealth;
use sluice_common::inventory::{Gpu, GpuReading};
use tracing::warn;

use super::nvml::DriverReport;

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

/// Scans in a row after which a slowed GPU is not granted, and after which one that is no longer slowed is granted
/// again: with a scan every 3 seconds, 9 seconds and a minute.
const SLOW_SCANS: u32 = 3;
const FAST_SCANS: u32 = 20;

/// Failures handled before, so that each is handled once: a higher count is a new failure, even on a GPU that
/// an admin has returned to service.
#[derive(Debug, Default)]
pub(crate) struct SeenFailures {
    xids: BTreeMap<(String, u64), u64>,
    ecc: BTreeMap<String, u64>,
    slowdowns: BTreeMap<String, ClockCounter>,
}

impl SeenFailures {
    /// New failures in these readings. `xids` are all XIDs so far, by UUID or PCI address of the whole GPU.
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
                    log_xid(gpu, *xid);
                    new_failures.extend(of_raised(gpus, gpu, *xid, *count));
                }
            }
        }
        for reading in readings {
            let lost = reading.ecc_uncorrected.unwrap_or(0);
            // The errors of an instance are also those of its GPU.
            let Some(uuid) = physical(gpus, &reading.uuid) else {
                continue;
            };
            if grew(&mut self.ecc, uuid.clone(), lost) {
                new_failures.push(GpuHealth::Quarantine {
                    uuid,
                    why: format!("{lost} errors of its memory could not be corrected"),
                    is_count: true,
                });
            }
        }
        new_failures
    }

    /// The conditions of a scan, with the GPUs that hardware has slowed down for some time: a short slowdown is logged,
    /// and a GPU that recovers for a moment is not fit yet.
    pub(crate) fn conditions(
        &mut self,
        report: &DriverReport,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let mut all = report.conditions.clone();
        for (gpu, conditions) in &mut all {
            let slowdown = self.slowdowns.entry(gpu.clone()).or_default();
            if let Some(why) = slowdown.next(gpu, report.slowed.get(gpu)) {
                conditions.insert(format!("{why} slows it down"));
            }
        }
        all
    }
}

/// Hardware slowdown of one GPU over the last scans.
#[derive(Debug, Default)]
struct ClockCounter {
    /// The last cause.
    why: Option<String>,
    /// Scans in a row with a slowdown, or without one.
    scans: u32,
    is_slow: bool,
    /// Whether the GPU counts as slow.
    is_judged_slow: bool,
}

impl ClockCounter {
    /// Counts one scan; returns the cause if the GPU counts as slow.
    fn next(&mut self, gpu: &str, now: Option<&String>) -> Option<&str> {
        if now.is_some() != self.is_slow {
            self.is_slow = now.is_some();
            self.scans = 0;
        }
        if let Some(why) = now.filter(|_| self.scans == 0) {
            warn!(gpu, "a GPU is slowed down: {why}");
        }
        self.scans = self.scans.saturating_add(1);
        self.why = now.cloned().or(self.why.take());
        match self.is_slow {
            true => self.is_judged_slow |= self.scans >= SLOW_SCANS,
            false => self.is_judged_slow &= self.scans < FAST_SCANS,
        }
        self.why.as_deref().filter(|_| self.is_judged_slow)
    }
}

/// Whether a count has grown. A lower count means that the GPU was reset.
fn grew<K: Ord>(before: &mut BTreeMap<K, u64>, key: K, count: u64) -> bool {
    count > before.insert(key, count).unwrap_or(0)
}

fn log_xid(gpu: &str, xid: u64) {
    let (action, name) = of_xid(xid);
    if action == XidAction::BlameStep {
        warn!(gpu, xid, "XID caused by a program: {name}");
    } else {
        warn!(gpu, xid, "XID: {name}; the host's kernel log says more");
    }
}

/// `gpu` is a UUID, or the PCI address of a GPU that did not tell its UUID.
fn of_raised(gpus: &[Gpu], gpu: &str, xid: u64, count: u64) -> Option<GpuHealth> {
    let (action, name) = of_xid(xid);
    let why = format!("XID {xid}, {name}");
    let gpu = physical(gpus, gpu);
    match action {
        XidAction::BlameStep | XidAction::Note => None,
        XidAction::Quarantine if gpu.is_some() => Some(GpuHealth::Quarantine {
            uuid: gpu?,
            why,
            is_count: false,
        }),
        XidAction::Quarantine | XidAction::Drain => {
            let gpu = gpu.map_or("a GPU that the driver does not name".to_owned(), |gpu| {
                format!("GPU {gpu}")
            });
            let again = match count {
                1 => String::new(),
                _ => format!(" ({count} times)"),
            };
            Some(GpuHealth::Drain {
                why: format!("{gpu}: {why}{again}"),
            })
        }
    }
}

/// UUID of the GPU with this UUID or PCI address, which may be listed by its MIG instances.
fn physical(gpus: &[Gpu], id: &str) -> Option<String> {
    let mut gpus = gpus.iter();
    let found = gpus.find(|gpu| gpu.whole() == id || gpu.pci.as_deref() == Some(id));
    found.map(|gpu| gpu.whole().to_owned())
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
        let expected = quarantined("GPU-b", "XID 94, contained ECC error");
        assert_eq!(found, [expected], "the hardware, however it is cut");
    }

    #[test]
    fn a_gpu_without_a_uuid_is_found_by_its_address() {
        let gpus = [Gpu {
            pci: Some("0000:17:00.0".to_owned()),
            ..gpu("GPU-a", None)
        }];
        let mut seen_failures = SeenFailures::default();
        let at = |place, xid| raised(place, &[xid]);
        let found = seen_failures.new_failures(&gpus, &[], &at("0000:17:00.0", 48));
        let expected = quarantined("GPU-a", "XID 48, double bit ECC error");
        assert_eq!(found, [expected]);
        let drained = |why: &str| {
            [GpuHealth::Drain {
                why: why.to_owned(),
            }]
        };
        let found = seen_failures.new_failures(&gpus, &[], &at("0000:17:00.0", 79));
        let expected = "GPU GPU-a: XID 79, GPU has fallen off the bus";
        assert_eq!(found, drained(expected));
        let found = seen_failures.new_failures(&gpus, &[], &at("unknown", 48));
        let expected = "a GPU that the driver does not name: XID 48, double bit ECC error";
        assert_eq!(found, drained(expected), "it could be any");
    }

    #[test]
    fn each_cause_drains_the_host_the_second_time_too() {
        let gpus = [gpu("GPU-a", None)];
        let mut seen_failures = SeenFailures::default();
        let mut told = |count| {
            let counts = BTreeMap::from([(79, count)]);
            let xids = BTreeMap::from([("GPU-a".to_owned(), counts)]);
            seen_failures.new_failures(&gpus, &[], &xids)
        };
        let [GpuHealth::Drain { why: first }] = &told(1)[..] else {
            panic!("no drain")
        };
        assert_eq!(told(1), []);
        let again = format!("{first} (2 times)");
        assert_eq!(told(2), [GpuHealth::Drain { why: again }]);
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
    fn a_gpu_is_unfit_after_some_scans_of_slowdown_and_fit_after_more_without() {
        let mut seen_failures = SeenFailures::default();
        let mut scan = |why: Option<&'static str>| {
            let gpu = "GPU-a".to_owned();
            let report = DriverReport {
                conditions: BTreeMap::from([(gpu.clone(), BTreeSet::new())]),
                slowed: why
                    .map(|why| (gpu.clone(), why.to_owned()))
                    .into_iter()
                    .collect(),
                ..DriverReport::default()
            };
            seen_failures.conditions(&report).remove(&gpu).unwrap()
        };
        let heat = || Some("heat");
        let slow = BTreeSet::from(["heat slows it down".to_owned()]);
        let told = [heat(), heat(), None, heat(), heat()].map(&mut scan);
        assert!(told.iter().all(BTreeSet::is_empty), "a moment: {told:?}");
        assert_eq!(scan(heat()), slow);
        for _ in 1..FAST_SCANS {
            assert_eq!(scan(None), slow, "a moment without");
        }
        assert_eq!(scan(None), BTreeSet::new());
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
