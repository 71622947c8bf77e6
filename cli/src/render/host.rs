//! Renders a host: hardware and readings, as its agent found them.

mod board;

use jiff::Timestamp;
use sluice_common::api::{GpuView, HostView};
use sluice_common::inventory::{GpuReading, Reserve};

use super::listed::{Listed, table};
use super::sections::Sections;
use super::table::{Cell, Column};
use super::{amounts, or_dash, safe};
use crate::out::Out;

/// In place of the GPUs of a host that does not know them yet.
pub(crate) const GPUS_UNKNOWN: &str = "unknown: the NVIDIA driver has not answered yet";

impl Listed for HostView {
    const KIND: &'static str = "host";
    const COLUMNS: &'static [Column] = &[];

    fn name(&self) -> String {
        "local".to_owned()
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        Vec::new()
    }
}

impl Listed for GpuView {
    const KIND: &'static str = "gpu";
    const COLUMNS: &'static [Column] = &[
        Column::new("GPU", 9),
        Column::new("PLATFORM", 8),
        Column::new("MIG", 6),
        Column::new("MEMORY", 8),
        Column::new("UTIL", 7),
        Column::new("TEMP", 7),
        Column::new("POWER", 6),
        Column::new("ECC", 4),
        Column::new("XIDS", 5),
        Column::new("PROCESSES", 5),
        Column::new("NUMA", 3),
        Column::new("NVLINK", 3),
        Column::new("PCI", 2),
        Column::new("UUID", 6),
        Column::new("MODEL", 1).text().wide(),
    ];

    fn name(&self) -> String {
        self.uuid.clone()
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let none = GpuReading::default();
        let reading = self.reading.as_ref().unwrap_or(&none);
        let number = |number: Option<u32>, unit: &str| {
            number.map_or("-".to_owned(), |n| format!("{n}{unit}"))
        };
        vec![
            self.index.to_string().into(),
            or_dash(Some(&self.platform)).into(),
            or_dash(self.mig.as_ref().map(|mig| mig.profile.as_str())).into(),
            memory(self.memory_bytes, reading.memory_used_bytes).into(),
            number(reading.utilization_percent, "%").into(),
            number(reading.temperature_celsius, "C").into(),
            power(reading).into(),
            ecc(self.ecc, reading).into(),
            xids(reading).into(),
            processes(reading).into(),
            number(self.numa_node, "").into(),
            nvlink(self.nvlink.len()).into(),
            or_dash(self.pci.as_deref()).into(),
            safe(&self.uuid).into(),
            or_dash(Some(&self.model)).into(),
        ]
    }
}

/// Formats `1.2GiB/79.6GiB`, or the total if the driver does not report the use.
fn memory(total: u64, used: Option<u64>) -> String {
    let total = amounts::bytes(total);
    used.map_or(total.clone(), |used| {
        format!("{}/{total}", amounts::bytes(used))
    })
}

fn power(reading: &GpuReading) -> String {
    let watts = |milliwatts: u32| milliwatts.div_ceil(1000);
    match (reading.power_milliwatts, reading.power_limit_milliwatts) {
        (Some(drawn), Some(limit)) => format!("{}/{}W", watts(drawn), watts(limit)),
        (Some(drawn), None) => format!("{}W", watts(drawn)),
        (None, _) => "-".to_owned(),
    }
}

/// Formats whether ECC is on, and the count of uncorrected errors.
fn ecc(on: Option<bool>, reading: &GpuReading) -> String {
    match (
        on,
        reading.ecc_corrected.unwrap_or(0),
        reading.ecc_uncorrected.unwrap_or(0),
    ) {
        (None, ..) => "-".to_owned(),
        (Some(false), ..) => "off".to_owned(),
        (Some(true), 0, 0) => "on".to_owned(),
        (Some(true), corrected, lost) => format!("on,{corrected}+{lost} errors"),
    }
}

fn xids(reading: &GpuReading) -> String {
    let words: Vec<String> = reading
        .xids
        .iter()
        .map(|(xid, count)| format!("{xid}:{count}"))
        .collect();
    or_dash(Some(&words.join(",")))
}

fn processes(reading: &GpuReading) -> String {
    match &reading.processes {
        None => "-".to_owned(),
        Some(list) => list.len().to_string(),
    }
}

fn nvlink(peers: usize) -> String {
    match peers {
        0 => "-".to_owned(),
        1 => "1 peer".to_owned(),
        more => format!("{more} peers"),
    }
}

/// Renders facts of the host, one a line.
pub(crate) fn facts(text: &mut Sections, host: &HostView) {
    let cores = match host.cores {
        0 => String::new(),
        cores => format!("{cores} cores, "),
    };
    let driver = host.driver.as_ref().map(|driver| match &host.cuda {
        Some(cuda) => format!("{} (CUDA {})", safe(driver), safe(cuda)),
        None => safe(driver),
    });
    text.optional("OS", (!host.os.is_empty()).then(|| safe(&host.os)))
        .field(
            "Kernel",
            format!("{} {}", safe(&host.kernel), safe(&host.arch)),
        )
        .field(
            "Processor",
            format!("{}, {cores}{} usable", safe(&host.cpu_model), host.cpus),
        )
        .field(
            "Memory",
            free_of(
                host.memory_bytes,
                host.reading.map(|r| r.memory_available_bytes),
            ),
        )
        .field(
            "Storage",
            free_of(
                host.storage_bytes,
                host.reading.map(|r| r.storage_free_bytes),
            ),
        )
        .optional("Kept back", kept_back(host))
        .optional(
            "Load",
            host.reading
                .map(|r| format!("{}.{:02}", r.load_milli / 1000, r.load_milli % 1000 / 10)),
        )
        .field("NVIDIA driver", driver.unwrap_or_else(|| "-".to_owned()));
    let words: Vec<String> = host
        .capabilities
        .iter()
        .map(|(what, how)| format!("{what}:{how}"))
        .collect();
    text.optional("Capabilities", (!words.is_empty()).then(|| words.join(" ")));
    text.optional("Containers", containers(host));
    for note in &host.notes {
        text.field("Note", safe(note));
    }
}

