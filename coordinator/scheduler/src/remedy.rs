//! Finds what would let a waiting request start: the smallest changes of free resources, of its subject's policy or
//! of the request itself. Each candidate change is tried in a dry run, where the scheduler's own decisions show
//! whether the request starts.

pub(crate) mod change;
pub(crate) mod dry_run;
mod shortage;

use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId};
use sluice_common::time::Time;

use crate::model::nomination::Nomination;
use crate::model::resources::HostResources;
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::remedy::change::{Change, merge};
use crate::remedy::dry_run::{DryRun, Start};

/// Most remedies that are returned; the smallest are kept.
const MAX_REMEDIES: usize = 4;

/// If more requests than this are ahead, changes are tried only with these left out. Few in tests, so that small queues
/// have more.
const MAX_AHEAD: usize = if cfg!(test) { 3 } else { 64 };

/// Rounds in which requests ahead may take what was freed before the search gives up.
const MAX_ROUNDS: usize = 8;

/// Changes that together let a request start; none of them can be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The changes; a single one if that is enough.
    pub changes: Vec<Change>,
    /// Time at which the request would start.
    pub start: Start,
    /// Whether this assumes that requests ahead without a nomination take none of the freed resources.
    pub after_others: bool,
}

impl RequestInPool<'_> {
    /// Whether no host would need more free than it has.
    fn is_possible(&self, changes: &[Change]) -> bool {
        changes.iter().all(|change| match change {
            Change::FreeOnHost { node, key, more } => {
                let host = self.pool.hosts().get(node);
                host.is_none_or(|host| {
                    let of = |units: HostResources| {
                        units.iter().find(|(k, _)| k == key).map_or(0, |(_, n)| n)
                    };
                    // A host that is too small gets larger as a whole, and the message says so.
                    let too_small = of(host.capacity) < of(self.request.each);
                    too_small || of(host.free()).saturating_add(*more) <= of(host.capacity)
                })
            }
            Change::FreeInPool { .. }
            | Change::MakeSchedulable { .. }
            | Change::RaiseLimit { .. }
            | Change::RaiseReserved { .. }
            | Change::ReduceRequest { .. }
            | Change::MakePreemptible => true,
        })
    }
}

impl Scheduler {
    /// Changes that would let a request start in a pool, the smallest first. Empty if the victims for it are stopping
    /// already.
    pub fn remedies(&self, step: &StepId, name: &PoolName, now: Time) -> Vec<Remedy> {
        let (Some(pool), Some(request)) = (self.pools.get(name), self.request(step)) else {
            return Vec::new();
        };
        if self.nomination(step).is_some_and(Nomination::is_firm) {
            return Vec::new();
        }
        let Some(in_pool) = RequestInPool::new(self, pool, request) else {
            return Vec::new();
        };
        let proposals = in_pool.proposals();
        if proposals.is_empty() {
            return Vec::new();
        }
        let order = self.in_order(name);
        let ahead = order.iter().take_while(|id| **id != step);
        let ahead = ahead.copied();
        let ahead: Vec<&StepId> = ahead.filter(|id| self.nomination(id).is_none()).collect();
        let mut search = RemedySearch {
            dry_run: DryRun::new(self),
            step,
            pool: name,
            now,
        };
        let mut found: Vec<Remedy> = Vec::new();
        if ahead.len() <= MAX_AHEAD {
            search.try_proposals(&proposals, false, &in_pool, &mut found);
        }
        if !ahead.is_empty() {
            search.dry_run.withhold(&ahead);
            search.try_proposals(&proposals, true, &in_pool, &mut found);
        }
        found.sort_by_key(|remedy| (remedy.after_others, remedy.changes.len()));
        found.truncate(MAX_REMEDIES);
        found
    }
}

/// Tries changes for one request in one pool.
struct RemedySearch<'a> {
    dry_run: DryRun,
    step: &'a StepId,
    pool: &'a PoolName,
    now: Time,
}

