//! Memory errors of a GPU, and their remedies.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::host::{EccCounts, RetiredPages};
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_SUPPORTED, NvmlResult};

exports! {
    gpu fn nvmlDeviceGetEccMode([device] current: OutPtr<nvml::nvmlEnableState_t>, pending: OutPtr<nvml::nvmlEnableState_t>)
        |device| {
            let ecc = &device.gpu().ecc;
            current.put(state(ecc.enabled))?;
            pending.put(state(ecc.pending.unwrap_or(ecc.enabled)))
        };
    gpu fn nvmlDeviceGetDefaultEccMode([device] mode: OutPtr<nvml::nvmlEnableState_t>)
        |_device| mode.put(state(true));
    unit fn nvmlDeviceGetTotalEccErrors(
        [device] kind: nvml::nvmlMemoryErrorType_t, counter: nvml::nvmlEccCounterType_t, count: OutPtr<c_ulonglong>
    ) |unit| count.put(of_kind(unit.ecc_counts(counter)?, kind)?);
    unit fn nvmlDeviceGetDetailedEccErrors(
        [device] kind: nvml::nvmlMemoryErrorType_t,
        counter: nvml::nvmlEccCounterType_t,
        counts: OutPtr<nvml::nvmlEccErrorCounts_t>
    ) |unit| counts.put(nvml::nvmlEccErrorCounts_t {
        l1Cache: 0,
        l2Cache: 0,
        deviceMemory: of_kind(unit.ecc_counts(counter)?, kind)?,
        registerFile: 0,
    });
    unit fn nvmlDeviceGetMemoryErrorCounter(
        [device] kind: nvml::nvmlMemoryErrorType_t,
        counter: nvml::nvmlEccCounterType_t,
        location: nvml::nvmlMemoryLocation_t,
        count: OutPtr<c_ulonglong>
    ) |unit| count.put(at(location, of_kind(unit.ecc_counts(counter)?, kind)?)?);

    gpu fn nvmlDeviceGetRemappedRows(
        [device] correctable: OutPtr<c_uint>, uncorrectable: OutPtr<c_uint>, pending: OutPtr<c_uint>, failed: OutPtr<c_uint>
    ) |device| {
        let rows = &device.gpu().remapped_rows;
        correctable.put(c_uint::from(rows.correctable))?;
        uncorrectable.put(c_uint::from(rows.uncorrectable))?;
        pending.put(c_uint::from(rows.pending))?;
        failed.put(c_uint::from(rows.failed))
    };
    gpu fn nvmlDeviceGetRowRemapperHistogram([device] banks: OutPtr<nvml::nvmlRowRemapperHistogramValues_t>)
        |device| {
            let rows = &device.gpu().remapped_rows;
            let touched = u32::from(rows.correctable) + u32::from(rows.uncorrectable);
            // Each row is in a bank of its own: the bank keeps most of its spares.
            let high = touched.min(BANKS);
            banks.put(nvml::nvmlRowRemapperHistogramValues_t { max: BANKS - high, high, partial: 0, low: 0, none: 0 })
        };
    gpu fn nvmlDeviceGetRetiredPages(
        [device] cause: nvml::nvmlPageRetirementCause_t, count: OutPtr<c_uint>, addresses: OutPtr<c_ulonglong>
    ) |device| addresses.fill(&count, pages(retired(device)?, cause)?);
    gpu fn nvmlDeviceGetRetiredPages_v2(
        [device] cause: nvml::nvmlPageRetirementCause_t,
        count: OutPtr<c_uint>,
        addresses: OutPtr<c_ulonglong>,
        times: OutPtr<c_ulonglong>
    ) |device| {
        let pages = pages(retired(device)?, cause)?;
        addresses.fill(&count, pages)?;
        times.fill_all(&vec![0; pages.len()])
    };
    gpu fn nvmlDeviceGetRetiredPagesPendingStatus([device] pending: OutPtr<nvml::nvmlEnableState_t>)
        |device| pending.put(state(retired(device)?.pending));
    gpu fn nvmlDeviceGetFieldValues([device] count: std::ffi::c_int, values: OutPtr<nvml::nvmlFieldValue_t>)
        |device| fields(device, count, &values);

    gpu fn nvmlDeviceGetSramEccErrorStatus([device] status: OutPtr<nvml::nvmlEccSramErrorStatus_t>)
        |device| {
            let version = status.expect_version(1)?;
            device.ecc_counts(nvml::nvmlEccCounterType_enum_NVML_VOLATILE_ECC)?;
            status.put(no_sram_errors(version))
        };
}

/// Row banks of such a card.
const BANKS: c_uint = 640;

fn state(on: bool) -> nvml::nvmlEnableState_t {
    match on {
        true => nvml::nvmlEnableState_enum_NVML_FEATURE_ENABLED,
        false => nvml::nvmlEnableState_enum_NVML_FEATURE_DISABLED,
    }
}

impl Device {
    /// Returns error counters, absent while ECC is off. Aggregate ones include the volatile ones.
    pub(crate) fn ecc_counts(
        &self,
        counter: nvml::nvmlEccCounterType_t,
    ) -> Result<EccCounts, Code> {
        let ecc = &self.gpu().ecc;
        if !ecc.enabled {
            return Err(NOT_SUPPORTED);
        }
        match counter {
            nvml::nvmlEccCounterType_enum_NVML_VOLATILE_ECC => Ok(ecc.volatile),
            nvml::nvmlEccCounterType_enum_NVML_AGGREGATE_ECC => Ok(EccCounts {
                corrected: ecc
                    .aggregate
                    .corrected
                    .saturating_add(ecc.volatile.corrected),
                uncorrected: ecc
                    .aggregate
                    .uncorrected
                    .saturating_add(ecc.volatile.uncorrected),
            }),
            _ => Err(INVALID_ARGUMENT),
        }
    }
}

