//! Hosts of replicas that are spread: how many of a version of a service each host has.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use sluice_common::id::{NodeName, ServiceName};
use sluice_common::step::StepSpec;

/// Replicas of one version of a service. Those of another version do not count: they end while it starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaGroup {
    service: ServiceName,
    revision: u32,
}

impl ReplicaGroup {
    /// The group among whose hosts a step is spread; `None` if it is no replica, or one that is packed.
    pub(crate) fn of(spec: &StepSpec) -> Option<Self> {
        let replica = spec.service.as_ref().filter(|replica| replica.spread)?;
        Some(Self {
            service: replica.name.clone(),
            revision: replica.revision,
        })
    }
}

/// Number of replicas of each group by host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplicaHosts(BTreeMap<ReplicaGroup, BTreeMap<NodeName, u32>>);

impl ReplicaHosts {
    /// Counts a replica on a host.
    pub(crate) fn add(&mut self, group: Option<&ReplicaGroup>, node: &NodeName) {
        if let Some(group) = group {
            let hosts = self.0.entry(group.clone()).or_default();
            *hosts.entry(node.clone()).or_default() += 1;
        }
    }

    /// Counts a replica on a host no more.
    pub(crate) fn remove(&mut self, group: Option<&ReplicaGroup>, node: &NodeName) {
        let Some(group) = group else {
            return;
        };
        let Some(hosts) = self.0.get_mut(group) else {
            return;
        };
        if let Entry::Occupied(mut count) = hosts.entry(node.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if hosts.is_empty() {
            self.0.remove(group);
        }
    }

    /// Number of replicas of a group by host; `None` if no host has any.
    pub(crate) fn of(&self, group: &ReplicaGroup) -> Option<&BTreeMap<NodeName, u32>> {
        self.0.get(group)
    }
}