/// Formats the container runtimes with their versions.
fn containers(host: &HostView) -> Option<String> {
    let runtimes = host.container_runtimes.iter();
    let runtimes = runtimes.map(|(runtime, version)| format!("{runtime} {}", safe(version)));
    let runtimes: Vec<String> = runtimes.collect();
    (!runtimes.is_empty()).then(|| runtimes.join(", "))
}

/// Formats what is kept back from steps.
fn kept_back(host: &HostView) -> Option<String> {
    let Reserve { cpus, memory_bytes } = host.reserve;
    let (cpus, memory) = (format!("{cpus} processors"), amounts::bytes(memory_bytes));
    let kept = match (host.reserve.cpus, memory_bytes) {
        (0, 0) => return None,
        (_, 0) => cpus,
        (0, _) => memory,
        (_, _) => format!("{cpus} and {memory}"),
    };
    Some(format!(
        "{kept} for the host itself (`reserve` of its agent)"
    ))
}

fn free_of(total: u64, free: Option<u64>) -> String {
    let total = amounts::bytes(total);
    free.map_or(total.clone(), |free| {
        format!("{total}, {} free", amounts::bytes(free))
    })
}

/// Renders tables of its GPUs and of their boards; empty if there are none.
pub(crate) fn gpus(host: &HostView, out: Out) -> String {
    if host.gpus.is_empty() {
        return String::new();
    }
    let gpus = table(&host.gpus, Timestamp::UNIX_EPOCH, out);
    format!("\n{gpus}{}", board::boards(&host.gpus, out))
}

/// Renders all details of a host.
pub(crate) fn describe(host: &HostView, out: Out) -> String {
    let mut text = Sections::default();
    facts(&mut text, host);
    let count = match host.gpus_unknown {
        true => GPUS_UNKNOWN.to_owned(),
        false => host.gpus.len().to_string(),
    };
    text.field("GPUs", count);
    text.finish() + &gpus(host, out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn host() -> HostView {
        serde_json::from_value(serde_json::json!({
            "kernel": "6.1.0", "os": "Debian GNU/Linux 12", "arch": "x86_64", "cpu_model": "AMD EPYC", "cores": 64, "cpus": 128,
            "memory_bytes": 1u64 << 40, "storage_bytes": 1u64 << 42, "driver": "570.133.20", "cuda": "12.8",
            "capabilities": {"kill": "cgroup2", "memory": "none"}, "notes": ["GPU 1 does not answer"],
            "reading": {"load_milli": 1520, "memory_available_bytes": 1u64 << 39, "storage_free_bytes": 1u64 << 41},
            "gpus": [{
                "index": 0, "uuid": "MIG-1", "pci": "0000:17:00.0", "model": "NVIDIA H100 80GB HBM3", "platform": "h100",
                "memory_bytes": 10u64 << 30, "mig": {"profile": "1g.10gb", "parent": "GPU-1"}, "numa_node": 1, "ecc": true,
                "reading": {"uuid": "MIG-1", "memory_used_bytes": 1u64 << 30, "memory_free_bytes": 9u64 << 30,
                    "utilization_percent": null, "temperature_celsius": 41, "power_milliwatts": 70_500,
                    "power_limit_milliwatts": 700_000, "ecc_corrected": 2, "ecc_uncorrected": 1, "xids": {"79": 1},
                    "processes": [{"pid": 7, "memory_bytes": null}]},
            }, {
                "index": 2, "uuid": "GPU-2", "model": "NVIDIA L40S", "platform": "l40s", "memory_bytes": 0, "nvlink": ["GPU-3"],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn a_host_reads_well() {
        let expected = "\
OS:             Debian GNU/Linux 12
Kernel:         6.1.0 x86_64
Processor:      AMD EPYC, 64 cores, 128 usable
Memory:         1TiB, 512GiB free
Storage:        4TiB, 2TiB free
Load:           1.52
NVIDIA driver:  570.133.20 (CUDA 12.8)
Capabilities:   kill:cgroup2 memory:none
Note:           GPU 1 does not answer
GPUs:           2

GPU  PLATFORM  MIG      MEMORY      UTIL  TEMP  POWER    ECC            XIDS  PROCESSES  NUMA  NVLINK  PCI           UUID
0    h100      1g.10gb  1GiB/10GiB  -     41C   71/700W  on,2+1 errors  79:1  1          1     -       0000:17:00.0  MIG-1
2    l40s      -        0B          -     -     -        -              -     -          -     1 peer  -             GPU-2
";
        assert_eq!(describe(&host(), Out::plain()), expected);
    }
}
