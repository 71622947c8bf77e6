//! Ranks hosts by size, so that the tightest host that is large enough is found without going through smaller ones.
//! Ranked by free resources this finds the best fit, ranked by capacity the hosts that could ever fit.

use alloc::collections::BTreeMap;

use sluice_common::id::NodeName;

use crate::model::resources::HostResources;

/// Hosts by GPUs, then thousandths of a core, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostRanking(BTreeMap<(u64, u64), HostsByName>);

/// Hosts of equal rank.
type HostsByName = BTreeMap<NodeName, HostResources>;

impl HostRanking {
    pub(crate) fn insert(&mut self, node: NodeName, units: HostResources) {
        let rank = (units.mgpu(), units.mcpu());
        self.0.entry(rank).or_default().insert(node, units);
    }

    pub(crate) fn remove(&mut self, node: &NodeName, units: HostResources) {
        let rank = (units.mgpu(), units.mcpu());
        if let Some(hosts) = self.0.get_mut(&rank) {
            hosts.remove(node);
            if hosts.is_empty() {
                self.0.remove(&rank);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hosts that cover `request`, tightest first: by GPUs, then thousandths of a core, then name.
    pub(crate) fn covering(
        &self,
        request: HostResources,
    ) -> impl Iterator<Item = (&NodeName, HostResources)> {
        hosts_of(self.levels(request), request)
    }

    /// The same hosts, those with most first: by GPUs, then thousandths of a core; equal ones by name.
    pub(crate) fn covering_most_first(
        &self,
        request: HostResources,
    ) -> impl Iterator<Item = (&NodeName, HostResources)> {
        hosts_of(self.levels(request).rev(), request)
    }

    /// Ranks that may hold hosts that cover `request`.
    fn levels(&self, request: HostResources) -> impl DoubleEndedIterator<Item = &HostsByName> {
        let levels = self.0.range((request.mgpu(), 0)..);
        let levels = levels.filter(move |((_, mcpu), _)| *mcpu >= request.mcpu());
        levels.map(|(_, hosts)| hosts)
    }

    /// All hosts, those with the most GPUs first, then those with the most cores.
    pub(crate) fn largest_first(&self) -> impl Iterator<Item = (&NodeName, HostResources)> {
        let hosts = self.0.values().rev().flatten();
        hosts.map(|(node, units)| (node, *units))
    }

    /// The host accepted by `counts` that lacks least of `request`: fewest GPUs, then least of each other resource,
    /// then by name. Goes through all hosts, so it is for messages only.
    pub(crate) fn closest(
        &self,
        request: HostResources,
        counts: impl Fn(&NodeName) -> bool,
    ) -> Option<(&NodeName, HostResources)> {
        let hosts = self.0.values().flatten();
        hosts
            .filter(|(node, _)| counts(node))
            .map(|(node, units)| (request.less(*units), node, *units))
            .min()
            .map(|(_, node, units)| (node, units))
    }
}

/// Those hosts of some ranks that cover `request`.
fn hosts_of<'a>(
    levels: impl Iterator<Item = &'a HostsByName>,
    request: HostResources,
) -> impl Iterator<Item = (&'a NodeName, HostResources)> {
    let hosts = levels.flatten().map(|(node, units)| (node, *units));
    hosts.filter(move |(_, units)| units.cover(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;
    use core::cmp::Reverse;
    use proptest::prelude::*;
    use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU};

    fn units((gpu, mcpu, memory): (u64, u64, u64)) -> HostResources {
        let amounts = Amounts::new().with(MGPU, gpu).with(MCPU, mcpu);
        HostResources::from_amounts(&amounts.with(MEMORY_MB, memory))
    }

    proptest! {
        #[test]
        fn the_jump_finds_what_a_walk_over_all_finds(
            hosts in proptest::collection::vec((0u64..4, 0u64..4, 0u64..4), 0..12),
            ask in (0u64..5, 0u64..5, 0u64..5),
        ) {
            let mut ranking = HostRanking::default();
            let mut all = Vec::new();
            for (i, host) in hosts.into_iter().enumerate() {
                let name = NodeName::new(format!("h{i:02}")).unwrap();
                ranking.insert(name.clone(), units(host));
                all.push((host.0, host.1, name, units(host)));
            }
            all.sort();
            let walked = all.iter().find(|host| host.3.cover(units(ask))).map(|host| &host.2);
            prop_assert_eq!(ranking.covering(units(ask)).next().map(|(name, _)| name), walked);
            let most_first = |host: &&(u64, u64, NodeName, HostResources)| {
                (Reverse((host.0, host.1)), host.2.clone())
            };
            let covering = all.iter().filter(|host| host.3.cover(units(ask)));
            let largest = covering.min_by_key(most_first).map(|host| &host.2);
            let found = ranking.covering_most_first(units(ask)).next();
            prop_assert_eq!(found.map(|(name, _)| name), largest);
            let closest = ranking.closest(units(ask), |_| true);
            prop_assert_eq!(closest.is_none(), all.is_empty());
            if walked.is_some() {
                prop_assert!(closest.is_some_and(|(_, have)| have.cover(units(ask))));
            }
            for (_, _, name, have) in &all {
                ranking.remove(name, *have);
            }
            prop_assert_eq!(ranking, HostRanking::default());
        }
    }
}
