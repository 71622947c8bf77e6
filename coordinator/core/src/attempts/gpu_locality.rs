//! Chooses free GPUs of one host that are close to each other: of as few NUMA nodes as possible, and there of as few
//! NVLink groups as possible. Among equal choices, the one that breaks up least: GPUs of groups and nodes of which
//! least is free, so that larger steps find the others whole. MIG instances of one GPU count as linked.
//!
//! GPUs that report no NUMA node count as those of one node. Pure, and the same for any order of the input.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::inventory::Gpu;

/// Number of GPUs from which a linked group is grown. Larger groups occur only if every GPU is linked with every
/// other one, where the start makes no difference.
const MAX_STARTS: usize = 16;

/// Positions in [`FreeGpus::gpus`], in ascending order.
type Positions = Vec<usize>;

/// Free GPUs by index, each with the others that are linked with it.
struct FreeGpus<'a> {
    gpus: Vec<&'a Gpu>,
    links: Vec<BTreeSet<usize>>,
}

/// A set of GPUs out of which others are chosen.
struct Group {
    /// Whether the step gets no GPUs of the same NUMA node otherwise.
    is_far: bool,
    members: Positions,
}

/// `wanted` of these GPUs, by index; all if there are not more. If possible, they are close to those of `beside` too.
pub(crate) fn choose_near<'a>(free: Vec<&'a Gpu>, beside: &[&Gpu], wanted: usize) -> Vec<&'a Gpu> {
    if wanted == 0 {
        return Vec::new();
    }
    let free = FreeGpus::new(free);
    let near: BTreeSet<Option<u32>> = beside.iter().map(|gpu| gpu.numa_node).collect();
    let mut nodes: BTreeMap<Option<u32>, Positions> = BTreeMap::new();
    for (position, gpu) in free.gpus.iter().enumerate() {
        nodes.entry(gpu.numa_node).or_default().push(position);
    }
    let nodes = nodes.into_iter().map(|(node, members)| Group {
        is_far: !near.contains(&node),
        members,
    });
    let chosen = free.choose(nodes.collect(), wanted, |members, wanted| {
        let linked = free.linked_groups(members).into_iter();
        let linked = linked.map(|members| Group {
            is_far: false,
            members,
        });
        free.choose(linked.collect(), wanted, |members, wanted| {
            free.most_linked(members, wanted)
        })
    });
    chosen.into_iter().map(|at| free.gpus[at]).collect()
}

impl<'a> FreeGpus<'a> {
    fn new(mut gpus: Vec<&'a Gpu>) -> Self {
        gpus.sort_by_key(|gpu| (gpu.index, &gpu.uuid));
        let mut peers: BTreeMap<&str, Positions> = BTreeMap::new();
        for (position, gpu) in gpus.iter().enumerate() {
            peers.entry(gpu.whole()).or_default().push(position);
        }
        let mut links = Vec::from_iter(gpus.iter().map(|_| BTreeSet::new()));
        for (one, gpu) in gpus.iter().enumerate() {
            let linked = gpu.nvlink.iter().map(|uuid| uuid.as_str());
            let linked = linked.chain([gpu.whole()]);
            for other in linked.filter_map(|uuid| peers.get(uuid)).flatten() {
                if *other != one {
                    links[one].insert(*other);
                    links[*other].insert(one);
                }
            }
        }
        Self { gpus, links }
    }

    /// `wanted` GPUs of as few groups as possible: the largest groups as a whole until one has the rest. In that one
    /// `inner` chooses, and of several such groups the one is taken where the chosen GPUs have the most links and the
    /// fewest other GPUs lose theirs.
    fn choose(
        &self,
        mut groups: Vec<Group>,
        wanted: usize,
        inner: impl Fn(&[usize], usize) -> Positions,
    ) -> Positions {
        let mut chosen = Positions::new();
        loop {
            let missing = wanted - chosen.len();
            let enough = groups.iter().filter(|group| group.members.len() >= missing);
            let best = enough.map(|group| {
                let part = inner(&group.members, missing);
                let rank = self.rank(&part, &group.members);
                (group.is_far, rank, group.members.len(), part)
            });
            if let Some((.., part)) = best.min() {
                chosen.extend(part);
                break;
            }
            let order = |group: &Group| (group.is_far, Reverse(group.members.len()));
            groups.sort_by_key(order);
            if groups.is_empty() {
                break;
            }
            chosen.extend(groups.remove(0).members);
        }
        chosen.sort_unstable();
        chosen
    }

    /// Order of choices, the best first: by linked groups, links between its GPUs, and links to others of `members`.
    fn rank(&self, part: &[usize], members: &[usize]) -> (usize, Reverse<usize>, usize) {
        let inside = self.links_between(part, part);
        let broken = self.links_between(part, members) - inside;
        (self.linked_groups(part).len(), Reverse(inside), broken)
    }

    fn links_between(&self, part: &[usize], others: &[usize]) -> usize {
        let others: BTreeSet<usize> = others.iter().copied().collect();
        let links = part.iter().map(|at| &self.links[*at]);
        links.map(|links| links.intersection(&others).count()).sum()
    }

    /// Divides GPUs into groups that are linked, directly or through each other.
    fn linked_groups(&self, members: &[usize]) -> Vec<Positions> {
        let mut left: BTreeSet<usize> = members.iter().copied().collect();
        let mut groups = Vec::new();
        while let Some(first) = left.pop_first() {
            let mut group = Vec::from([first]);
            let mut seen = 0;
            while let Some(at) = group.get(seen) {
                let next: Positions = self.links[*at].intersection(&left).copied().collect();
                left.retain(|other| !next.contains(other));
                group.extend(next);
                seen += 1;
            }
            group.sort_unstable();
            groups.push(group);
        }
        groups
    }

    /// `wanted` GPUs of a linked group with the most links between them. Grown from each of the first GPUs by the one
    /// that has the most links with those before it.
    fn most_linked(&self, members: &[usize], wanted: usize) -> Positions {
        if wanted >= members.len() {
            return members.to_vec();
        }
        let starts = members.iter().take(MAX_STARTS);
        let grown = starts.map(|start| {
            let part = self.grow(*start, members, wanted);
            (self.rank(&part, members), part)
        });
        grown.min().map(|(_, part)| part).unwrap_or_default()
    }

    fn grow(&self, start: usize, members: &[usize], wanted: usize) -> Positions {
        let mut part = Vec::from([start]);
        let mut left: BTreeMap<usize, usize> = members.iter().map(|at| (*at, 0)).collect();
        left.remove(&start);
        let mut last = start;
        while part.len() < wanted {
            for at in &self.links[last] {
                if let Some(links) = left.get_mut(at) {
                    *links += 1;
                }
            }
            let next = left
                .iter()
                .max_by_key(|(at, links)| (**links, Reverse(**at)));
            let Some((next, _)) = next else { break };
            last = *next;
            left.remove(&last);
            part.push(last);
        }
        part.sort_unstable();
        part
    }
}

#[cfg(test)]
mod tests;
