//! Topology of GPUs relative to processors, memory and each other.

use std::ffi::{c_uint, c_ulong};
use std::ops::Range;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::link::are_linked;
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{INVALID_ARGUMENT, NOT_SUPPORTED, NvmlResult};

exports! {
    gpu fn nvmlDeviceGetMemoryAffinity(
        [device] length: c_uint, nodes: OutPtr<c_ulong>, scope: nvml::nvmlAffinityScope_t
    ) |device| {
        check(scope)?;
        mask(&nodes, length, [device.numa_node() as usize].into_iter())
    };
    gpu fn nvmlDeviceGetCpuAffinity([device] length: c_uint, cpus: OutPtr<c_ulong>)
        |device| mask(&cpus, length, device.near_cpus());
    gpu fn nvmlDeviceGetCpuAffinityWithinScope(
        [device] length: c_uint, cpus: OutPtr<c_ulong>, scope: nvml::nvmlAffinityScope_t
    ) |device| {
        check(scope)?;
        mask(&cpus, length, device.near_cpus())
    };
    gpu fn nvmlDeviceGetTopologyCommonAncestor(
        [device] other: nvml::nvmlDevice_t, level: OutPtr<nvml::nvmlGpuTopologyLevel_t>
    ) |device| level.put(ancestor(device, &device.other(other)?));
    gpu fn nvmlDeviceGetTopologyNearestGpus(
        [device] level: nvml::nvmlGpuTopologyLevel_t, count: OutPtr<c_uint>, near: OutPtr<nvml::nvmlDevice_t>
    ) |device| {
        let others = Device::gpus(&device.host)
            .filter(|other| other.index != device.index && ancestor(device, other) == level);
        near.fill_or_count(&count, &others.map(|other| other.handle()).collect::<Vec<_>>())
    };
    host fn nvmlSystemGetTopologyGpuSet(cpu: c_uint, count: OutPtr<c_uint>, near: OutPtr<nvml::nvmlDevice_t>)
        |host| {
            let gpus = Device::gpus(host).filter(|gpu| gpu.near_cpus().contains(&(cpu as usize)));
            near.fill_or_count(&count, &gpus.map(|gpu| gpu.handle()).collect::<Vec<_>>())
        };
    gpu fn nvmlDeviceGetP2PStatus(
        [device] other: nvml::nvmlDevice_t, what: nvml::nvmlGpuP2PCapsIndex_t, status: OutPtr<nvml::nvmlGpuP2PStatus_t>
    ) |device| {
        let other = device.other(other)?;
        other.is_whole()?;
        status.put(peer(device, &other, what))
    };

    gpu fn nvmlDeviceGetNumaNodeId([device] node: OutPtr<c_uint>)
        |device| node.put(device.gpu().own_numa_node.ok_or(NOT_SUPPORTED)?);
}

impl Device {
    /// Default node: the first half of at least four GPUs is at the first node, the rest at the second.
    fn numa_node(&self) -> c_uint {
        let gpus = self.host.gpus.len();
        let derived = u16::from(gpus >= 4 && self.index >= gpus / 2);
        c_uint::from(self.gpu().numa_node.unwrap_or(derived))
    }

    /// Returns the logical processors of its node.
    fn near_cpus(&self) -> Range<usize> {
        let each = usize::from(self.host.cpus_per_node);
        let first = self.numa_node() as usize * each;
        first..first + each
    }
}

fn check(scope: nvml::nvmlAffinityScope_t) -> NvmlResult {
    match scope {
        nvml::NVML_AFFINITY_SCOPE_NODE | nvml::NVML_AFFINITY_SCOPE_SOCKET => Ok(()),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Writes bits into words. Bits beyond the last word are dropped, as in the real library.
fn mask(to: &OutPtr<c_ulong>, length: c_uint, bits: impl Iterator<Item = usize>) -> NvmlResult {
    if length == 0 {
        return Err(INVALID_ARGUMENT);
    }
    let mut words = vec![0; length as usize];
    let width = c_ulong::BITS as usize;
    for bit in bits {
        if let Some(word) = words.get_mut(bit / width) {
            *word |= 1 << (bit % width);
        }
    }
    to.fill_all(&words)
}

fn ancestor(one: &Device, other: &Device) -> nvml::nvmlGpuTopologyLevel_t {
    if one.index == other.index {
        nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL
    } else if one.numa_node() == other.numa_node() {
        nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE
    } else {
        nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM
    }
}

fn peer(
    one: &Device,
    other: &Device,
    what: nvml::nvmlGpuP2PCapsIndex_t,
) -> nvml::nvmlGpuP2PStatus_t {
    let can = match what {
        nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK
        | nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_ATOMICS => are_linked(one, other),
        nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ
        | nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_WRITE
        | nvml::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_PROP => {
            one.gpu().mig.is_none() && other.gpu().mig.is_none()
        }
        _ => return nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_UNKNOWN,
    };
    match can && one.index != other.index {
        true => nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK,
        false => nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED,
    }
}
