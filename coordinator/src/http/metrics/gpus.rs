//! Metrics of GPUs: one series for each GPU and metric.

use std::collections::BTreeSet;
use std::rc::Rc;

use sluice_common::inventory::{BoardReading, Gpu, GpuReading};

use super::page::{MetricsPage, Sample};
use super::{Family, GpuSnapshot, HostMetrics, each, truth};

/// A GPU with its host and its last reading.
pub(super) struct GpuMetrics {
    pub(super) host: Rc<HostMetrics>,
    pub(super) gpu: GpuSnapshot,
    pub(super) reading: Option<GpuReading>,
}

const OF_GPUS: [Family<GpuMetrics>; 8] = [
    (
        "sluice_gpu_granted",
        "Whether a step holds the GPU.",
        |it| truth(it.gpu.granted),
    ),
    (
        "sluice_gpu_fit",
        "Whether neither the host nor an admin withholds the GPU.",
        |it| truth(it.gpu.unfit.is_none()),
    ),
    (
        "sluice_gpu_memory_total_bytes",
        "Memory of the GPU.",
        |it| Some(it.gpu.gpu.memory_bytes as f64),
    ),
    (
        "sluice_gpu_memory_used_bytes",
        "Memory in use on the GPU.",
        |it| it.read(|r| Some(r.memory_used_bytes? as f64)),
    ),
    (
        "sluice_gpu_utilization_ratio",
        "Fraction of the last sample period in which something ran on the GPU.",
        |it| it.read(|r| Some(f64::from(r.utilization_percent?) / 100.0)),
    ),
    (
        "sluice_gpu_ecc_corrected_errors_total",
        "Errors in memory that were corrected since the driver was loaded.",
        |it| it.read(|r| Some(r.ecc_corrected? as f64)),
    ),
    (
        "sluice_gpu_ecc_uncorrected_errors_total",
        "Errors in memory that could not be corrected since the driver was loaded.",
        |it| it.read(|r| Some(r.ecc_uncorrected? as f64)),
    ),
    (
        "sluice_gpu_processes",
        "Processes that use the GPU.",
        |it| it.read(|r| Some(r.processes.as_ref()?.len() as f64)),
    ),
];

