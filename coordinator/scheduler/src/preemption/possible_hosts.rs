//! Hosts on which preemption could make room, found without choosing victims.

use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::resources::HostResources;
use crate::placement::request_in_pool::{RequestInPool, ReservedForOthers};
use crate::preemption::counting::could_one_ever_fit;
use crate::preemption::index::CandidateIndex;
use crate::preemption::releasing;
use crate::preemption::what_if::WhatIf;

/// The hosts that would each have room for the request if all candidates were gone; none for a gang.
pub(super) fn hosts_that_could<'a>(
    in_pool: RequestInPool<'a>,
    what_if: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, '_>,
) -> Vec<&'a NodeName> {
    if in_pool.request.hosts > 1 {
        return Vec::new();
    }
    if !what_if.lacks_only_host_resources() {
        let large = in_pool.covering(&in_pool.host_index().by_usable);
        let nodes = large.map(|(node, _)| node);
        let nodes = nodes.filter(|node| what_if.could_cover(node, index.held_on(node)));
        return nodes.collect();
    }
    // Where nothing is released the request would have started if it fitted.
    let hosts = in_pool.pool.hosts();
    let released = what_if.freed_hosts();
    let released = released.filter(|node| !index.has_on(node));
    let released = released.filter_map(|node| hosts.get_key_value(node));
    let released = released.map(|(node, host)| (node, host, HostResources::default()));
    let could = index.held().chain(released).filter(|(node, host, held)| {
        host.schedulable
            && host.is_seen_by(in_pool.filter)
            && host.usable_for(in_pool.filter).cover(in_pool.request.each)
            && what_if.could_cover_on((node, host), *held)
            && in_pool.may_run_on(node)
    });
    could.map(|(node, ..)| node).collect()
}

/// Whether it is certain that no preemption helps any of the requests for which one stands. Beside firm reservations alone
/// they have the most room; what the head is nominated for may be short too, and more runs may be taken for it.
pub(super) fn is_impossible_for_range<'a>(
    in_pool: RequestInPool<'a>,
    reserved: &ReservedForOthers,
    index: &CandidateIndex<'a, '_>,
) -> bool {
    let mut roomy = WhatIf::new(in_pool, &reserved.firm);
    let releasing: Vec<_> = releasing(in_pool, &roomy).collect();
    for (id, run) in releasing.iter().copied() {
        roomy.remove(id, run);
    }
    if in_pool.request.hosts > 1 {
        return index.all().is_empty() && releasing.is_empty();
    }
    let tight = WhatIf::new(in_pool, reserved.all());
    let mut possible = hosts_that_could(in_pool, &roomy, index).into_iter();
    !possible.any(|node| could_one_ever_fit(&roomy, &tight, index, node))
}
