//! Hosts declared by `kind: host` documents: the inventory that such a host's agent reports instead of the machine's.
//! Steps on it are real processes.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat;
use serde::{Deserialize, Serialize};
use sluice_common::amount::{MGPU_A_GPU, MemoryError, parse_memory};
use sluice_common::device::{DeviceNode, DeviceNumber};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::image::ContainerRuntimes;
use sluice_common::inventory::{Gpu, Inventory, MigInstance};
use sluice_common::mig::{MigProfile, cut_in_order};
use sluice_common::platform::slug;

/// Pool of hosts that name none.
pub(super) const POOL: &str = "default";
/// Amounts of a key that a document leaves out: practically unlimited, and small enough that sums over many hosts do
/// not overflow.
const WITHOUT_END_CPUS: u32 = 1_000_000;
const WITHOUT_END_BYTES: u64 = 1_000_000_000_000_000;
/// Most GPUs of one host.
const MAX_GPUS: u64 = 256;
/// GPU memory if the model is not among [`MODELS`] and the document does not name it.
const DEFAULT_GPU_MEMORY_MB: u64 = 80_000;
const MIB: u64 = 1 << 20;

/// Well-known models: platform, NVML's name, memory in MiB.
const MODELS: [(&str, &str, u64); 4] = [
    ("a100", "NVIDIA A100-SXM4-80GB", 81_920),
    ("h100", "NVIDIA H100 80GB HBM3", 81_559),
    ("h200", "NVIDIA H200", 143_771),
    ("l40s", "NVIDIA L40S", 46_068),
];

/// A `kind: host` document. Absent amounts are unlimited, except GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostDocument {
    /// Name, unique in the cluster.
    pub(crate) name: String,
    /// Pool that it joins; `default` if absent.
    pub(crate) pool: Option<String>,
    /// Number of GPUs.
    pub(crate) gpus: u64,
    /// Slices of further GPUs: their number by profile, such as `{3g.40gb: 2}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) mig: BTreeMap<MigProfile, u64>,
    /// GPU model, such as `H100` or NVML's name.
    pub(crate) gpu_model: Option<String>,
    /// Memory of each GPU, such as `80GiB`; the model's if absent.
    pub(crate) gpu_memory: Option<String>,
    /// Device nodes of its GPUs, in order; steps can open only those granted to them.
    pub(crate) gpu_devices: Vec<PathBuf>,
    /// Number of cores.
    pub(crate) cpu: Option<u32>,
    /// Memory, such as `512GiB`.
    pub(crate) memory: Option<String>,
    /// Disk space, such as `4TB`.
    pub(crate) storage: Option<String>,
    /// Container runtimes of this machine that its steps can use, by name with a version, such as `{podman: 4.3.1}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) container_runtimes: ContainerRuntimes,
    /// Labels, shown by the API and matched by platforms.
    pub(crate) labels: BTreeMap<String, String>,
}

/// A checked host document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredHost {
    pub(crate) name: NodeName,
    pub(crate) pool: PoolName,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) inventory: Inventory,
}

impl HostDocument {
    /// Checks every field.
    pub(super) fn check(self) -> Result<DeclaredHost, String> {
        let of = |field: &str, error: &dyn std::fmt::Display| {
            format!("host `{}`: {field}: {error}", self.name.escape_debug())
        };
        let name = NodeName::new(self.name.as_str()).map_err(|e| of("name", &e))?;
        let pool = self.pool.as_deref().unwrap_or(POOL);
        let pool = PoolName::new(pool).map_err(|e| of("pool", &e))?;
        let slices = self.mig.values().fold(0, |sum, n| n.saturating_add(sum));
        for (field, count) in [("gpus", self.gpus), ("mig", slices)] {
            if count > MAX_GPUS {
                return Err(of(field, &format!("{count} is more than {MAX_GPUS}")));
            }
        }
        if self.gpus + slices > 0 && self.gpu_model.is_none() {
            let way_out = "write which, such as `gpu_model: H100`";
            return Err(of("gpu_model", &way_out));
        }
        let devices = self.devices().map_err(|e| of("gpu_devices", &e))?;
        let mut inventory = self.inventory().map_err(|(field, e)| of(field, &e))?;
        for (gpu, node) in inventory.gpus.iter_mut().zip(devices) {
            gpu.devices = vec![node];
        }
        Ok(DeclaredHost {
            name,
            pool,
            inventory,
            labels: self.labels,
        })
    }

    /// Checks a host for a simulation, which does not need its device nodes.
    pub(crate) fn check_for_simulation(self) -> Result<DeclaredHost, String> {
        let made = Self {
            gpu_devices: Vec::new(),
            ..self
        };
        made.check()
    }

