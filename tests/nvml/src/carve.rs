//! Changes of MIG: the mode, GPU instances and their compute instances. A change is written to the host file. One compute
//! instance takes all of its GPU instance, and both together are a MIG device.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exports::exports;
use crate::host::Host;
use crate::mig::Profile;
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, NvmlResult, SUCCESS, file, handle};

const IN_USE: Code = nvml::nvmlReturn_enum_NVML_ERROR_IN_USE;
const NO_ROOM: Code = nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES;
const NEEDS_RESET: Code = nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED;

/// Number and slices of the compute profiles.
const COMPUTE_PROFILES: [(c_uint, u32); 5] = [
    (nvml::NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, 1),
    (nvml::NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, 2),
    (nvml::NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, 3),
    (nvml::NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE, 4),
    (nvml::NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE, 7),
];

exports! {
    gpu fn nvmlDeviceSetMigMode([device] mode: c_uint, activation: OutPtr<nvml::nvmlReturn_t>)
        |device| {
            device.can_be_cut()?;
            set_mode(device, mode == nvml::NVML_DEVICE_MIG_ENABLE, &activation)
        };
    gpu fn nvmlDeviceGetGpuInstances(
        [device] profile: c_uint, instances: OutPtr<nvml::nvmlGpuInstance_t>, count: OutPtr<c_uint>
    ) |device| {
        let profile = offered(device, profile)?;
        let of_profile = instances_of(device).into_iter();
        let of_profile = of_profile.filter(|it| it.profile == profile.name(device));
        let found: Vec<_> = of_profile.map(|it| instance_handle(device, it.id)).collect();
        instances.fill(&count, &found)
    };
    gpu fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        [device] profile: c_uint, placements: OutPtr<nvml::nvmlGpuInstancePlacement_t>, count: OutPtr<c_uint>
    ) |device| {
        let profile = offered(device, profile)?;
        let size = profile.eighths;
        let placement = |start| nvml::nvmlGpuInstancePlacement_t { start, size };
        let found: Vec<_> = starts(profile).map(placement).collect();
        placements.fill_or_count(&count, &found)
    };
    gpu fn nvmlDeviceCreateGpuInstanceWithPlacement(
        [device] profile: c_uint, placement: OutPtr<nvml::nvmlGpuInstancePlacement_t>,
        instance: OutPtr<nvml::nvmlGpuInstance_t>
    ) |device| {
        let profile = offered(device, profile)?;
        let start = placement.get()?.start;
        instance.put(create(device, profile, start)?)
    };
    host fn nvmlGpuInstanceDestroy(instance: InstanceHandle) |host| {
        let (device, id) = instance.resolve(host, "instance")?;
        let bare = &device.gpu().bare_instances;
        if !bare.iter().any(|it| it.gpu_instance == id) {
            return Err(IN_USE);
        }
        edit(&device, |gpu| {
            list(gpu, "bare_instances")?.retain(|it| it["gpu_instance"] != id);
            Ok(())
        })
    };
    host fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        instance: InstanceHandle, number: c_uint, _engine: c_uint,
        info: OutPtr<nvml::nvmlComputeInstanceProfileInfo_t>
    ) |host| {
        let (device, id) = instance.resolve(host, "instance")?;
        let slices = slices_of(&device, id)?;
        let of_number = COMPUTE_PROFILES.iter().find(|(known, _)| *known == number);
        let (_, own) = of_number.filter(|(_, own)| *own <= slices).ok_or(NOT_SUPPORTED)?;
        info.put(nvml::nvmlComputeInstanceProfileInfo_t {
            id: number,
            sliceCount: *own,
            instanceCount: slices / own,
            multiprocessorCount: 0,
            sharedCopyEngineCount: slices,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
        })
    };
    host fn nvmlGpuInstanceGetComputeInstances(
        instance: InstanceHandle, profile: c_uint, found: OutPtr<nvml::nvmlComputeInstance_t>,
        count: OutPtr<c_uint>
    ) |host| {
        let (device, id) = instance.resolve(host, "instance")?;
        let whole = whole_profile(slices_of(&device, id)?);
        let has = instances_of(&device).iter().any(|it| it.id == id && it.has_compute);
        let own = (has && profile == whole).then(|| compute_handle(&device, id));
        found.fill(&count, own.as_slice())
    };
    host fn nvmlGpuInstanceCreateComputeInstance(
        instance: InstanceHandle, profile: c_uint, compute: OutPtr<nvml::nvmlComputeInstance_t>
    ) |host| {
        let (device, id) = instance.resolve(host, "instance")?;
        if profile != whole_profile(slices_of(&device, id)?) {
            return Err(NOT_SUPPORTED);
        }
        let bare = device.gpu().bare_instances.iter();
        let bare = bare.clone().find(|it| it.gpu_instance == id).ok_or(NO_ROOM)?;
        let shown = json!({
            "uuid": mig_uuid(&device, id, bare.start),
            "profile": bare.profile,
            "gpu_instance": id,
            "start": bare.start,
        });
        edit(&device, |gpu| {
            list(gpu, "bare_instances")?.retain(|it| it["gpu_instance"] != id);
            list(gpu, "mig")?.push(shown);
            Ok(())
        })?;
        compute.put(compute_handle(&device, id))
    };
    host fn nvmlComputeInstanceDestroy(compute: InstanceHandle) |host| {
        let (device, id) = compute.resolve(host, "compute")?;
        let found = instances_of(&device).into_iter();
        let found = found.clone().find(|it| it.id == id && it.has_compute).ok_or(NOT_FOUND)?;
        let at = found.mig.ok_or(NOT_FOUND)?;
        if device.gpu().processes.iter().any(|process| process.mig == Some(at)) {
            return Err(IN_USE);
        }
        let rest = json!({"profile": found.profile, "gpu_instance": id, "start": found.start});
        edit(&device, |gpu| {
            list(gpu, "mig")?.remove(at);
            list(gpu, "bare_instances")?.push(rest);
            Ok(())
        })
    };
}

