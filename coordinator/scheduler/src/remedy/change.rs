//! Things that could be changed for a request, and what they do to the scheduler of a dry run.

use alloc::vec::Vec;

use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::id::{NodeName, PoolName, StepId};

use crate::model::request::Request;
use crate::model::units::HostUnits;
use crate::remedy::dry_run::DryRun;

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// More of a key comes free on a host, or the host gets more.
    Free {
        node: NodeName,
        key: &'static str,
        /// How much more.
        more: u64,
    },
    /// More of a declared key comes free in the pool, or more is declared.
    Declared {
        key: ResourceKey,
        /// How much more.
        more: u64,
    },
    /// A host that is closed takes work.
    Open { node: NodeName },
    /// The subject may use as much as this.
    Limit {
        key: ResourceKey,
        /// The new limit.
        to: u64,
    },
    /// As much as this is reserved for the subject.
    Reserved {
        key: ResourceKey,
        /// The new reservation.
        to: u64,
    },
    /// The request asks for no more than this, on each host.
    Ask { key: ResourceKey, to: u64 },
    /// The request can be made to give way.
    Preemptible,
}

impl Change {
    /// How much more it takes.
    pub(crate) fn more(&mut self) -> Option<&mut u64> {
        match self {
            Self::Free { more, .. } | Self::Declared { more, .. } => Some(more),
            Self::Open { .. }
            | Self::Limit { .. }
            | Self::Reserved { .. }
            | Self::Ask { .. }
            | Self::Preemptible => None,
        }
    }

    /// Whether it differs from another only in how much more it takes.
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

    /// Whether it changes only what is free.
    pub(crate) fn is_of_units(&self) -> bool {
        match self {
            Self::Free { .. } | Self::Declared { .. } | Self::Open { .. } => true,
            Self::Limit { .. } | Self::Reserved { .. } | Self::Ask { .. } | Self::Preemptible => {
                false
            }
        }
    }
}

/// Adds a change to others, one of which may be of the same.
pub(crate) fn merge(changes: &mut Vec<Change>, mut change: Change) {
    let added = change.more().map_or(0, |more| *more);
    let same = changes.iter_mut().find(|known| known.is_like(&change));
    match same.and_then(Change::more) {
        Some(more) => *more = more.saturating_add(added),
        None => changes.push(change),
    }
}

impl DryRun {
    /// Makes changes for a request and its pool. `None` if one cannot be made: then some may have been.
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
                Change::Free { node, key, more } => self.enlarge(node, key, *more),
                Change::Declared { key, more } => self.change_terms(name, |terms| {
                    if let Some(declared) = terms.declared.get_mut(key) {
                        *declared = declared.saturating_add(*more);
                    }
                }),
                Change::Open { node } => self.change_host(node, |host| host.open = true),
                Change::Limit { key, to } => _ = policy.limit.insert(key.clone(), *to),
                Change::Reserved { key, to } => _ = policy.reserved.insert(key.clone(), *to),
                Change::Ask { key, to } => request = asking(&request, key, *to),
                Change::Preemptible => request.preemptible = true,
            }
        }
        if policy != old_policy {
            let pool = self.scheduler().pool(name)?;
            pool.vet(&request.subject, &policy).ok()?;
            self.put_policy(name, &request.subject, policy);
        }
        if request != old_request {
            self.replace_request(request);
        }
        Some(())
    }

    fn enlarge(&mut self, node: &NodeName, key: &'static str, more: u64) {
        let more = HostUnits::of(&Amounts::new().with(key, more));
        self.change_host(node, |host| {
            host.capacity = host.capacity.plus(more);
            if let Some(gpus) = host.hardware.gpus.values_mut().next() {
                *gpus += more.gpus();
            }
        });
    }
}

/// The request if it asked for so much of a key on each host.
pub(crate) fn asking(request: &Request, key: &ResourceKey, to: u64) -> Request {
    let mut asking = request.clone();
    asking
        .demand
        .set(key.clone(), to.saturating_mul(u64::from(request.hosts)));
    let other = request.each.amounts();
    if other.get(key.as_str()) > 0 {
        let mut each = other;
        each.set(key.clone(), to);
        asking.each = HostUnits::of(&each);
    }
    asking
}