    fn inventory(&self) -> Result<Inventory, (&'static str, MemoryError)> {
        Ok(Inventory {
            kernel: "made for a trial".to_owned(),
            os: "made for a trial".to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpu_model: "declared".to_owned(),
            cpus: self.cpu.unwrap_or(WITHOUT_END_CPUS),
            memory_bytes: bytes("memory", self.memory.as_deref(), WITHOUT_END_BYTES)?,
            storage_bytes: bytes("storage", self.storage.as_deref(), WITHOUT_END_BYTES)?,
            gpus: self.gpus()?,
            container_runtimes: self.container_runtimes.clone(),
            ..Inventory::default()
        })
    }

    /// Returns the device node of each GPU, or none.
    fn devices(&self) -> Result<Vec<DeviceNode>, String> {
        let (count, gpus) = (self.gpu_devices.len(), self.gpus);
        if count > 0 && count as u64 != gpus {
            return Err(format!(
                "{count} are named for {gpus} GPUs: name one for each"
            ));
        }
        self.gpu_devices.iter().map(|path| device(path)).collect()
    }

    fn gpus(&self) -> Result<Vec<Gpu>, (&'static str, MemoryError)> {
        let asked = self.gpu_model.as_deref().unwrap_or_default();
        let platform = slug(asked);
        let known = MODELS.iter().find(|(known, ..)| *known == platform);
        // A single word such as `H100` means the product; a longer name is taken as it is.
        let short = asked.split_whitespace().count() == 1;
        let model = known.filter(|_| short).map_or(asked, |(_, name, _)| name);
        let of_model = known.map_or(DEFAULT_GPU_MEMORY_MB * 1_000_000, |(.., mib)| mib * MIB);
        let memory_bytes = bytes("gpu_memory", self.gpu_memory.as_deref(), of_model)?;
        let gpu = |index| Gpu {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            uuid: uuid(&self.name, index),
            model: model.to_owned(),
            platform: platform.clone(),
            memory_bytes,
            ..Gpu::default()
        };
        let slices = self.slices(gpu);
        Ok((0..self.gpus).map(gpu).chain(slices).collect())
    }

    /// Returns the slices of the GPUs behind the whole ones.
    fn slices(&self, gpu: impl Fn(u64) -> Gpu) -> Vec<Gpu> {
        let slices = cut_in_order(&self.mig).enumerate();
        let slices = slices.map(|(number, (cut, profile))| {
            let whole = gpu(self.gpus + cut);
            let parent = whole.uuid.clone();
            let digits = parent.trim_start_matches("GPU-");
            Gpu {
                uuid: format!("MIG-{number}-{digits}"),
                memory_bytes: whole.memory_bytes / MGPU_A_GPU * profile.mgpu(),
                mig: Some(MigInstance {
                    profile: profile.to_string(),
                    parent,
                }),
                ..whole
            }
        });
        slices.collect()
    }
}

fn device(path: &Path) -> Result<DeviceNode, String> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|e| format!("{shown}: {e}"))?;
    if !found.file_type().is_char_device() {
        return Err(format!(
            "{shown} is not a character device: make one with `mknod`"
        ));
    }
    let (major, minor) = (stat::major(found.rdev()), stat::minor(found.rdev()));
    let number = u32::try_from(major).and_then(|major| Ok((major, u32::try_from(minor)?)));
    let (major, minor) = number.map_err(|e| format!("{shown}: {e}"))?;
    Ok(DeviceNode {
        path: shown.to_string(),
        number: DeviceNumber::new(major, minor),
    })
}

/// Reads an amount of memory, at most [`WITHOUT_END_BYTES`].
fn bytes(
    field: &'static str,
    text: Option<&str>,
    default: u64,
) -> Result<u64, (&'static str, MemoryError)> {
    let read = text.map_or(Ok(default), parse_memory);
    let read = read.map_err(|e| (field, e))?;
    Ok(read.min(WITHOUT_END_BYTES))
}

