//! GPUs split into MIG devices, each a GPU instance with a compute instance in it.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

use crate::exports::exports;
use crate::out::{OutPtr, chars};
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, NvmlResult};

exports! {
    gpu fn nvmlDeviceGetMigMode([device] current: OutPtr<c_uint>, pending: OutPtr<c_uint>)
        |device| {
            device.can_be_cut()?;
            let mode = match device.gpu().mig {
                Some(_) => nvml::NVML_DEVICE_MIG_ENABLE,
                None => nvml::NVML_DEVICE_MIG_DISABLE,
            };
            current.put(mode)?;
            pending.put(device.gpu().mig_pending.map_or(mode, c_uint::from))
        };
    gpu fn nvmlDeviceGetGpuInstanceProfileInfoV(
        [device] profile: c_uint, info: OutPtr<nvml::nvmlGpuInstanceProfileInfo_v2_t>
    ) |device| {
        device.can_be_cut()?;
        let version = info.expect_version(2)?;
        info.put(profile_info(device, profile, version)?)
    };
    gpu fn nvmlDeviceGetMaxMigDeviceCount([device] count: OutPtr<c_uint>)
        |device| count.put(device.model().mig.as_ref().map_or(0, |mig| mig.max_devices));
    gpu fn nvmlDeviceGetMigDeviceHandleByIndex([device] index: c_uint, mig_device: OutPtr<nvml::nvmlDevice_t>)
        |device| mig_device.put(part(device, index)?.handle());
    unit fn nvmlDeviceIsMigDeviceHandle([device] is: OutPtr<c_uint>)
        |unit| is.put(c_uint::from(unit.mig.is_some()));
    unit fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle([device] parent: OutPtr<nvml::nvmlDevice_t>)
        |unit| {
            the_instance(unit)?;
            parent.put(Device { mig: None, ..unit.clone() }.handle())
        };
    unit fn nvmlDeviceGetGpuInstanceId([device] id: OutPtr<c_uint>)
        |unit| {
            the_instance(unit)?;
            id.put(unit.instance_ids().0)
        };
    unit fn nvmlDeviceGetComputeInstanceId([device] id: OutPtr<c_uint>)
        |unit| {
            the_instance(unit)?;
            id.put(unit.instance_ids().1)
        };
    unit fn nvmlDeviceGetAttributes([device] attributes: OutPtr<nvml::nvmlDeviceAttributes_t>)
        |unit| attributes.put(attributes_of(unit)?);
    unit fn nvmlDeviceGetAttributes_v2([device] attributes: OutPtr<nvml::nvmlDeviceAttributes_t>)
        |unit| attributes.put(attributes_of(unit)?);
}

/// A MIG device of a host file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigInstance {
    pub(crate) uuid: String,
    /// Profile such as `1g.10gb`: slices of seven, and memory.
    pub(crate) profile: String,
    /// First eighth of the memory that it has; derived if absent.
    pub(crate) start: Option<u32>,
    pub(crate) gpu_instance: Option<u32>,
    #[serde(default)]
    pub(crate) compute_instance: u32,
    memory_total_mib: Option<u32>,
    /// Memory without a visible owner.
    #[serde(default, rename = "memory_used_mib")]
    pub(crate) held_mib: u32,
}

impl MigInstance {
    /// Checks that the profile can be parsed and the UUID is a MIG device's.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.uuid.starts_with("MIG-") {
            return Err(format!(
                "mig: the uuid {} does not begin with MIG-",
                self.uuid
            ));
        }
        match self.sizes() {
            Some(_) => Ok(()),
            None => Err(format!(
                "mig: {} is no profile: write one such as 1g.10gb",
                self.profile
            )),
        }
    }

    /// Returns slices and gigabytes. A profile can begin with its compute slices (`1c.3g.40gb`) and end with an
    /// attribute (`1g.10gb+me`).
    fn sizes(&self) -> Option<(u32, u16)> {
        let plain = self
            .profile
            .split('+')
            .next()
            .filter(|plain| !plain.is_empty())?;
        let mut parts = plain.rsplit('.');
        let gigabytes = parts.next()?.strip_suffix("gb")?.parse().ok()?;
        let slices = parts.next()?.strip_suffix('g')?.parse().ok()?;
        (1..=7).contains(&slices).then_some((slices, gigabytes))
    }

    fn slices(&self) -> u32 {
        self.sizes().map_or(0, |(slices, _)| slices)
    }

    /// Returns the default memory: somewhat less than the profile says, as on real ones.
    pub(crate) fn memory_mib(&self) -> u32 {
        let gigabytes = self.sizes().map_or(0, |(_, gigabytes)| gigabytes);
        self.memory_total_mib.unwrap_or(u32::from(gigabytes) * 1000)
    }

    /// Returns the driver's first id for instances of this size.
    fn first_id(&self) -> u32 {
        match self.slices() {
            7 => 0,
            3..7 => 1,
            2 => 3,
            _ => 7,
        }
    }
}