fn of_kind(counts: EccCounts, kind: nvml::nvmlMemoryErrorType_t) -> Result<u64, Code> {
    match kind {
        nvml::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED => Ok(counts.corrected),
        nvml::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED => Ok(counts.uncorrected),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Counts all errors in the memory chips; for memory inside the GPU, recent cards count the SRAM as one.
fn at(location: nvml::nvmlMemoryLocation_t, count: u64) -> Result<u64, Code> {
    match location {
        nvml::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DRAM => Ok(count),
        nvml::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_SRAM => Ok(0),
        _ if location < nvml::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_COUNT => {
            Err(NOT_SUPPORTED)
        }
        _ => Err(INVALID_ARGUMENT),
    }
}

/// A host file has no SRAM errors.
fn no_sram_errors(version: c_uint) -> nvml::nvmlEccSramErrorStatus_t {
    nvml::nvmlEccSramErrorStatus_t {
        version,
        aggregateUncParity: 0,
        aggregateUncSecDed: 0,
        aggregateCor: 0,
        volatileUncParity: 0,
        volatileUncSecDed: 0,
        volatileCor: 0,
        aggregateUncBucketL2: 0,
        aggregateUncBucketSm: 0,
        aggregateUncBucketPcie: 0,
        aggregateUncBucketMcu: 0,
        aggregateUncBucketOther: 0,
        bThresholdExceeded: 0,
    }
}

/// Cards that remap rows retire no pages.
fn retired(device: &Device) -> Result<&RetiredPages, Code> {
    device.gpu().retired_pages.as_ref().ok_or(NOT_SUPPORTED)
}

fn pages(retired: &RetiredPages, cause: nvml::nvmlPageRetirementCause_t) -> Result<&[u64], Code> {
    match cause {
        nvml::nvmlPageRetirementCause_enum_NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS => {
            Ok(&retired.single_bit)
        }
        nvml::nvmlPageRetirementCause_enum_NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR => {
            Ok(&retired.double_bit)
        }
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Answers each field by itself; the call as a whole succeeds.
fn fields(
    device: &Device,
    count: std::ffi::c_int,
    values: &OutPtr<nvml::nvmlFieldValue_t>,
) -> NvmlResult {
    let length = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
    values.change_all(length, |value| {
        let answer = field(device, value.fieldId);
        value.timestamp = 0;
        value.latencyUsec = 0;
        value.valueType = nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        value.nvmlReturn = answer.err().unwrap_or(crate::SUCCESS);
        value.value = nvml::nvmlValue_t {
            ullVal: answer.unwrap_or_default(),
        };
    })
}

fn field(device: &Device, id: u32) -> Result<u64, Code> {
    use nvml::field_id as id_of;
    let volatile = || device.ecc_counts(nvml::nvmlEccCounterType_enum_NVML_VOLATILE_ECC);
    let aggregate = || device.ecc_counts(nvml::nvmlEccCounterType_enum_NVML_AGGREGATE_ECC);
    let rows = &device.gpu().remapped_rows;
    match id {
        id_of::NVML_FI_DEV_ECC_CURRENT => Ok(u64::from(device.gpu().ecc.enabled)),
        id_of::NVML_FI_DEV_ECC_SBE_VOL_TOTAL => volatile().map(|counts| counts.corrected),
        id_of::NVML_FI_DEV_ECC_DBE_VOL_TOTAL => volatile().map(|counts| counts.uncorrected),
        id_of::NVML_FI_DEV_ECC_SBE_AGG_TOTAL => aggregate().map(|counts| counts.corrected),
        id_of::NVML_FI_DEV_ECC_DBE_AGG_TOTAL => aggregate().map(|counts| counts.uncorrected),
        id_of::NVML_FI_DEV_REMAPPED_COR => Ok(u64::from(rows.correctable)),
        id_of::NVML_FI_DEV_REMAPPED_UNC => Ok(u64::from(rows.uncorrectable)),
        id_of::NVML_FI_DEV_REMAPPED_PENDING => Ok(u64::from(rows.pending)),
        id_of::NVML_FI_DEV_REMAPPED_FAILURE => Ok(u64::from(rows.failed)),
        id_of::NVML_FI_DEV_POWER_AVERAGE | id_of::NVML_FI_DEV_POWER_INSTANT => {
            Ok(u64::from(device.power_mw()))
        }
        id_of::NVML_FI_DEV_MEMORY_TEMP => device.memory_temperature(),
        id_of::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
        | id_of::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
        | id_of::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
        | id_of::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL => {
            device.model().nvlink.as_ref().ok_or(NOT_SUPPORTED)?;
            match id {
                id_of::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL => {
                    Ok(device.gpu().nvlink_errors)
                }
                _ => Ok(0),
            }
        }
        id_of::NVML_FI_DEV_POWER_CURRENT_LIMIT => Ok(u64::from(device.power_limit_mw())),
        _ => Err(NOT_SUPPORTED),
    }
}
