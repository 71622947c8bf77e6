//! A GPU as a piece of hardware: facts of its board, and its modes, links and clocks as they are now. Much of it is unknown
//! to older drivers and other models, and is absent then.

use std::collections::{BTreeMap, BTreeSet};

use nvml_wrapper::enum_wrappers::device::{Clock, GpuVirtualizationMode};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{self as nvml, field_id};
use sluice_common::inventory::{BoardFacts, BoardReading, MigMode, VGPU};

use super::answer::{MIG_ENABLED, line, plausible, profile_in};
use super::condition::{self, LinkState};
use super::raw;
use crate::detect::notes::Notes;

/// Most that can be true of any GPU.
const MAX_CELSIUS: u32 = 150;
const MAX_MHZ: u32 = 100_000;

/// Sums of errors of all NVLinks, by kind.
const LINK_ERRORS: [u32; 4] = [
    field_id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    field_id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    field_id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    field_id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
];

/// Names of the bits of NVML's mask of reasons for reduced clocks.
const THROTTLE_REASONS: [(u32, &str); 9] = [
    (nvml::nvmlClocksEventReasonGpuIdle, "idle"),
    (
        nvml::nvmlClocksEventReasonApplicationsClocksSetting,
        "application_clocks",
    ),
    (nvml::nvmlClocksEventReasonSwPowerCap, "power_cap"),
    (nvml::nvmlClocksThrottleReasonHwSlowdown, "hardware"),
    (nvml::nvmlClocksEventReasonSyncBoost, "sync_boost"),
    (
        nvml::nvmlClocksEventReasonSwThermalSlowdown,
        "software_thermal",
    ),
    (
        nvml::nvmlClocksThrottleReasonHwThermalSlowdown,
        "hardware_thermal",
    ),
    (
        nvml::nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "hardware_power_brake",
    ),
    (
        nvml::nvmlClocksEventReasonDisplayClockSetting,
        "display_clocks",
    ),
];

/// Facts of the board; those that the driver does not tell now are the known ones.
pub(super) fn facts(library: &Nvml, device: &Device<'_>, known: &BoardFacts) -> BoardFacts {
    let capability = device.cuda_compute_capability().ok();
    let capability = capability.map(|it| format!("{}.{}", it.major, it.minor));
    let text = |answer: Result<String, NvmlError>| {
        let text = line(&answer.ok()?);
        (!text.is_empty()).then_some(text)
    };
    let profiles = mig_profiles(device);
    BoardFacts {
        compute_capability: capability.or_else(|| known.compute_capability.clone()),
        serial: text(device.serial()).or_else(|| known.serial.clone()),
        vbios: text(device.vbios_version()).or_else(|| known.vbios.clone()),
        pcie_max_generation: device
            .max_pcie_link_gen()
            .ok()
            .or(known.pcie_max_generation),
        pcie_max_lanes: device.max_pcie_link_width().ok().or(known.pcie_max_lanes),
        mig_profiles: match profiles.is_empty() {
            true => known.mig_profiles.clone(),
            false => profiles,
        },
        virtualization: virtualization(device).or_else(|| known.virtualization.clone()),
        confidential_computing: raw::confidential_computing(library)
            .ok()
            .or(known.confidential_computing),
        nvlink_domain: match raw::fabric(device) {
            Ok(fabric) => nvlink_domain(&fabric),
            Err(_) => known.nvlink_domain.clone(),
        },
    }
}

/// The NVLink domain of a GPU whose registration is completed, if there is one beyond the host.
fn nvlink_domain(fabric: &raw::RawState) -> Option<String> {
    let is_completed = fabric.state == nvml::NVML_GPU_FABRIC_STATE_COMPLETED && !fabric.has_failed;
    let cluster = fabric.cluster;
    let is_one = is_completed && cluster != [0; 16];
    is_one.then(|| format!("{:032x}.{}", u128::from_be_bytes(cluster), fabric.clique))
}

fn virtualization(device: &Device<'_>) -> Option<String> {
    let mode = match device.virtualization_mode() {
        Ok(GpuVirtualizationMode::Bare) => "none",
        Ok(GpuVirtualizationMode::PassThrough) => "passthrough",
        Ok(GpuVirtualizationMode::Vgpu) => VGPU,
        Ok(GpuVirtualizationMode::HostVgpu) => "host_vgpu",
        Ok(GpuVirtualizationMode::HostVsga) => "host_vsga",
        Err(NvmlError::UnexpectedVariant(number)) => return Some(format!("number {number}")),
        Err(_) => return None,
    };
    Some(mode.to_owned())
}

/// Profiles that the model offers, with the most instances of each.
fn mig_profiles(device: &Device<'_>) -> BTreeMap<String, u32> {
    let mut profiles = BTreeMap::new();
    for number in 0..nvml::NVML_GPU_INSTANCE_PROFILE_COUNT {
        match raw::mig_profile(device, number) {
            Ok((name, count)) => profiles.extend(profile_in(&name).map(|name| (name, count))),
            // The model has no profile of this number, or the driver does not know the number.
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) if number > 0 => {}
            Err(_) => break,
        }
    }
    profiles
}