impl Device {
    pub(crate) fn can_be_cut(&self) -> NvmlResult {
        match self.model().mig {
            Some(_) => Ok(()),
            None => Err(NOT_SUPPORTED),
        }
    }

    /// Returns the ids of its GPU instance and its compute instance; all bits set if it is no MIG device.
    pub(crate) fn instance_ids(&self) -> (c_uint, c_uint) {
        let Some((instance, mig)) = self.instance().zip(self.mig) else {
            return (c_uint::MAX, c_uint::MAX);
        };
        let earlier = self.gpu().mig.iter().flatten().take(mig);
        let alike = earlier.filter(|other| other.first_id() == instance.first_id());
        let derived = instance.first_id() + alike.count() as c_uint;
        (
            instance.gpu_instance.unwrap_or(derived),
            instance.compute_instance,
        )
    }
}

/// Returns a profile that the model offers.
fn profile_info(
    device: &Device,
    number: c_uint,
    version: c_uint,
) -> Result<nvml::nvmlGpuInstanceProfileInfo_v2_t, Code> {
    if number >= nvml::NVML_GPU_INSTANCE_PROFILE_COUNT {
        return Err(INVALID_ARGUMENT);
    }
    let profile = Profile::numbered(number).ok_or(NOT_SUPPORTED)?;
    let Profile { slices, count, .. } = profile;
    let gigabytes = profile.gigabytes(device);
    Ok(nvml::nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id: number,
        isP2pSupported: 0,
        sliceCount: slices,
        instanceCount: count,
        multiprocessorCount: 0,
        copyEngineCount: slices,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: u64::from(gigabytes) * 1000,
        name: chars(&format!("MIG {}", profile.name(device))),
    })
}

/// A profile of cards with MIG.
#[derive(Clone, Copy)]
pub(crate) struct Profile {
    /// NVML's number, which is the id here as well.
    pub(crate) number: c_uint,
    pub(crate) slices: u32,
    /// Eighths of the memory.
    pub(crate) eighths: u32,
    /// The most instances.
    count: u32,
}

impl Profile {
    /// Returns the profile of a number.
    pub(crate) fn numbered(number: c_uint) -> Option<Self> {
        PROFILES.into_iter().find(|it| it.number == number)
    }

    /// Returns the profile of a name.
    pub(crate) fn named(device: &Device, name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|it| it.name(device) == name)
    }

    fn gigabytes(self, device: &Device) -> u32 {
        device.model().memory_mib.div_ceil(8192) * self.eighths
    }

    /// Returns the name, such as `3g.40gb`.
    pub(crate) fn name(self, device: &Device) -> String {
        format!("{}g.{}gb", self.slices, self.gigabytes(device))
    }
}

const fn profile(number: c_uint, slices: u32, eighths: u32, count: u32) -> Profile {
    Profile {
        number,
        slices,
        eighths,
        count,
    }
}

const PROFILES: [Profile; 6] = [
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_1_SLICE, 1, 1, 7),
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_2_SLICE, 2, 2, 3),
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_3_SLICE, 3, 4, 2),
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_4_SLICE, 4, 4, 1),
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_7_SLICE, 7, 8, 1),
    profile(nvml::NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, 1, 2, 4),
];

fn the_instance(unit: &Device) -> Result<&MigInstance, Code> {
    unit.instance().ok_or(INVALID_ARGUMENT)
}

/// Returns the MIG device with this index.
fn part(device: &Device, index: c_uint) -> Result<Device, Code> {
    device.can_be_cut()?;
    let max = device.model().mig.as_ref().map_or(0, |mig| mig.max_devices);
    if index >= max {
        return Err(INVALID_ARGUMENT);
    }
    let mig = index as usize;
    match device
        .gpu()
        .mig
        .as_ref()
        .is_some_and(|devices| mig < devices.len())
    {
        true => Ok(Device {
            mig: Some(mig),
            ..device.clone()
        }),
        false => Err(NOT_FOUND),
    }
}

fn attributes_of(unit: &Device) -> Result<nvml::nvmlDeviceAttributes_t, Code> {
    let instance = unit.instance().ok_or(NOT_SUPPORTED)?;
    let model = unit.model().mig.as_ref().ok_or(NOT_SUPPORTED)?;
    let slices = instance.slices();
    Ok(nvml::nvmlDeviceAttributes_t {
        multiprocessorCount: slices * model.multiprocessors_per_slice,
        sharedCopyEngineCount: slices,
        sharedDecoderCount: slices,
        sharedEncoderCount: 0,
        sharedJpegCount: slices,
        sharedOfaCount: 0,
        gpuInstanceSliceCount: slices,
        computeInstanceSliceCount: slices,
        memorySizeMB: u64::from(instance.memory_mib()),
    })
}
