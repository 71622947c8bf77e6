//! Events: critical errors (XIDs) and memory errors, reported once to each event set that registered for them. Waiting
//! polls the host file.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::host::{Gpu, Host, Xid};
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_SUPPORTED, NvmlResult};

/// Interval of the polls.
const LOOK_EVERY: Duration = Duration::from_millis(10);

const XID: u64 = nvml::nvmlEventTypeXidCriticalError as u64;
const CORRECTED: u64 = nvml::nvmlEventTypeSingleBitEccError as u64;
const UNCORRECTED: u64 = nvml::nvmlEventTypeDoubleBitEccError as u64;

exports! {
    host fn nvmlEventSetCreate(set: OutPtr<nvml::nvmlEventSet_t>)
        |_host| set.put(create());
    host fn nvmlEventSetFree(set: nvml::nvmlEventSet_t)
        |_host| sets().by_number.remove(&set.addr()).map(drop).ok_or(INVALID_ARGUMENT);
    gpu fn nvmlDeviceGetSupportedEventTypes([device] types: OutPtr<c_ulonglong>)
        |_device| types.put(XID | CORRECTED | UNCORRECTED);
    gpu fn nvmlDeviceRegisterEvents([device] types: c_ulonglong, set: nvml::nvmlEventSet_t)
        |device| register(device, types, set);
    host fn nvmlEventSetWait(set: nvml::nvmlEventSet_t, data: OutPtr<EventData1>, timeout_ms: c_uint)
        |_host| data.put(EventData1::of(wait(set, timeout_ms)?));

    host fn nvmlEventSetWait_v2(set: nvml::nvmlEventSet_t, data: OutPtr<nvml::nvmlEventData_t>, timeout_ms: c_uint)
        |_host| data.put(wait(set, timeout_ms)?);
}

/// The first version of an event, without instances.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventData1 {
    device: nvml::nvmlDevice_t,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
}

impl EventData1 {
    fn of(event: nvml::nvmlEventData_t) -> Self {
        Self {
            device: event.device,
            event_type: event.eventType,
            event_data: event.eventData,
        }
    }
}

/// All event sets, by the number in their handle.
struct EventSets {
    last: usize,
    by_number: BTreeMap<usize, Vec<Watch>>,
}

static SETS: Mutex<EventSets> = Mutex::new(EventSets {
    last: 0,
    by_number: BTreeMap::new(),
});

/// A registered GPU of a set, and what was reported of it.
struct Watch {
    uuid: String,
    types: u64,
    told: ReportedCounts,
}

/// Counts of the host file that were reported.
#[derive(Clone, Copy)]
struct ReportedCounts {
    xids: usize,
    corrected: u64,
    uncorrected: u64,
}

impl ReportedCounts {
    /// All present counts: a set is told only what comes after its registration.
    fn all(gpu: &Gpu) -> Self {
        Self {
            xids: gpu.xids.len(),
            corrected: gpu.ecc.volatile.corrected,
            uncorrected: gpu.ecc.volatile.uncorrected,
        }
    }

    /// If counts fell, by a test or a reset, counting goes on from there.
    fn but_not_more_than(self, all: Self) -> Self {
        Self {
            xids: self.xids.min(all.xids),
            corrected: self.corrected.min(all.corrected),
            uncorrected: self.uncorrected.min(all.uncorrected),
        }
    }
}

/// No panic leaves the map half-changed.
fn sets() -> MutexGuard<'static, EventSets> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees every set, as the last shutdown does.
pub(crate) fn free_all() {
    sets().by_number.clear();
}

fn create() -> nvml::nvmlEventSet_t {
    let mut sets = sets();
    sets.last += 1;
    let number = sets.last;
    sets.by_number.insert(number, Vec::new());
    std::ptr::without_provenance_mut(number)
}

fn register(device: &Device, types: u64, set: nvml::nvmlEventSet_t) -> NvmlResult {
    if types & !(XID | CORRECTED | UNCORRECTED) != 0 {
        return Err(NOT_SUPPORTED);
    }
    let mut sets = sets();
    let watches = sets
        .by_number
        .get_mut(&set.addr())
        .ok_or(INVALID_ARGUMENT)?;
    match watches.iter_mut().find(|watch| watch.uuid == device.uuid()) {
        Some(watch) => watch.types |= types,
        None => watches.push(Watch {
            uuid: device.uuid().to_owned(),
            types,
            told: ReportedCounts::all(device.gpu()),
        }),
    }
    Ok(())
}

/// Waits for an event, without a lock between polls, so that others can register, free and wait meanwhile.
fn wait(set: nvml::nvmlEventSet_t, timeout_ms: c_uint) -> Result<nvml::nvmlEventData_t, Code> {
    let deadline = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    loop {
        let host = Host::now()?;
        if let Some(gone) = host.gone {
            return Err(gone.code());
        }
        if let Some(event) = next(set, &host)? {
            return Ok(event);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT);
        }
        sleep(left.min(LOOK_EVERY));
    }
}

/// Returns the next event of a set, if there is one. Fails once a GPU of the set is lost, after that was reported as an
/// XID if the file has one.
fn next(
    set: nvml::nvmlEventSet_t,
    host: &Arc<Host>,
) -> Result<Option<nvml::nvmlEventData_t>, Code> {
    let mut sets = sets();
    let watches = sets
        .by_number
        .get_mut(&set.addr())
        .ok_or(INVALID_ARGUMENT)?;
    let gpus: Vec<Device> = Device::gpus(host).collect();
    let mut lost = false;
    for watch in watches {
        match gpus.iter().find(|device| device.uuid() == watch.uuid) {
            Some(device) => {
                if let Some(event) = watch.next(device) {
                    return Ok(Some(event));
                }
                lost |= device.gpu().lost;
            }
            None => lost = true,
        }
    }
    match lost {
        true => Err(nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
        false => Ok(None),
    }
}

impl Watch {
    /// Returns the next event of its GPU, which then counts as reported.
    fn next(&mut self, device: &Device) -> Option<nvml::nvmlEventData_t> {
        let all = ReportedCounts::all(device.gpu());
        self.told = self.told.but_not_more_than(all);
        if self.types & XID != 0
            && let Some(xid) = device.gpu().xids.get(self.told.xids)
        {
            self.told.xids += 1;
            return Some(of_xid(device, xid));
        }
        if self.types & UNCORRECTED != 0 && self.told.uncorrected < all.uncorrected {
            self.told.uncorrected = all.uncorrected;
            return Some(event(device, UNCORRECTED, 0));
        }
        if self.types & CORRECTED != 0 && self.told.corrected < all.corrected {
            self.told.corrected = all.corrected;
            return Some(event(device, CORRECTED, 0));
        }
        None
    }
}

/// Makes an XID event, with the instances of its MIG device.
fn of_xid(device: &Device, xid: &Xid) -> nvml::nvmlEventData_t {
    let inside = Device {
        mig: xid.mig(),
        ..device.clone()
    };
    let (gpu_instance, compute_instance) = inside.instance_ids();
    nvml::nvmlEventData_t {
        gpuInstanceId: gpu_instance,
        computeInstanceId: compute_instance,
        ..event(device, XID, xid.number())
    }
}

fn event(device: &Device, kind: u64, data: u64) -> nvml::nvmlEventData_t {
    nvml::nvmlEventData_t {
        device: device.handle(),
        eventType: kind,
        eventData: data,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    }
}