impl RemedySearch<'_> {
    /// Tries each proposal that does not contain a remedy that is known already.
    fn try_proposals(
        &mut self,
        proposals: &[Vec<Change>],
        after_others: bool,
        in_pool: &RequestInPool<'_>,
        found: &mut Vec<Remedy>,
    ) {
        if self.starts_with(&[]).is_some() {
            // Only the requests ahead are in its way.
            return;
        }
        for changes in proposals {
            let contains = |known: &Remedy| known.changes.iter().all(|c| changes.contains(c));
            if found.iter().any(contains) {
                continue;
            }
            let tried = match after_others {
                false => self.with_those_ahead(changes.clone()),
                true => self
                    .starts_with(changes)
                    .map(|start| self.smallest(changes.clone(), start)),
            };
            let Some((changes, start)) = tried else {
                continue;
            };
            let remedy = Remedy {
                changes,
                start,
                after_others,
            };
            if in_pool.is_possible(&remedy.changes) && !found.contains(&remedy) {
                found.push(remedy);
            }
        }
    }

    /// Tries the changes, enlarged by the amounts that requests ahead take of them.
    fn with_those_ahead(&mut self, mut changes: Vec<Change>) -> Option<(Vec<Change>, Start)> {
        for round in 0..MAX_ROUNDS {
            match self.outcome(&changes)? {
                Ok(start) if round == 0 && changes.len() == 1 => return Some((changes, start)),
                // One change may cover what two rules lack, and what those ahead take is not known before.
                Ok(start) => return Some(self.smallest(changes, start)),
                Err(more)
                    if more.is_empty() || !changes.iter().all(Change::changes_only_resources) =>
                {
                    return None;
                }
                Err(more) => more
                    .into_iter()
                    .for_each(|change| merge(&mut changes, change)),
            }
        }
        None
    }

    /// Tries the changes: the start of the request, or the resources that it would still lack. `None` if a change
    /// cannot be made.
    fn outcome(&mut self, changes: &[Change]) -> Option<Result<Start, Vec<Change>>> {
        let (step, pool, now) = (self.step, self.pool, self.now);
        let dry_run = &mut self.dry_run;
        let outcome = dry_run.change(step, pool, changes).map(|()| {
            let start = dry_run.would_start(step, pool, now);
            start.ok_or_else(|| missing_resources(dry_run.scheduler(), step, pool))
        });
        dry_run.roll_back();
        outcome
    }

    /// The start of the request with the changes; `None` if it would not start.
    fn starts_with(&mut self, changes: &[Change]) -> Option<Start> {
        self.outcome(changes)?.ok()
    }

    /// Drops changes that are not needed and makes the others as small as possible, until neither works any more: a
    /// smaller change may make another unnecessary.
    fn smallest(&mut self, mut changes: Vec<Change>, mut start: Start) -> (Vec<Change>, Start) {
        loop {
            let in_pool = changes.clone();
            for n in (0..changes.len()).rev() {
                let mut fewer = changes.clone();
                fewer.remove(n);
                if let Some(sooner) = self.starts_with(&fewer) {
                    (changes, start) = (fewer, sooner);
                }
            }
            for n in 0..changes.len() {
                self.shrink(&mut changes, n, &mut start);
            }
            if changes == in_pool {
                return (changes, start);
            }
        }
    }

    /// Makes one change as small as the others allow.
    fn shrink(&mut self, changes: &mut Vec<Change>, n: usize, start: &mut Start) {
        let (mut low, mut high) = (0, changes[n].more().map_or(1, |more| *more));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let mut less = changes.clone();
            if let Some(more) = less[n].more() {
                *more = middle;
            }
            match self.starts_with(&less) {
                Some(sooner) => (*changes, *start, high) = (less, sooner, middle),
                None => low = middle,
            }
        }
    }
}

fn missing_resources(scheduler: &Scheduler, step: &StepId, name: &PoolName) -> Vec<Change> {
    let known = scheduler.pool(name).zip(scheduler.request(step));
    let in_pool = known.and_then(|(pool, request)| RequestInPool::new(scheduler, pool, request));
    in_pool.map_or_else(Vec::new, |it| it.missing_resources())
}