/// Families of what only a whole GPU has, also one that is cut into MIG instances.
const OF_BOARDS: [Family<GpuMetrics>; 26] = [
    (
        "sluice_gpu_temperature_celsius",
        "Temperature of the GPU.",
        |it| it.read(|r| Some(f64::from(r.temperature_celsius?))),
    ),
    (
        "sluice_gpu_power_watts",
        "Power that the GPU draws.",
        |it| it.read(|r| Some(f64::from(r.power_milliwatts?) / 1000.0)),
    ),
    (
        "sluice_gpu_power_limit_watts",
        "Power limit of the GPU.",
        |it| it.read(|r| Some(f64::from(r.power_limit_milliwatts?) / 1000.0)),
    ),
    (
        "sluice_gpu_memory_temperature_celsius",
        "Temperature of the memory of the GPU.",
        |it| it.board(|b| Some(f64::from(b.memory_temperature_celsius?))),
    ),
    (
        "sluice_gpu_sm_clock_hertz",
        "Clock of the processors of the GPU.",
        |it| it.board(|b| hertz(b.sm_clock_mhz)),
    ),
    (
        "sluice_gpu_memory_clock_hertz",
        "Clock of the memory of the GPU.",
        |it| it.board(|b| hertz(b.memory_clock_mhz)),
    ),
    (
        "sluice_gpu_slowed_by_power",
        "Whether a power limit or a power brake reduces the clocks.",
        |it| it.throttled(&["power_cap", "hardware_power_brake"]),
    ),
    (
        "sluice_gpu_slowed_by_heat",
        "Whether heat reduces the clocks.",
        |it| it.throttled(&["software_thermal", "hardware_thermal"]),
    ),
    (
        "sluice_gpu_slowed_by_hardware",
        "Whether the hardware itself reduces the clocks, because of heat or a power brake.",
        |it| it.throttled(&["hardware", "hardware_thermal", "hardware_power_brake"]),
    ),
    (
        "sluice_gpu_pcie_generation",
        "PCIe generation of the link now; an idle GPU lowers it.",
        |it| it.board(|b| Some(f64::from(b.pcie_generation?))),
    ),
    (
        "sluice_gpu_pcie_max_generation",
        "Highest PCIe generation that board and slot support.",
        |it| Some(f64::from(it.gpu.gpu.board.pcie_max_generation?)),
    ),
    (
        "sluice_gpu_pcie_lanes",
        "PCIe lanes of the link now.",
        |it| it.board(|b| Some(f64::from(b.pcie_lanes?))),
    ),
    (
        "sluice_gpu_pcie_max_lanes",
        "Most PCIe lanes that board and slot support.",
        |it| Some(f64::from(it.gpu.gpu.board.pcie_max_lanes?)),
    ),
    ("sluice_gpu_nvlinks", "NVLinks of the GPU.", |it| {
        it.board(|b| Some(f64::from(b.nvlinks?)))
    }),
    (
        "sluice_gpu_nvlinks_active",
        "NVLinks of the GPU that are active.",
        |it| it.board(|b| Some(f64::from(b.nvlinks_active?))),
    ),
    (
        "sluice_gpu_nvlink_errors_total",
        "Errors of all NVLinks of the GPU: CRC errors, replays and recoveries.",
        |it| it.board(|b| Some(b.nvlink_errors? as f64)),
    ),
    (
        "sluice_gpu_fabric_ready",
        "Whether the GPU is registered with the NVLink fabric.",
        |it| it.board(|b| truth(b.fabric.as_deref()? == "completed")),
    ),
    (
        "sluice_gpu_correctable_remapped_rows",
        "Rows of memory that were replaced because of corrected errors.",
        |it| it.board(|b| Some(f64::from(b.remapped_rows?.correctable))),
    ),
    (
        "sluice_gpu_uncorrectable_remapped_rows",
        "Rows of memory that were replaced because of errors that could not be corrected.",
        |it| it.board(|b| Some(f64::from(b.remapped_rows?.uncorrectable))),
    ),
    (
        "sluice_gpu_row_remap_pending",
        "Whether rows of memory wait for a reset to be replaced.",
        |it| it.board(|b| truth(b.remapped_rows?.is_pending)),
    ),
    (
        "sluice_gpu_row_remap_failed",
        "Whether a row of memory could not be replaced.",
        |it| it.board(|b| truth(b.remapped_rows?.has_failed)),
    ),
    (
        "sluice_gpu_persistence_enabled",
        "Whether persistence mode is on.",
        |it| it.board(|b| truth(b.persistence?)),
    ),
    (
        "sluice_gpu_compute_mode_default",
        "Whether the compute mode is the default one.",
        |it| it.board(|b| truth(b.compute_mode.as_deref()? == "default")),
    ),
    ("sluice_gpu_mig_enabled", "Whether MIG is on.", |it| {
        it.board(|b| truth(b.mig?.is_enabled))
    }),
    (
        "sluice_gpu_mig_change_pending",
        "Whether MIG is switched on or off at the next reset.",
        |it| it.board(|b| truth(b.mig?.is_enabled != b.mig?.is_enabled_after_reset)),
    ),
    (
        "sluice_gpu_confidential_computing_enabled",
        "Whether confidential computing is on.",
        |it| truth(it.gpu.gpu.board.confidential_computing?),
    ),
];

fn hertz(megahertz: Option<u32>) -> Option<f64> {
    Some(f64::from(megahertz?) * 1e6)
}

impl GpuMetrics {
    fn read(&self, value: impl Fn(&GpuReading) -> Option<f64>) -> Option<f64> {
        self.reading.as_ref().and_then(value)
    }

