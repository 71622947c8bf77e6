//! Finds the host on which preemption costs least, without trying each: hosts are tried in the order of what they cost at
//! least, until no other can be cheaper.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::slice;

use sluice_common::id::NodeName;

use crate::model::host::NamedHost;
use crate::model::pool::host_table::HostNumber;
use crate::model::resources::HostResources;
use crate::preemption::index::CandidateIndex;
use crate::preemption::lower_bound;
use crate::preemption::offer::{Offer, PreemptionCost};
use crate::preemption::what_if::WhatIf;

/// A host with a lower bound of what preemption there costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BoundedHost<'a> {
    least: PreemptionCost,
    node: &'a NodeName,
    number: HostNumber,
    /// Whether a better bound can be found.
    is_rough: bool,
}

/// The host, of the `possible` ones, on which the request could run at the lowest preemption cost; of those that cost the
/// same the first by name.
pub(super) fn cheapest_host<'a, 'c>(
    base: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, 'c>,
    possible: &[HostNumber],
) -> Option<Offer<'a, 'c>> {
    let table = base.in_pool.pool.hosts();
    let of_hosts_alone = base.lacks_only_host_resources();
    let named = possible.iter();
    let named = named.filter_map(|number| Some((*number, table.at(*number)?)));
    let bounded = named.map(|(number, host)| {
        let least = match of_hosts_alone {
            true => rough_bound(base, index, (number, host)),
            false => PreemptionCost::default(),
        };
        let (node, _) = host;
        Reverse(BoundedHost {
            least,
            node,
            number,
            is_rough: of_hosts_alone,
        })
    });
    let mut hosts: BinaryHeap<Reverse<BoundedHost<'_>>> = bounded.collect();
    let mut best: Option<(PreemptionCost, Offer<'a, 'c>)> = None;
    while let Some(Reverse(next)) = hosts.pop() {
        let BoundedHost { node, number, .. } = next;
        let is_better = |cost: &PreemptionCost| {
            let known = best
                .as_ref()
                .map(|(known, offer)| (known, &offer.hosts[..]));
            known.is_none_or(|known| (cost, slice::from_ref(node)) < known)
        };
        if !is_better(&next.least) {
            break;
        }
        if let Some(host) = table.at(number).filter(|_| next.is_rough) {
            let least = lower_bound::on(base, host, index.candidates.on(number));
            let is_rough = false;
            hosts.push(Reverse(BoundedHost {
                least,
                is_rough,
                ..next
            }));
            continue;
        }
        let Some(offer) = Offer::for_hosts(base, index, [node.clone()].into()) else {
            continue;
        };
        let cost = offer.cost();
        if is_better(&cost) {
            best = Some((cost, offer));
        }
    }
    best.map(|(_, offer)| offer)
}

/// A bound that is found quickly: of the first candidate alone, or nothing if enough is released already.
fn rough_bound<'a>(
    base: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, '_>,
    (number, host): (HostNumber, NamedHost<'_>),
) -> PreemptionCost {
    match base.missing_count_on_host(host) == HostResources::default() {
        true => PreemptionCost::default(),
        false => lower_bound::of_first(index.candidates.on(number).next()),
    }
}
