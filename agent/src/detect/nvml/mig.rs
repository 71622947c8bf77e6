//! The grantable units of a GPU: the GPU itself, or its MIG instances.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use sluice_common::inventory::{Gpu, MigInstance};

use super::answer::{MIG_ENABLED, optional, profile_in, uuid, words};
use super::{DriverReport, board, memory, nodes, reading};
use crate::detect::notes::Notes;

/// The last known MIG mode of each GPU. A mode that cannot be read now is the last known one, because a GPU must not be
/// offered whole while steps may run on its instances.
#[derive(Default)]
pub(super) struct MigModes(BTreeMap<String, bool>);

impl MigModes {
    /// Whether a GPU is cut into instances; `None` if the driver has never told.
    pub(super) fn is_cut(
        &mut self,
        device: &Device<'_>,
        uuid: &str,
        notes: &mut Notes,
    ) -> Option<bool> {
        let is_cut = match device.mig_mode() {
            Ok(mode) => mode.current == MIG_ENABLED,
            // The model has no MIG, or the driver is older than MIG.
            Err(
                NvmlError::NotSupported
                | NvmlError::FailedToLoadSymbol(_)
                | NvmlError::FunctionNotFound,
            ) => false,
            Err(error) => {
                notes.add(format!(
                    "GPU {uuid} does not tell whether MIG is on, so its last known mode counts: {}",
                    words(&error)
                ));
                return self.0.get(uuid).copied();
            }
        };
        self.0.insert(uuid.to_owned(), is_cut);
        Some(is_cut)
    }

    /// Whether a GPU was not cut when it last told.
    pub(super) fn is_whole(&self, uuid: &str) -> bool {
        self.0.get(uuid) == Some(&false)
    }

    /// Takes over what is known from an earlier report.
    pub(super) fn remember(&mut self, gpus: &[Gpu]) {
        let known = gpus
            .iter()
            .map(|gpu| (gpu.whole().to_owned(), gpu.mig.is_some()));
        self.0.extend(known);
    }
}

/// The instances of a GPU by UUID, and why some of them could not be read.
pub(super) struct Instances<'nvml> {
    pub(super) found: Vec<(String, Device<'nvml>)>,
    pub(super) unread: Option<NvmlError>,
}

impl<'nvml> Instances<'nvml> {
    pub(super) fn of(device: &Device<'nvml>) -> Self {
        let mut instances = Self {
            found: Vec::new(),
            unread: None,
        };
        let count = device.mig_device_count();
        let count = count.unwrap_or_else(|error| {
            instances.unread = Some(error);
            0
        });
        for place in 0..count {
            let instance = device.mig_device_by_index(place);
            match instance.and_then(|instance| Ok((uuid(&instance)?, instance))) {
                Ok(found) => instances.found.push(found),
                // There is no instance at this place.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
                Err(error) => instances.unread = Some(error),
            }
        }
        instances
    }
}

/// Adds the units of one GPU to a report, with a reading of each, and one of the whole GPU if it has
/// instances. Units that cannot be read are taken from the last report.
pub(super) fn units(
    device: &Device<'_>,
    whole: Gpu,
    modes: &mut MigModes,
    last: &[Gpu],
    report: &mut DriverReport,
) {
    let mut reading = reading::of(device, &whole.uuid, &mut report.notes);
    reading.board = Some(board::reading(device, &mut report.notes));
    report.readings.push(reading);
    match modes.is_cut(device, &whole.uuid, &mut report.notes) {
        Some(false) => return report.gpus.push(whole),
        Some(true) => {}
        None => {
            return report.notes.add(format!(
                "GPU {} is not used until it tells whether MIG is on",
                whole.index
            ));
        }
    }
    let Instances { found, unread } = Instances::of(device);
    let before = report.gpus.len();
    for (uuid, instance) in &found {
        add(instance, uuid, &whole, report);
    }
    if let Some(error) = unread {
        report.notes.add(format!(
            "some MIG instances of GPU {} do not answer, so the last known ones are shown: {}",
            whole.index,
            words(&error)
        ));
        let is_here = |gpu: &&Gpu| gpu.mig.as_ref().is_some_and(|mig| mig.parent == whole.uuid);
        let is_found = |gpu: &&Gpu| found.iter().any(|(uuid, _)| *uuid == gpu.uuid);
        let unread = last.iter().filter(is_here).filter(|gpu| !is_found(gpu));
        report.gpus.extend(unread.cloned());
    }
    if report.gpus.len() == before {
        report.notes.add(format!(
            "GPU {} has MIG on and no instance, so no step can use it: create instances with `nvidia-smi mig`, or \
             switch MIG off",
            whole.index
        ));
        report.empty_gpus.push(whole);
    }
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
