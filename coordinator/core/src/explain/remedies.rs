//! Finds what would let a waiting step start. That takes long in a long queue, because changes are tried one after another:
//! so the search has a copy of the scheduler and goes on elsewhere, while the core decides.

use alloc::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, StepId};
use sluice_common::time::Time;
use sluice_scheduler::{Change, Remedy, Request, Scheduler};

/// A search for the remedies of one step.
#[derive(Debug)]
pub struct RemedySearch {
    scheduler: Scheduler,
    step: StepId,
    at: Time,
}

impl RemedySearch {
    pub(crate) fn new(scheduler: Scheduler, step: StepId, at: Time) -> Self {
        Self {
            scheduler,
            step,
            at,
        }
    }

    /// The request of the step, as the copy has it.
    pub fn request(&self) -> Option<&Request> {
        self.scheduler.request(&self.step)
    }

    /// Changes that would let the step start in a pool, the smallest first.
    pub fn in_pool(&self, pool: &PoolName) -> Vec<Remedy> {
        let remedies = self.scheduler.remedies(&self.step, pool, self.at);
        remedies.into_iter().map(without_host).collect()
    }
}

/// Says of a pool without hosts what it would say of a host.
fn without_host(mut remedy: Remedy) -> Remedy {
    let in_pool = |change: &Change| match change {
        Change::FreeOnHost { node, key, more } if node.is_of_pool() => {
            let key = ResourceKey::new(*key).ok()?;
            Some(Change::FreeInPool { key, more: *more })
        }
        Change::FreeOnHost { .. }
        | Change::FreeInPool { .. }
        | Change::MakeSchedulable { .. }
        | Change::RaiseLimit { .. }
        | Change::RaiseReserved { .. }
        | Change::ReduceRequest { .. }
        | Change::MakePreemptible => None,
    };
    let changes = remedy.changes.iter();
    let mut changes: Vec<Change> = changes
        .map(|change| in_pool(change).unwrap_or_else(|| change.clone()))
        .collect();
    changes.dedup();
    remedy.changes = changes;
    remedy
}
