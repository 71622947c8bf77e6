//! Load of a GPU: utilisation, temperature, power, clocks.

use std::ffi::{c_uint, c_ulonglong};
use std::fs;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, NvmlResult};

const UNKNOWN: Code = nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN;

/// Temperatures in degrees Celsius at which such a card shuts down, slows down, and is as hot as it may be.
const SHUTDOWN_C: c_uint = 92;
const SLOWDOWN_C: c_uint = 89;
const GPU_MAX_C: c_uint = 85;
const MEMORY_MAX_C: c_uint = 95;

exports! {
    gpu fn nvmlDeviceGetUtilizationRates([device] rates: OutPtr<nvml::nvmlUtilization_t>)
        |device| {
            device.is_not_cut()?;
            let utilization = &device.gpu().utilization;
            rates.put(nvml::nvmlUtilization_t { gpu: utilization.gpu, memory: utilization.memory })
        };
    gpu fn nvmlDeviceGetEncoderUtilization([device] percent: OutPtr<c_uint>, period_us: OutPtr<c_uint>)
        |device| none_in_a_period(device, &percent, &period_us);
    gpu fn nvmlDeviceGetDecoderUtilization([device] percent: OutPtr<c_uint>, period_us: OutPtr<c_uint>)
        |device| none_in_a_period(device, &percent, &period_us);

    gpu fn nvmlDeviceGetJpgUtilization([device] percent: OutPtr<c_uint>, period_us: OutPtr<c_uint>)
        |device| none_in_a_period(device, &percent, &period_us);
    gpu fn nvmlDeviceGetOfaUtilization([device] percent: OutPtr<c_uint>, period_us: OutPtr<c_uint>)
        |device| none_in_a_period(device, &percent, &period_us);
    gpu fn nvmlDeviceGetEncoderStats([device] sessions: OutPtr<c_uint>, fps: OutPtr<c_uint>, latency_us: OutPtr<c_uint>)
        |_device| {
            sessions.put(0)?;
            fps.put(0)?;
            latency_us.put(0)
        };
    gpu fn nvmlDeviceGetFBCStats([device] stats: OutPtr<nvml::nvmlFBCStats_t>)
        |_device| stats.put(nvml::nvmlFBCStats_t { sessionsCount: 0, averageFPS: 0, averageLatency: 0 });

    gpu fn nvmlDeviceGetTemperature([device] sensor: nvml::nvmlTemperatureSensors_t, celsius: OutPtr<c_uint>)
        |device| celsius.put(temperature(device, sensor)?);
    gpu fn nvmlDeviceGetTemperatureThreshold([device] kind: nvml::nvmlTemperatureThresholds_t, celsius: OutPtr<c_uint>)
        |_device| celsius.put(threshold(kind)?);
    gpu fn nvmlDeviceGetNumFans([device] count: OutPtr<c_uint>)
        |_device| count.put(0);
    gpu fn nvmlDeviceGetFanSpeed([device] _percent: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetFanSpeed_v2([device] _fan: c_uint, _percent: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);

    gpu fn nvmlDeviceGetPowerUsage([device] milliwatts: OutPtr<c_uint>)
        |device| milliwatts.put(device.power_mw());
    gpu fn nvmlDeviceGetTotalEnergyConsumption([device] millijoules: OutPtr<c_ulonglong>)
        |device| millijoules.put(energy_mj(device)?);
    gpu fn nvmlDeviceGetPowerManagementMode([device] mode: OutPtr<nvml::nvmlEnableState_t>)
        |_device| mode.put(nvml::nvmlEnableState_enum_NVML_FEATURE_ENABLED);
    gpu fn nvmlDeviceGetPowerManagementLimit([device] milliwatts: OutPtr<c_uint>)
        |device| milliwatts.put(device.power_limit_mw());
    gpu fn nvmlDeviceGetEnforcedPowerLimit([device] milliwatts: OutPtr<c_uint>)
        |device| milliwatts.put(device.power_limit_mw());
    gpu fn nvmlDeviceGetPowerManagementDefaultLimit([device] milliwatts: OutPtr<c_uint>)
        |device| milliwatts.put(milli(device.model().limit_w));
    gpu fn nvmlDeviceGetPowerManagementLimitConstraints([device] least: OutPtr<c_uint>, most: OutPtr<c_uint>)
        |device| {
            least.put(milli(device.model().limit_w) / 4)?;
            most.put(milli(device.model().limit_w))
        };
    gpu fn nvmlDeviceGetPerformanceState([device] state: OutPtr<nvml::nvmlPstates_t>)
        |_device| state.put(nvml::nvmlPStates_enum_NVML_PSTATE_0);
    gpu fn nvmlDeviceGetPowerState([device] state: OutPtr<nvml::nvmlPstates_t>)
        |_device| state.put(nvml::nvmlPStates_enum_NVML_PSTATE_0);

    gpu fn nvmlDeviceGetClockInfo([device] kind: nvml::nvmlClockType_t, mhz: OutPtr<c_uint>)
        |device| mhz.put(clock(device, kind, device.is_idle())?);
    gpu fn nvmlDeviceGetMaxClockInfo([device] kind: nvml::nvmlClockType_t, mhz: OutPtr<c_uint>)
        |device| mhz.put(clock(device, kind, false)?);
    gpu fn nvmlDeviceGetMaxCustomerBoostClock([device] kind: nvml::nvmlClockType_t, mhz: OutPtr<c_uint>)
        |device| mhz.put(clock(device, kind, false)?);
    gpu fn nvmlDeviceGetApplicationsClock([device] kind: nvml::nvmlClockType_t, mhz: OutPtr<c_uint>)
        |device| mhz.put(clock(device, kind, false)?);
    gpu fn nvmlDeviceGetDefaultApplicationsClock([device] kind: nvml::nvmlClockType_t, mhz: OutPtr<c_uint>)
        |device| mhz.put(clock(device, kind, false)?);
    gpu fn nvmlDeviceGetClock(
        [device] kind: nvml::nvmlClockType_t, id: nvml::nvmlClockId_t, mhz: OutPtr<c_uint>
    ) |device| {
        let now = id == nvml::nvmlClockId_enum_NVML_CLOCK_ID_CURRENT;
        mhz.put(clock(device, kind, now && device.is_idle())?)
    };
    gpu fn nvmlDeviceGetSupportedMemoryClocks([device] count: OutPtr<c_uint>, mhz: OutPtr<c_uint>)
        |device| mhz.fill(&count, &[device.model().clocks.memory]);
    gpu fn nvmlDeviceGetSupportedGraphicsClocks([device] memory_mhz: c_uint, count: OutPtr<c_uint>, mhz: OutPtr<c_uint>)
        |device| match memory_mhz == device.model().clocks.memory {
            true => mhz.fill(&count, &graphics_clocks(device)),
            false => Err(NOT_FOUND),
        };
    gpu fn nvmlDeviceGetCurrentClocksThrottleReasons([device] reasons: OutPtr<c_ulonglong>)
        |device| reasons.put(throttled(device));
    gpu fn nvmlDeviceGetSupportedClocksThrottleReasons([device] reasons: OutPtr<c_ulonglong>)
        |_device| reasons.put(u64::from(nvml::nvmlClocksEventReasonGpuIdle));

    gpu fn nvmlDeviceGetTemperatureV([device] temperature: OutPtr<nvml::nvmlTemperature_t>)
        |device| {
            temperature.expect_version(1)?;
            let asked = temperature.get()?;
            let celsius = self::temperature(device, asked.sensorType)? as i32;
            temperature.put(nvml::nvmlTemperature_t { temperature: celsius, ..asked })
        };
    gpu fn nvmlDeviceGetCurrentClocksEventReasons([device] reasons: OutPtr<c_ulonglong>)
        |device| reasons.put(throttled(device));
    gpu fn nvmlDeviceGetSupportedClocksEventReasons([device] reasons: OutPtr<c_ulonglong>)
        |_device| reasons.put(u64::from(nvml::nvmlClocksEventReasonGpuIdle));
}

impl Device {
    /// Fails for a GPU with MIG, whose utilisation the driver does not report.
    pub(crate) fn is_not_cut(&self) -> NvmlResult {
        match self.gpu().mig {
            Some(_) => Err(NOT_SUPPORTED),
            None => Ok(()),
        }
    }

    /// Cards with HBM have a sensor in it, which is a little warmer than the chip.
    pub(crate) fn memory_temperature(&self) -> Result<u64, Code> {
        let celsius = self.gpu().memory_temperature_c.or_else(|| {
            let has_sensor = self.model().bus_width > 1024;
            has_sensor.then(|| self.gpu().temperature_c.saturating_add(8))
        });
        celsius.map(u64::from).ok_or(NOT_SUPPORTED)
    }

    fn is_idle(&self) -> bool {
        self.gpu().utilization.gpu == 0
    }

    pub(crate) fn power_mw(&self) -> c_uint {
        milli(self.gpu().power_w.unwrap_or(self.model().idle_w))
    }

    pub(crate) fn power_limit_mw(&self) -> c_uint {
        milli(self.gpu().power_limit_w.unwrap_or(self.model().limit_w))
    }
}

fn milli(watts: u16) -> c_uint {
    c_uint::from(watts) * 1000
}

/// Reports unused video coders, over the usual period.
fn none_in_a_period(
    device: &Device,
    percent: &OutPtr<c_uint>,
    period_us: &OutPtr<c_uint>,
) -> NvmlResult {
    device.is_not_cut()?;
    percent.put(0)?;
    period_us.put(167_000)
}

fn temperature(device: &Device, sensor: nvml::nvmlTemperatureSensors_t) -> Result<c_uint, Code> {
    match sensor {
        nvml::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU => Ok(device.gpu().temperature_c),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn threshold(kind: nvml::nvmlTemperatureThresholds_t) -> Result<c_uint, Code> {
    match kind {
        nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN => Ok(SHUTDOWN_C),
        nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SLOWDOWN => Ok(SLOWDOWN_C),
        nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_GPU_MAX => Ok(GPU_MAX_C),
        nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_MEM_MAX => Ok(MEMORY_MAX_C),
        _ if kind < nvml::nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_COUNT => {
            Err(NOT_SUPPORTED)
        }
        _ => Err(INVALID_ARGUMENT),
    }
}

fn clock(device: &Device, kind: nvml::nvmlClockType_t, idle: bool) -> Result<c_uint, Code> {
    let clocks = &device.model().clocks;
    match kind {
        nvml::nvmlClockType_enum_NVML_CLOCK_MEM => Ok(clocks.memory),
        nvml::nvmlClockType_enum_NVML_CLOCK_GRAPHICS
        | nvml::nvmlClockType_enum_NVML_CLOCK_SM
        | nvml::nvmlClockType_enum_NVML_CLOCK_VIDEO
            if idle =>
        {
            Ok(clocks.idle)
        }
        nvml::nvmlClockType_enum_NVML_CLOCK_GRAPHICS | nvml::nvmlClockType_enum_NVML_CLOCK_SM => {
            Ok(clocks.graphics_max)
        }
        nvml::nvmlClockType_enum_NVML_CLOCK_VIDEO => Ok(clocks.video_max),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Lists clocks from the fastest to the slowest, in the steps of such cards.
fn graphics_clocks(device: &Device) -> Vec<c_uint> {
    let clocks = &device.model().clocks;
    let (fastest, slowest) = (clocks.graphics_max, clocks.idle);
    (slowest..=fastest).rev().step_by(15).collect()
}

/// Returns the energy of an idle card since the machine was started, which never decreases, unlike the power of the
/// file.
fn energy_mj(device: &Device) -> Result<u64, Code> {
    let uptime = fs::read_to_string("/proc/uptime").map_err(|_| UNKNOWN)?;
    let seconds = uptime
        .split('.')
        .next()
        .and_then(|text| text.parse::<u64>().ok());
    Ok(u64::from(milli(device.model().idle_w)) * seconds.ok_or(UNKNOWN)?)
}

/// An idle GPU runs slowly for that reason, and any for those of its file.
fn throttled(device: &Device) -> u64 {
    let idle = match device.is_idle() {
        true => u64::from(nvml::nvmlClocksEventReasonGpuIdle),
        false => u64::from(nvml::nvmlClocksEventReasonNone),
    };
    idle | device.gpu().clock_reasons
}
