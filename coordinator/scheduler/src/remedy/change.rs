//! Changes that could let a request start, and how a dry run applies them.

use alloc::vec::Vec;

use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::id::{NodeName, PoolName, StepId};
use sluice_common::mig::GpuClass;

use crate::model::request::Request;
use crate::model::resources::HostResources;
use crate::remedy::dry_run::DryRun;

/// A change that could let a request start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// More of a resource becomes free on a host, or the host gets more.
    FreeOnHost {
        node: NodeName,
        key: &'static str,
        more: u64,
    },
    /// More of a declared resource becomes free in the pool, or more is declared.
    FreeInPool { key: ResourceKey, more: u64 },
    /// A host takes new work again.
    MakeSchedulable { node: NodeName },
    /// The subject's limit is raised.
    RaiseLimit { key: ResourceKey, to: u64 },
    /// The subject's reserved share is raised.
    RaiseReserved {
        key: ResourceKey,
        /// New reserved amount.
        to: u64,
    },
    /// The request asks for less on each host.
    ReduceRequest { key: ResourceKey, to: u64 },
    /// The request becomes preemptible.
    MakePreemptible,
}

impl Change {
    /// The additional amount of the change.
    pub(crate) fn more(&mut self) -> Option<&mut u64> {
        match self {
            Self::FreeOnHost { more, .. } | Self::FreeInPool { more, .. } => Some(more),
            Self::MakeSchedulable { .. }
            | Self::RaiseLimit { .. }
            | Self::RaiseReserved { .. }
            | Self::ReduceRequest { .. }
            | Self::MakePreemptible => None,
        }
    }

    /// Whether two changes differ only in their additional amount.
    fn is_like(&self, other: &Self) -> bool {
        let without_more = |change: &Self| {
            let mut change = change.clone();
            if let Some(more) = change.more() {
                *more = 0;
            }
            change
        };
        without_more(self) == without_more(other)
    }

    pub(crate) fn changes_only_resources(&self) -> bool {
        match self {
            Self::FreeOnHost { .. } | Self::FreeInPool { .. } | Self::MakeSchedulable { .. } => {
                true
            }
            Self::RaiseLimit { .. }
            | Self::RaiseReserved { .. }
            | Self::ReduceRequest { .. }
            | Self::MakePreemptible => false,
        }
    }
}

/// Adds a change to a list, merging it with one of the same kind.
pub(crate) fn merge(changes: &mut Vec<Change>, mut change: Change) {
    let added = change.more().map_or(0, |more| *more);
    let same = changes.iter_mut().find(|known| known.is_like(&change));
    match same.and_then(Change::more) {
        Some(more) => *more = more.saturating_add(added),
        None => changes.push(change),
    }
}

impl DryRun {
    /// Applies changes for a request and its pool. `None` if one cannot be made; others may then have been applied.
    pub(crate) fn change(
        &mut self,
        step: &StepId,
        name: &PoolName,
        changes: &[Change],
    ) -> Option<()> {
        let pool = self.scheduler().pool(name)?;
        let old_request = self.scheduler().request(step)?.clone();
        let old_policy = pool.policy(&old_request.subject)?.clone();
        let (mut policy, mut request) = (old_policy.clone(), old_request.clone());
        for change in changes {
            match change {
                Change::FreeOnHost { node, key, more } => {
                    self.enlarge(node, key, *more, &request.class)
                }
                Change::FreeInPool { key, more } => self.change_terms(name, |terms| {
                    if let Some(declared) = terms.declared.get_mut(key) {
                        *declared = declared.saturating_add(*more);
                    }
                }),
                Change::MakeSchedulable { node } => {
                    self.change_host(node, |host| host.schedulable = true)
                }
                Change::RaiseLimit { key, to } => _ = policy.limit.insert(key.clone(), *to),
                Change::RaiseReserved { key, to } => _ = policy.reserved.insert(key.clone(), *to),
                Change::ReduceRequest { key, to } => request = with_amount(&request, key, *to),
                Change::MakePreemptible => request.preemptible = true,
            }
        }
        if policy != old_policy {
            let pool = self.scheduler().pool(name)?;
            pool.check_policy(&request.subject, &policy).ok()?;
            self.put_policy(name, &request.subject, policy);
        }
        if request != old_request {
            self.replace_request(request);
        }
        Some(())
    }

    fn enlarge(&mut self, node: &NodeName, key: &'static str, more: u64, class: &GpuClass) {
        let more = HostResources::from_amounts(&Amounts::new().with(key, more));
        self.change_host(node, |host| {
            host.capacity = host.capacity.plus(more);
            let mut kinds = host.hardware.gpus.iter_mut();
            if let Some((_, mgpu)) = kinds.find(|(kind, _)| kind.class == *class) {
                *mgpu += more.mgpu();
            }
        });
    }
}

/// The request with another amount of a resource on each host.
pub(crate) fn with_amount(request: &Request, key: &ResourceKey, to: u64) -> Request {
    let mut changed = request.clone();
    changed
        .demand
        .set(key.clone(), to.saturating_mul(u64::from(request.hosts)));
    let other = request.each.amounts();
    if other.get(key.as_str()) > 0 {
        let mut each = other;
        each.set(key.clone(), to);
        changed.each = HostResources::from_amounts(&each);
    }
    changed
}