/// A GPU instance without a compute instance.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyInstance {
    profile: String,
    gpu_instance: c_uint,
    /// First eighth of the memory that it has.
    start: u32,
}

/// A GPU instance.
#[derive(Clone)]
struct GpuInstance {
    profile: String,
    id: c_uint,
    start: u32,
    has_compute: bool,
    /// Index of its MIG device.
    mig: Option<usize>,
}

/// Handle of a GPU instance or of a compute instance.
#[repr(transparent)]
pub struct InstanceHandle(*mut c_void);

impl InstanceHandle {
    /// Returns the GPU, and the id of the GPU instance that it is or belongs to.
    fn resolve(&self, host: &Arc<Host>, kind: &str) -> Result<(Device, c_uint), Code> {
        resolve(host, kind, self.0.cast())
    }
}

fn instance_handle(device: &Device, id: c_uint) -> nvml::nvmlGpuInstance_t {
    handle::of(&format!("instance {} {id}", device.gpu().uuid)).cast()
}

fn compute_handle(device: &Device, id: c_uint) -> nvml::nvmlComputeInstance_t {
    handle::of(&format!("compute {} {id}", device.gpu().uuid)).cast()
}

/// Returns the GPU and the id of the GPU instance.
fn resolve(
    host: &Arc<Host>,
    kind: &str,
    handle: nvml::nvmlDevice_t,
) -> Result<(Device, c_uint), Code> {
    let name = handle::uuid(handle).ok_or(INVALID_ARGUMENT)?;
    let mut words = name.split(' ');
    let (is_it, gpu) = (words.next() == Some(kind), words.next());
    let id = words.next().and_then(|id| id.parse().ok());
    let mut gpus = Device::gpus(host);
    let device = gpus.find(|device| is_it && gpu == Some(device.uuid()));
    let (device, id) = device.zip(id).ok_or(INVALID_ARGUMENT)?;
    match instances_of(&device).iter().any(|it| it.id == id) {
        true => Ok((device, id)),
        false => Err(NOT_FOUND),
    }
}

/// Lists the GPU instances of a GPU: those of its MIG devices, and those without a compute instance.
fn instances_of(device: &Device) -> Vec<GpuInstance> {
    let mut free = 0;
    let shown = device.gpu().mig.iter().flatten().enumerate();
    let shown = shown.map(|(at, mig)| {
        let own = Device {
            mig: Some(at),
            ..device.clone()
        };
        let size = Profile::named(device, &mig.profile).map_or(1, |it| it.eighths);
        let start = mig.start.unwrap_or(free);
        free = start + size;
        GpuInstance {
            profile: mig.profile.clone(),
            id: own.instance_ids().0,
            start,
            has_compute: true,
            mig: Some(at),
        }
    });
    let bare = device.gpu().bare_instances.iter().map(|it| GpuInstance {
        profile: it.profile.clone(),
        id: it.gpu_instance,
        start: it.start,
        has_compute: false,
        mig: None,
    });
    shown.chain(bare).collect()
}

