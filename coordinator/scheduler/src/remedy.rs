//! What would let a request start that waits: the smallest changes of what is free, of its subject's policy or of the
//! request itself. Each is found from what the rules lack and then tried: it is supposed of an excerpt of the scheduler,
//! and the scheduler's own next moves say whether the request starts.

pub(crate) mod change;
pub(crate) mod excerpt;
mod lack;

use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId};
use sluice_common::time::Time;

use crate::model::scheduler::Scheduler;
use crate::model::units::HostUnits;
use crate::placement::request_in_pool::RequestInPool;
use crate::remedy::change::{Change, merge};
use crate::remedy::excerpt::{Others, Start, is_settled};

/// So many ways at most; the smallest are kept.
const MAX_REMEDIES: usize = 4;

/// So often those ahead may have taken what came free before it is given up.
const MAX_ROUNDS: usize = 8;

/// Changes that together let a request start, and none of which could be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to change: one thing, wherever one is enough.
    pub changes: Vec<Change>,
    /// How it would start then.
    pub start: Start,
    /// Whether that takes for granted that those who go before it and are promised nothing take none of it.
    pub after_others: bool,
}

impl RequestInPool<'_> {
    /// Whether no host would have to have more free than it has.
    fn could_be(&self, changes: &[Change]) -> bool {
        changes.iter().all(|change| match change {
            Change::Free { node, key, more } => {
                let host = self.pool.hosts().get(node);
                host.is_none_or(|host| {
                    let of = |units: HostUnits| {
                        units.iter().find(|(k, _)| k == key).map_or(0, |(_, n)| n)
                    };
                    // What is too small as it is gets more as a whole, and that is said of it.
                    let too_small = of(host.capacity) < of(self.request.each);
                    too_small || of(host.free()).saturating_add(*more) <= of(host.capacity)
                })
            }
            Change::Declared { .. }
            | Change::Open { .. }
            | Change::Limit { .. }
            | Change::Reserved { .. }
            | Change::Ask { .. }
            | Change::Preemptible => true,
        })
    }
}

impl Scheduler {
    /// What would let a request start in a pool, the smallest first. Nothing where its place is being made free
    /// already.
    pub fn remedies(&self, step: &StepId, name: &PoolName, now: Time) -> Vec<Remedy> {
        let (Some(pool), Some(request)) = (self.pools.get(name), self.request(step)) else {
            return Vec::new();
        };
        if is_settled(self.nomination(step)) {
            return Vec::new();
        }
        let Some(before) = RequestInPool::of(self, pool, request) else {
            return Vec::new();
        };
        let order = self.in_order(name);
        let Some(ahead) = order.iter().position(|id| *id == step) else {
            return Vec::new();
        };
        let mut found: Vec<Remedy> = Vec::new();
        for changes in before.proposals() {
            // What is enough makes everything needless that contains it.
            let contains = |known: &Remedy| known.changes.iter().all(|c| changes.contains(c));
            if !found.iter().any(contains) {
                let tried = self.tried(step, name, changes, ahead, now);
                let tried = tried.filter(|it| before.could_be(&it.changes));
                found.extend(tried.filter(|it| !found.contains(it)));
            }
        }
        found.sort_by_key(|remedy| (remedy.after_others, remedy.changes.len()));
        found.truncate(MAX_REMEDIES);
        found
    }

    fn tried(
        &self,
        step: &StepId,
        name: &PoolName,
        changes: Vec<Change>,
        ahead: usize,
        now: Time,
    ) -> Option<Remedy> {
        let wanted = if ahead == 0 {
            Others::After
        } else {
            Others::All
        };
        let beside = self.beside_those_ahead(step, name, changes.clone(), wanted, now);
        let (changes, start, after_others) = match beside {
            Some((changes, start)) => (changes, start, false),
            None => {
                let with =
                    |changes: &[Change]| self.starts_with(step, name, changes, Others::After, now);
                let start = with(&changes)?;
                let (changes, start) = smallest(changes, start, with);
                (changes, start, ahead > 0)
            }
        };
        Some(Remedy {
            changes,
            start,
            after_others,
        })
    }

    /// How a request would start with the changes, if it would.
    fn starts_with(
        &self,
        step: &StepId,
        name: &PoolName,
        changes: &[Change],
        others: Others,
        now: Time,
    ) -> Option<Start> {
        let mut excerpt = self.excerpt(step, name, others)?;
        excerpt.change(step, name, changes)?;
        excerpt.would_start(step, name, now)
    }

    /// The changes, with as much more as those take of them who go before it.
    fn beside_those_ahead(
        &self,
        step: &StepId,
        name: &PoolName,
        mut changes: Vec<Change>,
        others: Others,
        now: Time,
    ) -> Option<(Vec<Change>, Start)> {
        for round in 0..MAX_ROUNDS {
            let mut excerpt = self.excerpt(step, name, others)?;
            excerpt.change(step, name, &changes)?;
            if let Some(start) = excerpt.would_start(step, name, now) {
                let with = |changes: &[Change]| self.starts_with(step, name, changes, others, now);
                // What one rule lacks may be had by what another does, and what those ahead take is not known before.
                return Some(match (round, changes.len()) {
                    (0, 1) => (changes, start),
                    _ => smallest(changes, start, with),
                });
            }
            let more = excerpt.still_lacking(step, name)?;
            if more.is_empty() || !changes.iter().all(|change| change.is_of_units()) {
                return None;
            }
            more.into_iter()
                .for_each(|change| merge(&mut changes, change));
        }
        None
    }

    fn still_lacking(&self, step: &StepId, name: &PoolName) -> Option<Vec<Change>> {
        let before = RequestInPool::of(self, self.pools.get(name)?, self.request(step)?)?;
        Some(before.lacks_of_units())
    }
}

/// Leaves out of several changes what the rest can do without, and makes each that is left as small as it may be, until
/// neither can be done any more: less of one may spare another.
fn smallest(
    mut changes: Vec<Change>,
    mut start: Start,
    starts: impl Fn(&[Change]) -> Option<Start>,
) -> (Vec<Change>, Start) {
    loop {
        let before = changes.clone();
        for n in (0..changes.len()).rev() {
            let mut fewer = changes.clone();
            fewer.remove(n);
            if let Some(sooner) = starts(&fewer) {
                (changes, start) = (fewer, sooner);
            }
        }
        for n in 0..changes.len() {
            shrink(&mut changes, n, &mut start, &starts);
        }
        if changes == before {
            return (changes, start);
        }
    }
}

/// Makes one of several changes as small as it may be beside the rest.
fn shrink(
    changes: &mut Vec<Change>,
    n: usize,
    start: &mut Start,
    starts: impl Fn(&[Change]) -> Option<Start>,
) {
    let (mut low, mut high) = (0, changes[n].more().map_or(1, |more| *more));
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        let mut less = changes.clone();
        if let Some(more) = less[n].more() {
            *more = middle;
        }
        match starts(&less) {
            Some(sooner) => (*changes, *start, high) = (less, sooner, middle),
            None => low = middle,
        }
    }
}
