//! Facts of one GPU that rarely change. They are queried once, and again periodically: a GPU changes its slot
//! only while the host is off, but a mode may be switched while the agent runs.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::{Device, Nvml};
use sluice_common::inventory::{BoardFacts, Gpu};
use sluice_common::platform::{slug, vgpu_slug};

use super::answer::{line, optional};
use super::{board, memory, nodes};
use crate::detect::notes::Notes;

/// Scans after which the facts of a GPU are queried again.
const REFRESH_AFTER: u32 = 20;
/// Number of words of 64 NUMA nodes in a mask.
const NUMA_WORDS: usize = 16;
/// Affinity scope for NUMA nodes, from NVML's header (`NVML_AFFINITY_SCOPE_NODE`).
const SCOPE_NODE: u32 = 0;

/// Known facts of GPUs by UUID.
#[derive(Default)]
pub(super) struct GpuFacts {
    known: BTreeMap<String, KnownFacts>,
    looks: u32,
}

/// The facts of one GPU, and the notes about them.
struct KnownFacts {
    gpu: Gpu,
    said: Notes,
    /// Whether they are to be queried.
    is_old: bool,
}

impl Default for KnownFacts {
    fn default() -> Self {
        Self {
            gpu: Gpu::default(),
            said: Notes::default(),
            is_old: true,
        }
    }
}

impl GpuFacts {
    /// Called once for each scan.
    pub(super) fn begin_look(&mut self) {
        self.looks += 1;
        if self.looks >= REFRESH_AFTER {
            self.looks = 0;
            self.known
                .values_mut()
                .for_each(|known| known.is_old = true);
        }
    }

    /// The facts of a whole GPU. A fact that the driver does not tell now is the last known one.
    pub(super) fn of(
        &mut self,
        nvml: &Nvml,
        device: &Device<'_>,
        index: u32,
        uuid: &str,
        notes: &mut Notes,
    ) -> Gpu {
        let known = self.known.entry(uuid.to_owned()).or_default();
        if known.is_old {
            let (mut gpu, said) = ask(nvml, device, uuid);
            gpu.board = board::facts(nvml, device, &known.gpu.board);
            *known = KnownFacts {
                gpu: with_known(gpu, &known.gpu),
                said,
                is_old: false,
            };
        }
        notes.extend(&known.said);
        Gpu {
            index,
            ..known.gpu.clone()
        }
    }
}

/// Fills what could not be read from what was known.
fn with_known(gpu: Gpu, known: &Gpu) -> Gpu {
    let model = match gpu.model.is_empty() {
        true => known.model.clone(),
        false => gpu.model,
    };
    let platform = match gpu.board.is_vgpu() {
        true => vgpu_slug(&model),
        false => slug(&model),
    };
    Gpu {
        platform,
        model,
        pci: gpu.pci.or_else(|| known.pci.clone()),
        memory_bytes: match gpu.memory_bytes {
            0 => known.memory_bytes,
            bytes => bytes,
        },
        numa_node: gpu.numa_node.or(known.numa_node),
        ecc: gpu.ecc.or(known.ecc),
        devices: match gpu.devices.is_empty() {
            true => known.devices.clone(),
            false => gpu.devices,
        },
        ..gpu
    }
}

fn ask(nvml: &Nvml, device: &Device<'_>, uuid: &str) -> (Gpu, Notes) {
    let mut notes = Notes::default();
    let model = optional("a GPU's model", device.name(), &mut notes);
    let model = line(&model.unwrap_or_default());
    let pci = optional("a GPU's PCI address", device.pci_info(), &mut notes);
    let pci = pci.map(|info| short_address(&line(&info.bus_id)));
    let memory = memory::of(device, &mut notes);
    let gpu = Gpu {
        index: 0,
        uuid: line(uuid),
        platform: String::new(),
        numa_node: numa_node(device, pci.as_deref(), &mut notes),
        nvlink: nvlink(nvml, device, uuid, &mut notes),
        ecc: optional("a GPU's ECC mode", device.is_ecc_enabled(), &mut notes)
            .map(|ecc| ecc.currently_enabled),
        memory_bytes: memory.map_or(0, |memory| memory.total),
        mig: None,
        devices: nodes::of_gpu(device, &mut notes),
        board: BoardFacts::default(),
        model,
        pci,
    };
    (gpu, notes)
}

/// Converts NVML's address `00000000:17:00.0` to the kernel's `0000:17:00.0`, in lower case; a domain with
/// more digits keeps them.
pub(super) fn short_address(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

/// NUMA node of the address by the kernel, else of the closest memory by the driver.
fn numa_node(device: &Device<'_>, pci: Option<&str>, notes: &mut Notes) -> Option<u32> {
    let by_kernel = pci.and_then(|pci| {
        let path = Path::new("/sys/bus/pci/devices")
            .join(pci)
            .join("numa_node");
        // -1 means none.
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    });
    by_kernel.or_else(|| {
        let words = device.memory_affinity(NUMA_WORDS, SCOPE_NODE);
        let words = optional("a GPU's NUMA node", words, notes)?;
        only_bit(&words)
    })
}

/// Position of the only set bit.
fn only_bit(words: &[u64]) -> Option<u32> {
    let mut set = (0u32..).zip(words).filter(|(_, word)| **word != 0);
    let (place, word) = set.next()?;
    (set.next().is_none() && word.is_power_of_two()).then(|| place * 64 + word.trailing_zeros())
}

/// GPUs that are reachable by NVLink, also through switches, as the driver reports.
fn nvlink(nvml: &Nvml, device: &Device<'_>, own: &str, notes: &mut Notes) -> Vec<String> {
    let count = nvml.device_count().unwrap_or_default();
    let others = (0..count).filter_map(|index| nvml.device_by_index(index).ok());
    let reached = others.filter_map(|other| {
        let uuid = other.uuid().ok().filter(|uuid| uuid != own)?;
        let status = device.p2p_status(&other, P2pCapabilitiesIndex::NvLink);
        let status = optional("which GPUs NVLink connects", status, notes)?;
        (status == P2pStatus::Ok).then(|| line(&uuid))
    });
    reached.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_kernel_writes_them() {
        for (nvml, kernel) in [
            ("00000000:17:00.0", "0000:17:00.0"),
            ("0000:AF:00.0", "0000:af:00.0"),
            ("00010000:01:00.0", "00010000:01:00.0"),
            ("odd", "odd"),
        ] {
            assert_eq!(short_address(nvml), kernel);
        }
    }

    #[test]
    fn a_numa_node_is_told_where_there_is_one() {
        assert_eq!(only_bit(&[0b10, 0]), Some(1));
        assert_eq!(only_bit(&[0, 1]), Some(64));
        assert_eq!(only_bit(&[0b11]), None);
        assert_eq!(only_bit(&[1, 1]), None);
        assert_eq!(only_bit(&[]), None);
    }
}
