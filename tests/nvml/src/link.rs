//! NVLink: the links of a GPU, and their other ends. On boards with NVSwitches that is a switch, never another GPU;
//! between bridged cards it is the other card.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::model::NvLink;
use crate::out::OutPtr;
use crate::pci::{Address, PciInfo2};
use crate::resolve::Device;
use crate::{Code, INVALID_ARGUMENT, NOT_SUPPORTED, NvmlResult, SUCCESS};

/// Bus of the first switch; no model has a GPU on it or on the next ones.
const SWITCH_BUS: c_uint = 0xc4;

exports! {
    gpu fn nvmlDeviceGetNvLinkState([device] link: c_uint, active: OutPtr<nvml::nvmlEnableState_t>)
        |device| active.put(match far_end(device, link)? {
            Some(_) => nvml::nvmlEnableState_enum_NVML_FEATURE_ENABLED,
            None => nvml::nvmlEnableState_enum_NVML_FEATURE_DISABLED,
        });
    gpu fn nvmlDeviceGetNvLinkVersion([device] link: c_uint, version: OutPtr<c_uint>)
        |device| version.put(known(device, link)?.version);
    gpu fn nvmlDeviceGetNvLinkCapability(
        [device] link: c_uint, capability: nvml::nvmlNvLinkCapability_t, result: OutPtr<c_uint>
    ) |device| {
        known(device, link)?;
        match capability {
            nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_SLI_BRIDGE => result.put(0),
            _ if capability < nvml::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_COUNT => result.put(1),
            _ => Err(INVALID_ARGUMENT),
        }
    };
    gpu fn nvmlDeviceGetNvLinkErrorCounter(
        [device] link: c_uint, _counter: nvml::nvmlNvLinkErrorCounter_t, count: OutPtr<std::ffi::c_ulonglong>
    ) |device| {
        known(device, link)?;
        count.put(0)
    };
    gpu fn nvmlDeviceGetNvLinkRemotePciInfo([device] link: c_uint, pci: OutPtr<PciInfo2>)
        |device| {
            let (address, id) = linked(device, link)?.pci(device);
            pci.put(PciInfo2::at(address, id))
        };
    gpu fn nvmlDeviceGetNvLinkRemotePciInfo_v2([device] link: c_uint, pci: OutPtr<nvml::nvmlPciInfo_t>)
        |device| {
            let (address, id) = linked(device, link)?.pci(device);
            pci.put(address.info(id, 0))
        };
    gpu fn nvmlDeviceGetNvLinkRemoteDeviceType([device] link: c_uint, kind: OutPtr<nvml::nvmlIntNvLinkDeviceType_t>)
        |device| kind.put(match linked(device, link)? {
            LinkPeer::Switch(_) => nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
            LinkPeer::Gpu(_) => nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
        });

    gpu fn nvmlDeviceGetGpuFabricInfo([device] fabric: OutPtr<nvml::nvmlGpuFabricInfo_t>)
        |device| {
            has_fabric(device)?;
            fabric.put(nvml::nvmlGpuFabricInfo_t {
                clusterUuid: [device.gpu().fabric_cluster; 16],
                status: SUCCESS,
                cliqueId: device.gpu().fabric_clique,
                state: device.gpu().fabric_state,
            })
        };
    gpu fn nvmlDeviceGetGpuFabricInfoV([device] fabric: OutPtr<nvml::nvmlGpuFabricInfo_v2_t>)
        |device| {
            let version = fabric.expect_version(2)?;
            has_fabric(device)?;
            fabric.put(nvml::nvmlGpuFabricInfo_v2_t {
                version,
                clusterUuid: [device.gpu().fabric_cluster; 16],
                status: SUCCESS,
                cliqueId: device.gpu().fabric_clique,
                state: device.gpu().fabric_state,
                healthMask: 0,
            })
        };
}

/// Cards report their fabric from Hopper on.
fn has_fabric(device: &Device) -> NvmlResult {
    let tells = device.model().architecture >= nvml::NVML_DEVICE_ARCH_HOPPER;
    match tells && is_switched(device) {
        true => Ok(()),
        false => Err(NOT_SUPPORTED),
    }
}

/// Other end of a link.
enum LinkPeer {
    /// Number of the switch.
    Switch(u32),
    /// Index of the GPU.
    Gpu(usize),
}

impl LinkPeer {
    /// Returns its PCI address and device id.
    fn pci(&self, device: &Device) -> (Address, c_uint) {
        match self {
            LinkPeer::Switch(number) => (
                Address {
                    domain: 0,
                    bus: SWITCH_BUS + number,
                    device: 0,
                },
                device
                    .model()
                    .nvlink
                    .as_ref()
                    .map_or(0, |links| links.switch_device),
            ),
            LinkPeer::Gpu(index) => {
                let other = Device {
                    index: *index,
                    ..device.clone()
                };
                (other.address(), other.model().pci_device)
            }
        }
    }
}

/// Returns the links of its model, if this is one of them.
fn known(device: &Device, link: c_uint) -> Result<&'static NvLink, Code> {
    let links = device.model().nvlink.as_ref().ok_or(NOT_SUPPORTED)?;
    match link < links.links {
        true => Ok(links),
        false => Err(INVALID_ARGUMENT),
    }
}

/// Returns the other end of a link; none if it is down.
fn far_end(device: &Device, link: c_uint) -> Result<Option<LinkPeer>, Code> {
    let links = known(device, link)?;
    if device.gpu().links_down.contains(&link) {
        return Ok(None);
    }
    Ok(match &device.host.bridges {
        Some(_) => across(device, links, link),
        None => is_switched(device).then(|| LinkPeer::Switch(link % links.switches)),
    })
}

fn linked(device: &Device, link: c_uint) -> Result<LinkPeer, Code> {
    far_end(device, link)?.ok_or(NOT_SUPPORTED)
}

/// Returns the other end of a bridge: a GPU's links are divided evenly among its bridges. A lost GPU takes them down.
fn across(device: &Device, links: &NvLink, link: c_uint) -> Option<LinkPeer> {
    let others = bridged(device);
    let each = (links.links as usize).checked_div(others.len())?;
    let other = *others.get(link as usize / each.max(1))?;
    (!device.host.gpus[other].lost).then_some(LinkPeer::Gpu(other))
}

/// Returns the GPUs at the other ends of its bridges.
fn bridged(device: &Device) -> Vec<usize> {
    let bridges = device.host.bridges.iter().flatten();
    bridges
        .filter_map(|[one, other]| match device.index {
            index if index == *one => Some(*other),
            index if index == *other => Some(*one),
            _ => None,
        })
        .collect()
}

/// Whether the board has switches: more than one GPU, all of a model.
fn is_switched(device: &Device) -> bool {
    let switches = device
        .model()
        .nvlink
        .as_ref()
        .map_or(0, |links| links.switches);
    let alike = device
        .host
        .gpus
        .iter()
        .filter(|gpu| gpu.name == device.gpu().name);
    device.host.bridges.is_none() && switches > 0 && alike.count() > 1
}

/// Whether two GPUs reach each other by NVLink.
pub(crate) fn are_linked(one: &Device, other: &Device) -> bool {
    let switched = is_switched(one) && is_switched(other) && one.gpu().name == other.gpu().name;
    one.index != other.index && (switched || bridged(one).contains(&other.index))
}