fn offered(device: &Device, profile: c_uint) -> Result<Profile, Code> {
    device.can_be_cut()?;
    if device.gpu().mig.is_none() {
        return Err(NOT_SUPPORTED);
    }
    Profile::numbered(profile).ok_or(INVALID_ARGUMENT)
}

/// Returns the first eighths at which an instance of a profile may begin.
fn starts(profile: Profile) -> impl Iterator<Item = u32> {
    let last = match profile.slices {
        7 | 4 => 0,
        3 => 4,
        2 => 4,
        _ => 6,
    };
    (0..=last).step_by(profile.eighths as usize)
}

fn create(device: &Device, profile: Profile, start: u32) -> Result<nvml::nvmlGpuInstance_t, Code> {
    let known = instances_of(device);
    let size = |it: &GpuInstance| Profile::named(device, &it.profile).map_or(1, |it| it.eighths);
    let is_free = known
        .iter()
        .all(|it| start + profile.eighths <= it.start || it.start + size(it) <= start);
    let is_place = starts(profile).any(|known| known == start);
    let id = (1..).find(|id| known.iter().all(|it| it.id != *id));
    let id = id.filter(|_| is_free && is_place).ok_or(NO_ROOM)?;
    let made = json!({"profile": profile.name(device), "gpu_instance": id, "start": start});
    edit(device, |gpu| {
        list(gpu, "bare_instances")?.push(made);
        Ok(())
    })?;
    Ok(instance_handle(device, id))
}

fn set_mode(device: &Device, on: bool, activation: &OutPtr<nvml::nvmlReturn_t>) -> NvmlResult {
    let gpu = device.gpu();
    let is_on = gpu.mig.is_some();
    if on != is_on && !gpu.processes.is_empty() {
        return activation.put(IN_USE);
    }
    if !on && !instances_of(device).is_empty() {
        return Err(IN_USE);
    }
    if on != is_on && gpu.mig_needs_reset {
        edit(device, |gpu| {
            gpu["mig_pending"] = on.into();
            Ok(())
        })?;
        return activation.put(NEEDS_RESET);
    }
    edit(device, |gpu| {
        let fields = gpu.as_object_mut().ok_or(INVALID_ARGUMENT)?;
        fields.remove("mig_pending");
        match on {
            true => drop(fields.entry("mig").or_insert_with(|| json!([]))),
            false => drop(fields.remove("mig")),
        }
        Ok(())
    })?;
    activation.put(SUCCESS)
}

fn slices_of(device: &Device, id: c_uint) -> Result<u32, Code> {
    let found = instances_of(device).into_iter();
    let mut found = found.filter(|it| it.id == id);
    let profile = found.next().map(|it| it.profile).unwrap_or_default();
    let profile = Profile::named(device, &profile).ok_or(NOT_FOUND)?;
    Ok(profile.slices)
}

fn whole_profile(slices: u32) -> c_uint {
    let whole = COMPUTE_PROFILES.iter().find(|(_, own)| *own == slices);
    whole.map_or(c_uint::MAX, |(number, _)| *number)
}

/// Derives the UUID of a MIG device, which is the same whenever the same instance is made.
fn mig_uuid(device: &Device, id: c_uint, start: u32) -> String {
    let gpu = device.gpu().uuid.replacen("GPU-", "", 1);
    format!("MIG-{gpu}-{id}-{start}")
}

/// Changes a GPU in the host file.
fn edit(device: &Device, edit: impl FnOnce(&mut Value) -> NvmlResult) -> NvmlResult {
    let uuid = device.gpu().uuid.clone();
    file::change(|host| {
        let gpus = host["gpus"].as_array_mut().ok_or(INVALID_ARGUMENT)?;
        let gpu = gpus.iter_mut().find(|gpu| gpu["uuid"] == *uuid);
        edit(gpu.ok_or(INVALID_ARGUMENT)?)
    })
}

/// Returns a list of a GPU, which is made if it is absent.
fn list<'a>(gpu: &'a mut Value, name: &str) -> Result<&'a mut Vec<Value>, Code> {
    let fields = gpu.as_object_mut().ok_or(INVALID_ARGUMENT)?;
    let list = fields.entry(name).or_insert_with(|| json!([]));
    list.as_array_mut().ok_or(INVALID_ARGUMENT)
}
