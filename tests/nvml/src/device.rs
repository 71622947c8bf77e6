//! Enumeration and identity of GPUs.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::host::Host;
use crate::out::{CallerText, OutPtr, TextBuffer};
use crate::pci::Address;
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_FOUND, NvmlResult};

exports! {
    host fn nvmlDeviceGetCount(count: OutPtr<c_uint>)
        |host| count.put(host.gpus.len() as c_uint);
    host fn nvmlDeviceGetCount_v2(count: OutPtr<c_uint>)
        |host| count.put(host.gpus.len() as c_uint);
    host fn nvmlDeviceGetHandleByIndex(index: c_uint, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleByIndex", at(host, index), &device);
    host fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleByIndex_v2", at(host, index), &device);
    host fn nvmlDeviceGetHandleByUUID(uuid: CallerText, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleByUUID", with_uuid(host, &uuid), &device);
    host fn nvmlDeviceGetHandleBySerial(serial: CallerText, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleBySerial", with_serial(host, &serial), &device);
    host fn nvmlDeviceGetHandleByPciBusId(address: CallerText, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleByPciBusId", with_address(host, &address), &device);
    host fn nvmlDeviceGetHandleByPciBusId_v2(address: CallerText, device: OutPtr<nvml::nvmlDevice_t>)
        |host| give("nvmlDeviceGetHandleByPciBusId_v2", with_address(host, &address), &device);

    // MIG devices are counted within their GPU.
    unit fn nvmlDeviceGetIndex([device] index: OutPtr<c_uint>)
        |unit| index.put(unit.mig.unwrap_or(unit.index) as c_uint);
    gpu fn nvmlDeviceGetMinorNumber([device] number: OutPtr<c_uint>)
        |device| number.put(device.index as c_uint);
    gpu fn nvmlDeviceGetModuleId([device] id: OutPtr<c_uint>)
        |device| id.put(device.index as c_uint);
    gpu fn nvmlDeviceGetBoardId([device] id: OutPtr<c_uint>)
        |device| id.put(device.address().bus << 8);
    gpu fn nvmlDeviceGetMultiGpuBoard([device] multi: OutPtr<c_uint>)
        |_device| multi.put(0);
    unit fn nvmlDeviceGetUUID([device] uuid: TextBuffer, length: c_uint)
        |unit| uuid.put(length, unit.uuid());
    unit fn nvmlDeviceGetName([device] name: TextBuffer, length: c_uint)
        |unit| name.put(length, &unit.name());
    gpu fn nvmlDeviceGetSerial([device] serial: TextBuffer, length: c_uint)
        |device| serial.put(length, &device.serial());
    gpu fn nvmlDeviceGetBrand([device] brand: OutPtr<nvml::nvmlBrandType_t>)
        |_device| brand.put(nvml::nvmlBrandType_enum_NVML_BRAND_NVIDIA);
    gpu fn nvmlDeviceGetArchitecture([device] architecture: OutPtr<nvml::nvmlDeviceArchitecture_t>)
        |device| architecture.put(device.model().architecture);
    gpu fn nvmlDeviceGetNumGpuCores([device] cores: OutPtr<c_uint>)
        |device| cores.put(device.model().cores);
    unit fn nvmlDeviceGetCudaComputeCapability([device] major: OutPtr<c_int>, minor: OutPtr<c_int>)
        |unit| {
            let [high, low] = unit.gpu().compute_capability.unwrap_or(unit.model().compute_capability);
            major.put(high)?;
            minor.put(low)
        };
}

/// Hands out a handle, unless the GPU's own faults prevent it.
fn give(name: &str, found: Result<Device, Code>, to: &OutPtr<nvml::nvmlDevice_t>) -> NvmlResult {
    let device = found?;
    device.gate(name)?;
    to.put(device.handle())
}

fn at(host: &Arc<Host>, index: c_uint) -> Result<Device, Code> {
    Device::gpus(host)
        .nth(index as usize)
        .ok_or(INVALID_ARGUMENT)
}

fn with_uuid(host: &Arc<Host>, uuid: &CallerText) -> Result<Device, Code> {
    let uuid = uuid.text()?;
    Device::all(host)
        .find(|device| device.uuid() == uuid)
        .ok_or(NOT_FOUND)
}

fn with_serial(host: &Arc<Host>, serial: &CallerText) -> Result<Device, Code> {
    let serial = serial.text()?;
    Device::gpus(host)
        .find(|device| device.serial() == serial)
        .ok_or(NOT_FOUND)
}

fn with_address(host: &Arc<Host>, text: &CallerText) -> Result<Device, Code> {
    let address = Address::read(&text.text()?).ok_or(INVALID_ARGUMENT)?;
    Device::gpus(host)
        .find(|device| device.address() == address)
        .ok_or(NOT_FOUND)
}

impl Device {
    fn serial(&self) -> String {
        let serial = self.gpu().serial.clone();
        serial.unwrap_or_else(|| format!("1654922{:06}", 6000 + self.index))
    }

    /// Names a device as the real library does, a MIG device by its GPU and its profile.
    fn name(&self) -> String {
        match self.instance() {
            Some(instance) => format!("{} MIG {}", self.gpu().name, instance.profile),
            None => self.gpu().name.clone(),
        }
    }
}