    fn board(&self, value: impl Fn(&BoardReading) -> Option<f64>) -> Option<f64> {
        self.read(|reading| value(reading.board.as_ref()?))
    }

    /// Whether one of these reasons reduces the clocks.
    fn throttled(&self, reasons: &[&str]) -> Option<f64> {
        self.board(|board| {
            let found = board.throttle_reasons.as_ref()?;
            truth(reasons.iter().any(|reason| found.contains(*reason)))
        })
    }

    fn labels(&self) -> [(&'static str, &str); 5] {
        let [node, pool] = self.host.labels();
        let gpu = &self.gpu.gpu;
        let profile = gpu.mig.as_ref().map_or("", |mig| &mig.profile);
        [
            node,
            pool,
            ("gpu", &gpu.uuid),
            ("platform", &gpu.platform),
            ("mig_profile", profile),
        ]
    }
}

/// The whole GPUs: those that are granted whole, and those whose instances are granted.
fn boards(devices: &[GpuMetrics]) -> Vec<GpuMetrics> {
    let mut seen = BTreeSet::new();
    let first_of_each = devices
        .iter()
        .filter(|device| seen.insert((&device.host.node.name, device.gpu.gpu.whole())));
    let board = |device: &GpuMetrics| {
        let whole = Gpu {
            uuid: device.gpu.gpu.whole().to_owned(),
            mig: None,
            ..device.gpu.gpu.clone()
        };
        GpuMetrics {
            reading: device.host.reading_of(&whole),
            host: Rc::clone(&device.host),
            gpu: GpuSnapshot {
                gpu: whole,
                ..device.gpu
            },
        }
    };
    first_of_each.map(board).collect()
}

/// Writes the facts of each GPU as labels of a value that is always 1.
fn info(page: &mut MetricsPage, devices: &[GpuMetrics]) {
    let samples = devices.iter().map(|device| {
        let gpu = &device.gpu.gpu;
        let text = |fact: &Option<String>| fact.clone().unwrap_or_default();
        let (capability, serial) = (text(&gpu.board.compute_capability), text(&gpu.board.serial));
        let (vbios, virtualization) = (text(&gpu.board.vbios), text(&gpu.board.virtualization));
        let mut labels = device.labels().to_vec();
        labels.extend([
            ("model", gpu.model.as_str()),
            ("pci", gpu.pci.as_deref().unwrap_or_default()),
            ("compute_capability", &capability),
            ("serial", &serial),
            ("vbios", &vbios),
            ("virtualization", &virtualization),
        ]);
        Sample::new(&labels, 1)
    });
    page.family(
        "sluice_gpu_info",
        "The GPU, with facts of its board as labels; always 1.",
        samples,
    );
}

/// Writes all families of GPUs.
pub(super) fn families(page: &mut MetricsPage, devices: &[GpuMetrics]) {
    each(page, &OF_GPUS, devices, GpuMetrics::labels);
    let boards = boards(devices);
    each(page, &OF_BOARDS, &boards, GpuMetrics::labels);
    info(page, &boards);
    let unfit = devices.iter().filter_map(|device| {
        let mut labels = device.labels().to_vec();
        labels.push(("reason", device.gpu.unfit?));
        Some(Sample::new(&labels, 1))
    });
    page.family(
        "sluice_gpu_unfit",
        "Why the GPU is withheld: quarantined, lost, foreign, cordoned or blocked.",
        unfit,
    );
    let xids = devices.iter().flat_map(|device| {
        let counts = device.reading.iter().flat_map(|reading| &reading.xids);
        counts.map(|(xid, count)| {
            let xid = xid.to_string();
            let mut labels = device.labels().to_vec();
            labels.push(("xid", &xid));
            Sample::new(&labels, *count)
        })
    });
    page.family(
        "sluice_gpu_xids_total",
        "XIDs that the driver raised since the agent began to listen.",
        xids,
    );
}
