//! Chooses the GPUs of a host for a step. The scheduler has decided how many; this takes free ones of the class that the
//! step asks for (whole, or slices of one profile), so that reservations of others still hold and scarce kinds stay for
//! steps that can use nothing else.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::inventory::Gpu;
use sluice_scheduler::{GpuKind, GpusByKind, HardwareFilter, HostResources, Matching};

use crate::attempts::gpu_locality::choose_near;
use crate::model::node::Node;
use crate::model::placement::Placement;
use crate::state::State;

/// Free GPUs of a node, by kind.
type FreeByKind<'a> = BTreeMap<GpuKind, Vec<&'a Gpu>>;

/// Chooses GPUs of `node` for a step. The GPUs are of one kind if one has enough
/// beyond what is promised to others: the kind for which fewest frozen steps wait, then the one of the fewest
/// platforms, then the one that has them on the fewest NUMA nodes, then the one with the fewest left. Otherwise they are
/// of several kinds, so that the rest serves the others. If too few are free beyond a head's nomination, the step is a
/// backfill, and firm nominations of others still hold. GPUs for which frozen steps wait come last; of the others, those
/// that are close to each other (`gpu_locality.rs`).
pub(crate) fn place(
    state: &State,
    node: &Node,
    step: &StepId,
    request: HostResources,
    filter: HardwareFilter<'_>,
) -> Placement {
    let wanted = request.mgpu();
    let mut of = free_gpus(state, node);
    of.retain(|kind, _| filter.matches(kind));
    let mut chosen: Vec<&Gpu> = Vec::new();
    if wanted > 0 {
        for (kind, mgpu) in share(state, node, step, &of, wanted) {
            let many = usize::try_from(mgpu / kind.class.mgpu()).unwrap_or(usize::MAX);
            let free = of.remove(&kind).unwrap_or_default();
            choose(state, node, free, many, &mut chosen);
        }
    }
    Placement {
        node: node.name.clone(),
        gpus: chosen.into_iter().map(|gpu| gpu.uuid.clone()).collect(),
    }
}

/// Adds `wanted` of these GPUs to the chosen ones.
fn choose<'a>(
    state: &State,
    node: &Node,
    free: Vec<&'a Gpu>,
    wanted: usize,
    chosen: &mut Vec<&'a Gpu>,
) {
    let free = free.into_iter().map(|gpu| (&gpu.uuid, gpu));
    let mut missing = wanted;
    for gpus in state.scheduler().gpus_by_wait(&node.name, free) {
        let many = missing.min(gpus.len());
        chosen.extend(choose_near(gpus, chosen, many));
        missing -= many;
    }
}

/// Thousandths of a GPU to take of each kind.
fn share(
    state: &State,
    node: &Node,
    step: &StepId,
    of: &FreeByKind<'_>,
    wanted: u64,
) -> GpusByKind {
    if let [kind] = &state.index().hardware(node).gpus.keys().collect::<Vec<_>>()[..] {
        return GpusByKind::from([((*kind).clone(), wanted)]);
    }
    let all = free_gpus(state, node);
    let all: GpusByKind = all
        .iter()
        .map(|(kind, free)| (kind.clone(), mgpu_of(kind, free.len())))
        .collect();
    let promised = state.scheduler().reserved_on(&node.name, step);
    let awaited = state.scheduler().awaited_gpus(&node.name);
    let waited = |kind: &GpuKind, free: &Vec<&Gpu>| {
        let waited = free
            .iter()
            .filter(|gpu| awaited.get(&gpu.uuid) == Some(&false));
        let others = free.len() - waited.count();
        wanted.saturating_sub(mgpu_of(kind, others))
    };
    let mut short = None;
    for reserved in promised {
        let rest = || reserved.match_gpus(&all, HardwareFilter::ANY).0;
        let alone = |kind: &GpuKind| rest().assign(only(&all, |other| other == kind), wanted);
        let enough = of.iter().filter(|(kind, _)| alone(kind) == wanted);
        let best = enough.min_by_key(|(kind, free)| {
            let nodes = numa_nodes(state, node, free, wanted / kind.class.mgpu());
            (waited(kind, free), kind.platforms.len(), nodes, free.len())
        });
        if let Some((kind, _)) = best {
            return GpusByKind::from([(kind.clone(), wanted)]);
        }
        let (share, missing) = of_several(rest(), &all, of, wanted);
        if missing == 0 {
            return share;
        }
        short = Some((share, missing));
    }
    let (share, missing) = short.unwrap_or_default();
    filled(share, missing, of)
}

/// Shares over all visible kinds that leave others what they are promised, and how much is missing.
fn of_several(
    mut rest: Matching,
    all: &GpusByKind,
    of: &FreeByKind<'_>,
    wanted: u64,
) -> (GpusByKind, u64) {
    let missing = wanted - rest.assign(only(all, |kind| of.contains_key(kind)), wanted);
    let assigned = all
        .keys()
        .cloned()
        .zip(rest.last_assigned().iter().copied());
    (assigned.filter(|(_, many)| *many > 0).collect(), missing)
}

/// Completes a share with any free GPUs.
fn filled(mut share: GpusByKind, mut missing: u64, of: &FreeByKind<'_>) -> GpusByKind {
    for (kind, free) in of {
        let given = share.entry(kind.clone()).or_default();
        let more = missing.min(mgpu_of(kind, free.len()).saturating_sub(*given));
        *given += more;
        missing -= more;
    }
    share
}

/// Thousandths of a GPU that a number of GPUs of a kind counts for.
fn mgpu_of(kind: &GpuKind, gpus: usize) -> u64 {
    kind.class.mgpu().saturating_mul(gpus as u64)
}

fn only(all: &GpusByKind, takes: impl Fn(&GpuKind) -> bool) -> Vec<bool> {
    all.keys().map(takes).collect()
}

/// Number of NUMA nodes on which a step gets `wanted` of these GPUs.
fn numa_nodes(state: &State, node: &Node, free: &[&Gpu], wanted: u64) -> usize {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut chosen = Vec::new();
    choose(state, node, free.to_vec(), wanted, &mut chosen);
    let nodes: BTreeSet<Option<u32>> = chosen.iter().map(|gpu| gpu.numa_node).collect();
    nodes.len()
}

/// The free and fit GPUs of a node, by kind.
pub(crate) fn free_gpus<'a>(state: &State, node: &'a Node) -> FreeByKind<'a> {
    let mut of = FreeByKind::new();
    let hardware = state.index().hardware(node);
    for gpu in &node.inventory.gpus {
        let free = state.is_free(node, &gpu.uuid);
        if let Some(kind) = hardware.kind_of(&gpu.uuid).filter(|_| free) {
            of.entry(kind.clone()).or_default().push(gpu);
        }
    }
    of
}
