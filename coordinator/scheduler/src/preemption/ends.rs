//! Finds where the head of a pool waits if preemption does not help. The awaited runs end by themselves, so whether they
//! are preemptible does not matter.
//!
//! | | finds |
//! |---|---|
//! | `fewest` | the hosts on which the fewest resources have to come free |
//! | `earliest` | the hosts on which the request starts first by the time limits of the runs there |

mod earliest;
mod fewest;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName};
use sluice_common::time::Time;

use crate::model::nomination::Nomination;
use crate::model::request::Run;
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::what_if::{Shortage, WhatIf};

/// Hosts, and the runs whose end there lets a request start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwaitedEnds {
    pub(crate) hosts: Vec<NodeName>,
    pub(crate) awaits: BTreeSet<AttemptId>,
    pub(crate) units: AwaitedResources,
    /// Time at which the last of these runs ends at the latest, if that is known.
    pub(crate) end: Option<Time>,
}

/// The resources that a request is short of and that runs hold: on its hosts, then in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AwaitedResources {
    on_hosts: HostResources,
    of_pool: u64,
}

/// GPUs, then thousandths of a core.
type Main = (u64, u64);

impl AwaitedResources {
    /// The resources by which hosts are ranked.
    fn main(self) -> Main {
        (self.on_hosts.mgpu(), self.on_hosts.mcpu())
    }

    fn plus(self, other: Self) -> Self {
        Self {
            on_hosts: self.on_hosts.plus(other.on_hosts),
            of_pool: self.of_pool.saturating_add(other.of_pool),
        }
    }
}

type Named<'a> = (&'a AttemptId, &'a Run);
type EndsOnPlatform<'a> = (AwaitedEnds, Option<&'a PlatformName>);

/// Chooses the hosts, on one of the platforms of a request, on which it should wait, and the runs that it awaits there.
/// `None` if no schedulable host could hold it even when empty, or if its present nomination is as good: one with a latest
/// start moves only to an earlier one, another one only to where fewer resources have to come free. Otherwise requests
/// that are let past it by their time limits could drive it from place to place.
pub(crate) fn await_ends<'a>(
    in_pool: RequestInPool<'a>,
    present: Option<&'a Nomination>,
) -> Option<EndsOnPlatform<'a>> {
    let reservations = in_pool.reserved_in_full();
    let starts_by = present.and_then(|it| in_pool.scheduler.latest_start(&it.awaits));
    if starts_by.is_some() {
        return earliest(in_pool, &reservations, starts_by);
    }
    let less_than = present.map(|present| {
        let in_pool = in_pool.on_platform(present.platform.as_ref());
        awaited_resources(in_pool, &reservations, &present.hosts, &present.awaits)
    });
    let (fewest, platform) = fewest(in_pool, &reservations, less_than)?;
    let earliest = earliest(in_pool, &reservations, None);
    // Runs without limits are awaited only if they hold fewer resources.
    let earliest = earliest.filter(|(it, _)| fewest.end.is_some() || it.units <= fewest.units);
    Some(earliest.unwrap_or((fewest, platform)))
}

fn fewest<'a>(
    in_pool: RequestInPool<'a>,
    reservations: &Reservations,
    less_than: Option<AwaitedResources>,
) -> Option<EndsOnPlatform<'a>> {
    let mut fewest: Option<EndsOnPlatform<'a>> = None;
    for in_pool in in_pool.each_place() {
        let known = fewest.as_ref();
        let less_than = known.map_or(less_than, |(ends, _)| Some(ends.units));
        if let Some(ends) = fewest::await_fewest(in_pool, reservations, less_than) {
            fewest = Some((ends, in_pool.filter.platform));
        }
    }
    fewest
}

fn earliest<'a>(
    in_pool: RequestInPool<'a>,
    reservations: &Reservations,
    before: Option<Time>,
) -> Option<EndsOnPlatform<'a>> {
    if in_pool.pool.by_end.is_empty() {
        return None;
    }
    let found = in_pool.each_place().filter_map(|in_pool| {
        let ends = earliest::await_earliest(in_pool, reservations, before)?;
        Some((ends, in_pool.filter.platform))
    });
    found.min_by_key(|(ends, _)| (ends.end, ends.units))
}

/// The resources that runs must free before a request starts on `hosts`.
fn awaited_resources(
    in_pool: RequestInPool<'_>,
    reservations: &Reservations,
    hosts: &[NodeName],
    awaits: &BTreeSet<AttemptId>,
) -> AwaitedResources {
    let shortage = WhatIf::new(in_pool, reservations).shortage(hosts);
    let runs = awaits.iter();
    let runs = runs.filter_map(|id| Some((id, in_pool.scheduler.run(id)?)));
    units_of(in_pool, &shortage, runs)
}

/// Adds up what runs hold of the resources that are short.
fn units_of<'a>(
    in_pool: RequestInPool<'_>,
    shortage: &Shortage<'_>,
    runs: impl Iterator<Item = Named<'a>>,
) -> AwaitedResources {
    let sum = runs.map(|(id, run)| {
        let on_hosts = shortage
            .on_hosts()
            .filter(|(node, _)| run.holding.contains(*node));
        let on_hosts = on_hosts.map(|(node, missing)| {
            let back = in_pool.released_for(node, id, run.each());
            back.where_missing(missing)
        });
        let of_pool = shortage.of_pool().map(|key| run.demand().get(key));
        AwaitedResources {
            on_hosts: on_hosts.fold(HostResources::default(), HostResources::plus),
            of_pool: of_pool.fold(0, u64::saturating_add),
        }
    });
    sum.fold(AwaitedResources::default(), AwaitedResources::plus)
}
