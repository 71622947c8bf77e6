//! Hosts by platform, and by the class of their GPUs: whole, or slices of one profile.

use alloc::collections::BTreeMap;

use sluice_common::id::{NodeName, PlatformName};
use sluice_common::mig::GpuClass;

use crate::model::host::{HardwareFilter, Host, HostIndex};

/// Hosts of a pool with their GPUs of one class, or with all GPUs: as a whole, and by platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HardwareIndex {
    all: HostIndex,
    by_platform: BTreeMap<PlatformName, HostIndex>,
    /// Sum of the hosts' GPUs, in thousandths.
    mgpu: u64,
}

impl HardwareIndex {
    pub(super) fn insert(&mut self, node: &NodeName, host: &Host, class: Option<&GpuClass>) {
        let of_class = HardwareFilter {
            class,
            platform: None,
        };
        self.all.insert(node, host, of_class);
        self.mgpu += of_class.count(&host.hardware.gpus);
        for name in host.platforms(class) {
            let index = self.by_platform.entry(name.clone()).or_default();
            let platform = Some(name);
            index.insert(node, host, HardwareFilter { class, platform });
        }
    }

    pub(super) fn remove(&mut self, node: &NodeName, host: &Host, class: Option<&GpuClass>) {
        let of_class = HardwareFilter {
            class,
            platform: None,
        };
        self.all.remove(node, host, of_class);
        self.mgpu -= of_class.count(&host.hardware.gpus);
        for name in host.platforms(class) {
            if let Some(index) = self.by_platform.get_mut(name) {
                let platform = Some(name);
                index.remove(node, host, HardwareFilter { class, platform });
                if index.is_empty() {
                    self.by_platform.remove(name);
                }
            }
        }
    }

    /// The names of its hosts.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.all.by_capacity.largest_first().map(|(node, _)| node)
    }

    pub(super) fn mgpu(&self) -> u64 {
        self.mgpu
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The hosts of a platform, or all.
    pub(super) fn hosts(&self, platform: Option<&PlatformName>) -> Option<&HostIndex> {
        match platform {
            None => Some(&self.all),
            Some(platform) => self.by_platform.get(platform),
        }
    }

    /// The platforms of its hosts.
    pub(super) fn platforms(&self) -> impl ExactSizeIterator<Item = &PlatformName> {
        self.by_platform.keys()
    }
}
