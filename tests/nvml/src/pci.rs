//! PCI addresses of GPUs.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as nvml;
use serde::{Deserialize, Deserializer, de};

use crate::exports::exports;
use crate::out::{OutPtr, chars};
use crate::resolve::Device;
use crate::{INVALID_ARGUMENT, NOT_SUPPORTED};

/// Display controllers, of the 3D subclass.
const CLASS: (c_uint, c_uint) = (0x03, 0x02);

exports! {
    gpu fn nvmlDeviceGetPciInfo([device] pci: OutPtr<PciInfo1>)
        |device| pci.put(PciInfo1::of(device));
    gpu fn nvmlDeviceGetPciInfo_v2([device] pci: OutPtr<PciInfo2>)
        |device| pci.put(PciInfo2 {
            first: PciInfo1::of(device),
            subsystem: device.model().pci_subsystem,
            reserved: [0; 4],
        });
    gpu fn nvmlDeviceGetPciInfo_v3([device] pci: OutPtr<nvml::nvmlPciInfo_t>)
        |device| pci.put(device.address().info(device.model().pci_device, device.model().pci_subsystem));

    gpu fn nvmlDeviceGetCurrPcieLinkGeneration([device] generation: OutPtr<c_uint>)
        |device| generation.put(device.gpu().pcie.generation.unwrap_or(device.model().pcie_generation));
    gpu fn nvmlDeviceGetMaxPcieLinkGeneration([device] generation: OutPtr<c_uint>)
        |device| generation.put(device.model().pcie_generation);
    gpu fn nvmlDeviceGetGpuMaxPcieLinkGeneration([device] generation: OutPtr<c_uint>)
        |device| generation.put(device.model().pcie_generation);
    gpu fn nvmlDeviceGetCurrPcieLinkWidth([device] width: OutPtr<c_uint>)
        |device| width.put(device.gpu().pcie.width.unwrap_or(16));
    gpu fn nvmlDeviceGetMaxPcieLinkWidth([device] width: OutPtr<c_uint>)
        |_device| width.put(16);
    gpu fn nvmlDeviceGetPcieReplayCounter([device] replays: OutPtr<c_uint>)
        |_device| replays.put(0);
    gpu fn nvmlDeviceGetPcieThroughput([device] counter: nvml::nvmlPcieUtilCounter_t, rate: OutPtr<c_uint>)
        |_device| match counter {
            nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES
            | nvml::nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES => rate.put(0),
            _ => Err(INVALID_ARGUMENT),
        };
    gpu fn nvmlDeviceGetBridgeChipInfo([device] _chips: OutPtr<nvml::nvmlBridgeChipHierarchy_t>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceOnSameBoard([device] other: nvml::nvmlDevice_t, same: OutPtr<c_int>)
        |device| {
            let other = device.other(other)?;
            same.put(c_int::from(device.index == other.index))
        };

    gpu fn nvmlDeviceGetPciInfoExt([device] pci: OutPtr<nvml::nvmlPciInfoExt_t>)
        |device| {
            let version = pci.expect_version(1)?;
            let address = device.address();
            pci.put(nvml::nvmlPciInfoExt_t {
                version,
                domain: address.domain,
                bus: address.bus,
                device: address.device,
                pciDeviceId: device.model().pci_device,
                pciSubSystemId: device.model().pci_subsystem,
                baseClass: CLASS.0,
                subClass: CLASS.1,
                busId: chars(&address.long()),
            })
        };
}

/// The first version of the structure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfo1 {
    bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
}

/// The second version, with its reserved fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PciInfo2 {
    first: PciInfo1,
    subsystem: c_uint,
    reserved: [c_uint; 4],
}

impl PciInfo1 {
    fn of(device: &Device) -> Self {
        let address = device.address();
        Self {
            bus_id: chars(&address.short()),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            device_id: device.model().pci_device,
        }
    }
}

impl PciInfo2 {
    /// Describes a device of which only the address matters.
    pub(crate) fn at(address: Address, device_id: c_uint) -> Self {
        Self {
            first: PciInfo1 {
                bus_id: chars(&address.short()),
                domain: address.domain,
                bus: address.bus,
                device: address.device,
                device_id,
            },
            subsystem: 0,
            reserved: [0; 4],
        }
    }
}

/// A PCI address. Its function is always 0.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Address {
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
}

impl Address {
    /// Parses `domain:bus:device.function` with a domain of any length, or `bus:device.function` in domain 0.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (place, function) = text.rsplit_once('.')?;
        let numbers: Option<Vec<c_uint>> = place
            .split(':')
            .map(|part| c_uint::from_str_radix(part, 16).ok())
            .collect();
        let (domain, bus, device) = match numbers?.as_slice() {
            [bus, device] => (0, *bus, *device),
            [domain, bus, device] => (*domain, *bus, *device),
            _ => return None,
        };
        (function == "0" && bus < 256 && device < 32).then_some(Self {
            domain,
            bus,
            device,
        })
    }

    /// Formats it as newer functions do, with eight digits of domain.
    pub(crate) fn long(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }

    /// Formats it as older ones do, with four.
    fn short(self) -> String {
        format!("{:04X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }

    /// Returns the present structure.
    pub(crate) fn info(self, device_id: c_uint, subsystem: c_uint) -> nvml::nvmlPciInfo_t {
        nvml::nvmlPciInfo_t {
            busIdLegacy: chars(&self.short()),
            domain: self.domain,
            bus: self.bus,
            device: self.device,
            pciDeviceId: device_id,
            pciSubSystemId: subsystem,
            busId: chars(&self.long()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::read(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "{text} is no PCI address: write one such as 00000000:1B:00.0"
            ))
        })
    }
}

impl Device {
    /// Returns the address of its GPU: from the file, or the usual one of such a card.
    pub(crate) fn address(&self) -> Address {
        let buses = &self.model().buses;
        self.gpu().pci.unwrap_or(Address {
            domain: (self.index / buses.len()) as c_uint,
            bus: buses[self.index % buses.len()],
            device: 0,
        })
    }
}
