//! The grantable units of a GPU: the GPU itself, or its MIG instances.

use nvml_wrapper::Device;
use sluice_common::inventory::{Gpu, MigInstance};

use super::answer::{line, optional};
use super::{DriverReport, memory, nodes, reading};

/// `NVML_DEVICE_MIG_ENABLE` of NVIDIA's header.
const ENABLED: u32 = 1;

/// Adds the units of one GPU to a report, with a reading of each, and one of the whole GPU if it has
/// instances.
pub(super) fn units(device: &Device<'_>, whole: Gpu, report: &mut DriverReport) {
    report
        .readings
        .push(reading::of(device, &whole.uuid, &mut report.notes));
    let mode = optional("a GPU's MIG mode", device.mig_mode(), &mut report.notes);
    if mode.is_none_or(|mode| mode.current != ENABLED) {
        report.gpus.push(whole);
        return;
    }
    let before = report.gpus.len();
    let count = optional(
        "how many MIG instances there may be",
        device.mig_device_count(),
        &mut report.notes,
    );
    for place in 0..count.unwrap_or_default() {
        // Fails for an index without an instance.
        let Ok(instance) = device.mig_device_by_index(place) else {
            continue;
        };
        match instance.uuid() {
            Ok(uuid) => add(&instance, &line(&uuid), &whole, report),
            Err(error) => {
                let index = whole.index;
                report.notes.add(format!(
                    "MIG instance {place} of GPU {index} does not answer and is ignored: {error}"
                ));
            }
        }
    }
    if report.gpus.len() == before {
        report.notes.add(format!(
            "GPU {} has MIG on and no instance, so no step can use it: create instances with `nvidia-smi mig`, or \
             switch MIG off",
            whole.index
        ));
    }
}

/// Whether a GPU is partitioned into instances, if the driver tells.
pub(super) fn is_cut(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current == ENABLED)
}

fn add(instance: &Device<'_>, uuid: &str, whole: &Gpu, report: &mut DriverReport) {
    let notes = &mut report.notes;
    let memory = memory::of(instance, notes);
    let name = optional("a MIG instance's name", instance.name(), notes);
    let profile = profile_in(name.as_deref().unwrap_or_default());
    let profile = profile.or_else(|| {
        let parts = optional("a MIG instance's profile", instance.attributes(), notes)?;
        let gigabytes = parts.memory_size_mb.div_ceil(1024);
        Some(format!("{}g.{gigabytes}gb", parts.gpu_instance_slice_count))
    });
    report.readings.push(reading::of(instance, uuid, notes));
    report.gpus.push(Gpu {
        uuid: uuid.to_owned(),
        memory_bytes: memory.map_or(0, |memory| memory.total),
        mig: Some(MigInstance {
            profile: profile.unwrap_or_else(|| "unknown".to_owned()),
            parent: whole.uuid.clone(),
        }),
        nvlink: Vec::new(),
        devices: [
            whole.devices.clone(),
            nodes::of_instance(instance, &whole.devices, notes),
        ]
        .concat(),
        ..whole.clone()
    });
}

/// The last word of names such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
fn profile_in(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    Some(line(profile)).filter(|profile| !profile.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_read_off_the_name() {
        assert_eq!(
            profile_in("NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
            Some("1g.10gb".into())
        );
        assert_eq!(
            profile_in("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"),
            Some("1c.3g.20gb".into())
        );
        assert_eq!(profile_in("NVIDIA H100 80GB HBM3"), None);
        assert_eq!(profile_in("MIG "), None);
    }
}
