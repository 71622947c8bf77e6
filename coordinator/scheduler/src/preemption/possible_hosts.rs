//! Hosts on which preemption could make room, found without choosing victims.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::slice;

use sluice_common::time::Time;

use crate::model::pool::host_table::HostNumber;
use crate::model::request::Request;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::CandidateCache;
use crate::preemption::counting::could_ever_fit;
use crate::preemption::index::CandidateIndex;
use crate::preemption::remove_releasing;
use crate::preemption::what_if::WhatIf;

/// The hosts that would each have room for the request if all candidates were gone; none for a gang.
pub(super) fn hosts_that_could<'a>(
    in_pool: RequestInPool<'a>,
    what_if: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, '_>,
) -> Vec<HostNumber> {
    if in_pool.request.hosts > 1 {
        return Vec::new();
    }
    let hosts = in_pool.pool.hosts();
    if !what_if.lacks_only_host_resources() {
        let large = in_pool.covering(&in_pool.host_index().by_usable);
        let nodes = large.map(|(node, _)| node);
        let nodes = nodes.filter(|node| what_if.could_cover(node, index.held_on(node)));
        return nodes.filter_map(|node| hosts.number(node)).collect();
    }
    // Where nothing is released the request would have started if it fitted.
    let released = what_if.freed_hosts();
    let released = released.filter(|node| !index.has_on(node));
    let released = released.filter_map(|node| hosts.number(node));
    let released = released.map(|number| (number, HostResources::default()));
    let could = index.held().chain(released).filter(|(number, held)| {
        hosts.at(*number).is_some_and(|(node, host)| {
            host.schedulable
                && host.is_seen_by(in_pool.filter)
                && host.usable_for(in_pool.filter).cover(in_pool.request.each)
                && what_if.could_cover_on((node, host), *held)
                && in_pool.may_run_on(node)
        })
    });
    could.map(|(number, _)| number).collect()
}

/// Whether it is certain that no run may be preempted with which any request of a range starts: of requests that ask for at
/// least as much as the one in the pool, for at most as much as `most`, and are otherwise like it. They are of one platform,
/// and nothing went past them. `cache` is of the pool.
pub(crate) fn is_impossible_for_range<'a>(
    in_pool: RequestInPool<'a>,
    most: impl FnOnce() -> Request,
    now: Time,
    cache: &CandidateCache<'a>,
) -> bool {
    let RequestInPool { request, pool, .. } = in_pool;
    let may_preempt = request.preemptible || in_pool.is_in_share();
    let candidates = cache.candidates(in_pool, now);
    let has_none = candidates.is_empty() && pool.releasing.is_empty();
    if !may_preempt || has_none {
        return true;
    }
    let index = CandidateIndex::new(in_pool, &candidates, cache.heads());
    let reserved = in_pool.reserved_in_pool();
    // Beside firm reservations alone there is the most room. What is kept for the head may be short too, and then more runs
    // may be taken: the range may begin before the head and go on behind it.
    let mut roomy = WhatIf::new(in_pool, &reserved.firm);
    let releasing = remove_releasing(&mut roomy);
    if request.hosts > 1 {
        return candidates.is_empty() && releasing.is_empty();
    }
    let most = RequestInPool {
        request: &most(),
        ..in_pool
    };
    let tight = WhatIf::new(most, &reserved.with_head);
    let mut possible = hosts_that_could(in_pool, &roomy, &index).into_iter();
    let hosts = pool.hosts();
    !possible.any(|number| {
        hosts.at(number).is_some_and(|(node, _)| {
            let shortage = tight.shortage(slice::from_ref(node));
            could_ever_fit(&roomy, &shortage, &index, node, &BTreeSet::new())
        })
    })
}