/// Returns a valid UUID that is the same at each start: FNV-1a over host and index, twice.
fn uuid(host: &str, index: u64) -> String {
    let hash = |seed: u64| {
        let bytes = host.bytes().chain(index.to_be_bytes());
        bytes.fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Checks all documents, and returns every mistake at once.
pub(super) fn check(hosts: Vec<HostDocument>) -> Result<Vec<DeclaredHost>, String> {
    let mut made: Vec<DeclaredHost> = Vec::new();
    let mut mistakes = Vec::new();
    for host in hosts {
        match host.check() {
            Ok(host) if made.iter().any(|known| known.name == host.name) => {
                mistakes.push(format!("host `{}`: name: it is declared twice", host.name));
            }
            Ok(host) => made.push(host),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() {
        return Ok(made);
    }
    Err(mistakes.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, gpus: u64, model: &str) -> HostDocument {
        HostDocument {
            name: name.into(),
            gpus,
            gpu_model: Some(model.into()),
            ..HostDocument::default()
        }
    }

    #[test]
    fn gpus_have_model_memory_platform_and_a_uuid_of_their_own() {
        let made = check(vec![
            host("a", 2, "H100"),
            host("b", 1, "NVIDIA Rubin CPX 128GB"),
        ])
        .unwrap();
        let gpu = &made[0].inventory.gpus[1];
        assert_eq!(
            (gpu.index, gpu.model.as_str()),
            (1, "NVIDIA H100 80GB HBM3")
        );
        assert_eq!(
            (gpu.platform.as_str(), gpu.memory_bytes),
            ("h100", 81_559 * MIB)
        );
        assert_eq!(made[1].inventory.gpus[0].platform, "rubin-cpx");
        let uuids: std::collections::BTreeSet<&str> = made
            .iter()
            .flat_map(|host| &host.inventory.gpus)
            .map(|gpu| gpu.uuid.as_str())
            .collect();
        assert_eq!(uuids.len(), 3);
        assert!(uuids.iter().all(|uuid| uuid.len() == 40), "{uuids:?}");
        assert_eq!(check(vec![host("a", 2, "H100")]).unwrap()[0], made[0]);
    }

    #[test]
    fn what_is_left_out_is_without_end_and_sums_stay_numbers() {
        let made = check(vec![HostDocument {
            name: "cpu".into(),
            ..HostDocument::default()
        }])
        .unwrap();
        let capacity = made[0].inventory.capacity();
        assert_eq!(
            (capacity.get("mgpu"), capacity.get("memory_mb")),
            (0, WITHOUT_END_BYTES / 1_000_000)
        );
        assert!(capacity.get("mcpu").checked_mul(10_000).is_some());
        assert!(made[0].inventory.memory_bytes.checked_mul(10_000).is_some());
    }

    #[test]
    fn slices_are_of_as_many_gpus_as_they_fill() {
        let mut request = host("a", 1, "H100");
        let profile = |text: &str| text.parse().unwrap();
        request.mig = [(profile("3g.40gb"), 3), (profile("1g.10gb"), 2)].into();
        let made = request.check().unwrap().inventory.gpus;
        let found = made.iter().map(|gpu| {
            let profile = gpu.mig.as_ref().map_or("", |mig| &mig.profile);
            (gpu.index, profile)
        });
        let expected = [
            (0, ""),
            (1, "1g.10gb"),
            (1, "1g.10gb"),
            (1, "3g.40gb"),
            (2, "3g.40gb"),
            (2, "3g.40gb"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(made[1].uuid.starts_with("MIG-") && made[1].uuid != made[2].uuid);
        assert_eq!(made[3].whole(), made[1].whole());
        assert_ne!(made[4].whole(), made[1].whole());
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let mut odd = host("odd", 1, "L4");
        odd.memory = Some("500".into());
        let mut bare = host("bare", 1, "");
        bare.gpu_model = None;
        let message = check(vec![
            host("a", 1, "L4"),
            host("a", 1, "L4"),
            host("no name", 1, "L4"),
            odd,
            bare,
        ])
        .unwrap_err();
        for words in [
            "`a`: name: it is declared twice",
            "`no name`: name",
            "`odd`: memory: `500` is not an amount of memory",
            "`bare`: gpu_model",
        ] {
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    #[test]
    fn gpus_may_have_stand_in_devices_one_each() {
        let mut request = host("a", 2, "H100");
        request.gpu_devices = vec!["/dev/zero".into(), "/dev/full".into()];
        let made = request.clone().check().unwrap();
        let numbers = made.inventory.gpus.iter().map(|gpu| gpu.devices[0].number);
        let expected = [DeviceNumber::new(1, 5), DeviceNumber::new(1, 7)];
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        for (nodes, word) in [
            (vec!["/dev/zero"], "1 are named for 2 GPUs"),
            (vec!["/dev/zero", "/no/such"], "/no/such: No such file"),
            (vec!["/dev/zero", "/tmp"], "/tmp is not a character device"),
        ] {
            request.gpu_devices = nodes.into_iter().map(PathBuf::from).collect();
            let message = request.clone().check().unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