/// Modes, links and clocks now.
pub(super) fn reading(device: &Device<'_>, notes: &mut Notes) -> BoardReading {
    let mut mhz = |clock| {
        let told = device.clock_info(clock).ok();
        plausible("a GPU's clock in MHz", told, MAX_MHZ, notes)
    };
    let (sm_clock_mhz, memory_clock_mhz) = (mhz(Clock::SM), mhz(Clock::Memory));
    let fields = fields(device);
    let hot = fields.memory_temperature;
    let links = condition::links(device);
    let mig = device.mig_mode().ok().map(|mode| MigMode {
        is_enabled: mode.current == MIG_ENABLED,
        is_enabled_after_reset: mode.pending == MIG_ENABLED,
    });
    BoardReading {
        memory_temperature_celsius: plausible(
            "the temperature of a GPU's memory in C",
            hot,
            MAX_CELSIUS,
            notes,
        ),
        sm_clock_mhz,
        memory_clock_mhz,
        throttle_reasons: raw::throttle_reasons(device).ok().map(named),
        pcie_generation: device.current_pcie_link_gen().ok(),
        pcie_lanes: device.current_pcie_link_width().ok(),
        nvlinks: links.as_ref().map(|links: &LinkState| links.all),
        nvlinks_active: links.map(|links| links.active),
        nvlink_errors: fields.link_errors,
        fabric: raw::fabric(device).ok().and_then(fabric),
        remapped_rows: raw::remapped_rows(device).ok(),
        persistence: device.is_in_persistent_mode().ok(),
        compute_mode: raw::compute_mode(device).ok().map(compute_mode),
        mig,
    }
}

/// Names of the set bits of a mask.
fn named(mask: u64) -> BTreeSet<String> {
    let bits = (0..u64::BITS).filter(|bit| mask & (1 << bit) != 0);
    let name = |bit: u32| {
        let known = THROTTLE_REASONS.iter();
        let mut known = known.filter(|(reason, _)| u64::from(*reason) == 1 << bit);
        let name = known.next().map(|(_, name)| (*name).to_owned());
        name.unwrap_or_else(|| format!("bit_{bit}"))
    };
    bits.map(name).collect()
}

fn fabric(fabric: raw::RawState) -> Option<String> {
    Some(match fabric.state {
        nvml::NVML_GPU_FABRIC_STATE_NOT_SUPPORTED => return None,
        nvml::NVML_GPU_FABRIC_STATE_NOT_STARTED => "not_started".to_owned(),
        nvml::NVML_GPU_FABRIC_STATE_IN_PROGRESS => "in_progress".to_owned(),
        _ if fabric.has_failed => "failed".to_owned(),
        nvml::NVML_GPU_FABRIC_STATE_COMPLETED => "completed".to_owned(),
        other => format!("number {other}"),
    })
}

fn compute_mode(mode: u32) -> String {
    match mode {
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT => "default".to_owned(),
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED => "prohibited".to_owned(),
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_THREAD => {
            "exclusive_thread".to_owned()
        }
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS => {
            "exclusive_process".to_owned()
        }
        other => format!("number {other}"),
    }
}

/// Values that NVML has only as fields.
#[derive(Default)]
struct FieldValues {
    memory_temperature: Option<u32>,
    link_errors: Option<u64>,
}

fn fields(device: &Device<'_>) -> FieldValues {
    let ids = [[field_id::NVML_FI_DEV_MEMORY_TEMP].as_slice(), &LINK_ERRORS].concat();
    let ids: Vec<FieldId> = ids.into_iter().map(FieldId).collect();
    let Ok(samples) = device.field_values_for(&ids) else {
        return FieldValues::default();
    };
    let mut values = samples
        .into_iter()
        .map(|sample| match sample.ok()?.value.ok()? {
            SampleValue::U32(value) => Some(u64::from(value)),
            SampleValue::U64(value) => Some(value),
            SampleValue::I64(value) => u64::try_from(value).ok(),
            SampleValue::F64(_) => None,
        });
    let celsius = values.next().flatten();
    let errors: Vec<u64> = values.flatten().collect();
    let sum = errors
        .iter()
        .fold(0, |sum: u64, count| sum.saturating_add(*count));
    FieldValues {
        // A board without a sensor tells 0.
        memory_temperature: celsius
            .filter(|celsius| *celsius > 0)
            .map(|celsius| u32::try_from(celsius).unwrap_or(u32::MAX)),
        link_errors: (!errors.is_empty()).then_some(sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_and_those_that_nvml_adds_are_numbered() {
        let names = |mask| -> Vec<String> { named(mask).into_iter().collect() };
        assert_eq!(names(0), [""; 0]);
        assert_eq!(names(1 | 4 | 64), ["hardware_thermal", "idle", "power_cap"]);
        assert_eq!(names(1 << 40), ["bit_40"]);
    }

    #[test]
    fn states_of_the_fabric_are_named() {
        let told = |state, has_failed| fabric(registration(state, has_failed, 0));
        assert_eq!(told(0, false), None);
        assert_eq!(told(3, false).as_deref(), Some("completed"));
        assert_eq!(told(3, true).as_deref(), Some("failed"));
        assert_eq!(told(9, false).as_deref(), Some("number 9"));
    }

    fn registration(state: u32, has_failed: bool, cluster: u8) -> raw::RawState {
        raw::RawState {
            state,
            has_failed,
            cluster: [cluster; 16],
            clique: 2,
        }
    }

    #[test]
    fn an_nvlink_domain_is_one_beyond_the_host() {
        let domain = |state, has_failed, cluster| {
            let registration = registration(state, has_failed, cluster);
            nvlink_domain(&registration)
        };
        let named = format!("{}.2", "0a".repeat(16));
        assert_eq!(domain(3, false, 10), Some(named));
        assert_eq!(domain(3, false, 0), None);
        assert_eq!((domain(3, true, 10), domain(2, false, 10)), (None, None));
    }
}
