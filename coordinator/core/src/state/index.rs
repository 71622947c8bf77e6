//! Indexes over the stored state, so that a submit, a finish or a heartbeat goes through neither all steps nor all
//! nodes. `state/apply.rs` updates them with each record; [`Index::of`] builds them from scratch, and an invariant
//! compares the two.

mod domains;
mod hardware;
mod requests;
mod units;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, MEMORY_MB, MGPU_A_GPU};
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::inventory::Capability;
use sluice_common::label::LabelKey;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::platform::spec::PlatformSpecs;
use sluice_common::state::StepState;
use sluice_scheduler::{
    FreezeState, Hardware, HostInventory, HostResources, Nomination, Run, Scheduler,
};

use self::requests::avoided_hosts;
pub(crate) use self::requests::request;
use super::StoredState;
use super::arrays::{ArrayIndex, array_index_of};
use super::dependents::Dependents;
use super::inside::AllocationIndex;
use super::load::SubjectLoads;
use crate::model::carving::CarveRequest;
use crate::model::node::Node;
use crate::model::pool::Pool;
use crate::model::step::{Attempt, Part, PartPhase, Step, SuspensionPhase};

/// All indexes. Empty entries are absent, so that equal facts give equal indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    scheduler: Scheduler,
    held: BTreeMap<NodeName, HostHoldings>,
    /// The nodes at each address. One machine can be several nodes, as in a trial.
    addresses: BTreeMap<String, BTreeSet<NodeName>>,
    finished: BTreeMap<u64, StepId>,
    pub(super) deleted: BTreeSet<StepId>,
    by_state: BTreeMap<StepState, u64>,
    /// The load of each subject.
    loads: SubjectLoads,
    pub(crate) dependents: Dependents,
    pub(crate) arrays: ArrayIndex,
    pub(crate) inside: AllocationIndex,
    /// Required capabilities by pool.
    required: BTreeMap<PoolName, BTreeSet<Capability>>,
    /// Declared platforms by pool.
    platforms: BTreeMap<PoolName, PlatformSpecs>,
    /// Platforms of each node and its GPUs.
    hardware: BTreeMap<NodeName, Hardware>,
    /// Labels of the levels of the topology, the widest first.
    levels: Vec<LabelKey>,
    /// Path of the narrowest domain of each node that is in one.
    domain_paths: BTreeMap<NodeName, Vec<String>>,
    /// GPUs of each node that platforms want to be cut otherwise, by UUID.
    wishes: BTreeMap<NodeName, BTreeMap<String, CarveRequest>>,
}

/// The attempts that hold resources on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostHoldings {
    attempts: BTreeSet<AttemptId>,
    used: HostResources,
    gpus: BTreeMap<String, AttemptId>,
    /// Number of those that run inside an allocation, which holds the resources.
    inside: usize,
}

impl Index {
    /// Builds the indexes from scratch.
    pub(super) fn of(stored: &StoredState) -> Self {
        let mut index = Self::default();
        index.put_topology(&stored.topology.terms);
        for pool in stored.pools.values() {
            index.put_pool(pool);
        }
        // Before the attempts, so that these can be counted on the nodes; and again after, for resources that the
        // nodes no longer have.
        for node in stored.nodes.values() {
            index.settle_node(node);
            index.place_node(node);
        }
        for step in stored.steps.values() {
            index.add_step(step);
        }
        index.dependents.note_ends(&stored.steps);
        index.arrays = array_index_of(stored);
        index.deleted = stored.deleted.values().cloned().collect();
        for node in stored.nodes.values() {
            index.place_node(node);
        }
        for (step, nomination) in &stored.nominations {
            index.nominate(step, nomination);
        }
        index.scheduler.set_clock(stored.clock);
        index.scheduler.set_fair_uses(&stored.fair_uses);
        index.scheduler.set_lost_work(&stored.lost_work);
        index
    }

    /// Adds all entries of a step except its nomination.
    pub(super) fn add_step(&mut self, step: &Step) {
        self.count(None, Some(step.state));
        self.note_submitted(step);
        self.dependents.add(step);
        self.inside.follow(step);
        if step.is_schedulable() {
            self.enqueue(step);
        }
        for attempt in &step.attempts {
            self.hold_again(step, attempt);
        }
        self.note_finished(step);
    }

    /// Removes all entries of a step. Its nomination was removed before.
    pub(super) fn remove_step(&mut self, step: &Step) {
        self.count(Some(step.state), None);
        self.dequeue(step);
        self.dependents.remove(step);
        self.inside.remove(step);
        for attempt in &step.attempts {
            let id = step.attempt_id(attempt.number);
            self.drop_attempt(&id, step, attempt);
        }
        self.drop_finished(step);
        self.drop_submitted(step);
    }

    fn hold_again(&mut self, step: &Step, attempt: &Attempt) {
        let id = step.attempt_id(attempt.number);
        self.hold(&id, step, attempt);
        if step.state == StepState::Suspended && !step.held {
            self.scheduler.await_resumption(&id);
        }
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub(super) fn put_pool(&mut self, pool: &Pool) {
        self.put_terms(pool);
        for (subject, binding) in &pool.policies {
            let policy = binding.policy.clone();
            self.scheduler.put_policy(&pool.name, subject, policy);
        }
    }

    /// Updates the terms of a pool without its policies. If it requires other capabilities than before, its nodes
    /// must be placed again.
    pub(super) fn put_terms(&mut self, pool: &Pool) {
        self.scheduler.put_pool(&pool.name, pool.terms());
        if let Some((host, inventory)) = pool.in_place_of_hosts() {
            self.scheduler.put_host(&host, &pool.name, inventory, true);
        }
        self.platforms.remove(&pool.name);
        if !pool.platforms.is_empty() {
            self.platforms.insert(pool.name.clone(), pool.declared());
        }
        self.required.remove(&pool.name);
        if !pool.spec.require.is_empty() {
            self.required
                .insert(pool.name.clone(), pool.spec.require.clone());
        }
    }

    pub(super) fn remove_pool(&mut self, pool: &PoolName) {
        self.required.remove(pool);
        self.platforms.remove(pool);
        self.scheduler.remove_host(&NodeName::of_pool(pool));
        self.scheduler.remove_pool(pool);
    }

    /// The required capabilities that a node lacks.
    pub(crate) fn missing_capabilities(&self, node: &Node) -> BTreeSet<Capability> {
        let required = self.required.get(&node.pool);
        required.map_or_else(BTreeSet::new, |required| {
            node.inventory.missing_capabilities(required)
        })
    }

    pub(super) fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    pub(super) fn enqueue(&mut self, step: &Step) {
        let mut request = request(step);
        // Irrelevant for a running step.
        request.avoided_hosts = avoided_hosts(step);
        self.scheduler.enqueue(request);
    }

    pub(super) fn dequeue(&mut self, step: &Step) {
        self.scheduler.dequeue(&step.id);
    }

    /// Adds a nomination. Runs that hold nothing any more are not awaited.
    pub(super) fn nominate(&mut self, step: &StepId, nomination: &Nomination) {
        let mut nomination = nomination.clone();
        nomination
            .awaits
            .retain(|id| self.scheduler.run(id).is_some());
        self.scheduler.nominate(step, nomination);
    }

    /// Counts an attempt's resources as granted, on its hosts and in its pool.
    pub(super) fn hold(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt) {
        for part in &attempt.parts {
            if part.phase != PartPhase::Released {
                self.hold_part(id, step, attempt, part);
            }
        }
        self.grant(id, step, attempt);
    }

    /// Counts again what an attempt holds after a change of it.
    pub(super) fn hold_changed(
        &mut self,
        id: &AttemptId,
        step: &Step,
        before: &Attempt,
        after: &Attempt,
    ) {
        self.drop_attempt(id, step, before);
        self.hold(id, step, after);
    }

    /// Removes an attempt that holds nothing any more.
    fn drop_attempt(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt) {
        for part in &attempt.parts {
            self.drop_part(id, step, attempt, part);
        }
        self.scheduler.detach_run(id);
    }

    /// Counts an attempt's resources as granted, as far as its parts still hold them.
    fn grant(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt) {
        let held = attempt
            .parts
            .iter()
            .filter(|part| part.phase != PartPhase::Released);
        let holding: BTreeSet<NodeName> = held.map(|part| part.node.clone()).collect();
        // The scheduler counts the allocation, and not what runs inside it.
        if holding.is_empty() || step.spec.inside.is_some() {
            return;
        }
        let mut request = request(step);
        if attempt.was_frozen {
            request.time_limit = None;
        }
        let suspension = attempt.suspension.as_ref();
        let frozen = suspension.and_then(|it| match it.phase {
            SuspensionPhase::Suspending => Some(FreezeState::freezing(&request, it.moved_mb)),
            SuspensionPhase::Suspended => Some(FreezeState::frozen(&request, it.moved_mb)),
            SuspensionPhase::Resuming => None,
        });
        let gpus = attempt.parts.iter().map(|part| {
            let gpus = part.gpus.iter().cloned();
            (part.node.clone(), gpus.collect())
        });
        let run = Run {
            gpus: gpus.collect(),
            frozen,
            request,
            pool: attempt.pool.clone(),
            holding,
            granted: attempt.allocated_at,
            started: attempt.began_at,
            saved: attempt.saved_at,
            stopping: attempt.stopping.is_some() || attempt.has_ended(),
            backfill: attempt.backfill.clone(),
        };
        self.scheduler.hold(id, run);
    }

    /// Counts a part's resources as granted on its host.
    fn hold_part(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt, part: &Part) {
        let held = self.held.entry(part.node.clone()).or_default();
        if held.attempts.insert(id.clone()) {
            held.used = held.used.plus(held_units(step, attempt));
            held.inside += usize::from(step.spec.inside.is_some());
            if !attempt.is_frozen() && step.spec.inside.is_none() {
                let gpus = part.gpus.iter();
                held.gpus.extend(gpus.map(|gpu| (gpu.clone(), id.clone())));
            }
        }
    }

    /// Frees a part's resources on its host.
    pub(super) fn release(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt, part: &Part) {
        self.scheduler.release(id, &part.node);
        self.drop_part(id, step, attempt, part);
    }

    fn drop_part(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt, part: &Part) {
        let Some(held) = self.held.get_mut(&part.node) else {
            return;
        };
        if held.attempts.remove(id) {
            held.used = held.used.less(held_units(step, attempt));
            held.inside -= usize::from(step.spec.inside.is_some());
            if !attempt.is_frozen() && step.spec.inside.is_none() {
                for gpu in &part.gpus {
                    held.gpus.remove(gpu);
                }
            }
        }
        if held.attempts.is_empty() {
            self.held.remove(&part.node);
        }
    }

    /// Adds a step to the load of its subject, in which it stays until it is forgotten.
    pub(super) fn note_submitted(&mut self, step: &Step) {
        self.loads.add(&step.spec.subject, step.spec.weight());
    }

    /// Removes a step from the load of its subject. The step must not be in the order of forgetting.
    pub(super) fn drop_submitted(&mut self, step: &Step) {
        self.loads.remove(&step.spec.subject, step.spec.weight());
    }

    /// Adds a step that is over and holds nothing to the order of forgetting.
    pub(super) fn note_finished(&mut self, step: &Step) {
        if let Some(finished) = step.finished.filter(|_| !step.holds_units()) {
            let before = self.finished.insert(finished.seq, step.id.clone());
            if before.is_none() {
                let (subject, weight) = (&step.spec.subject, step.spec.weight());
                self.loads.end(subject, weight, &step.id, finished.seq);
            }
        }
    }

    pub(super) fn drop_finished(&mut self, step: &Step) {
        let Some(finished) = step.finished else {
            return;
        };
        if self.finished.remove(&finished.seq).is_some() {
            let (subject, weight) = (&step.spec.subject, step.spec.weight());
            self.loads.open_again(subject, weight, finished.seq);
        }
    }

    pub(super) fn update_weight(&mut self, step: &Step, before: u64) {
        let seq = step.finished.map(|it| it.seq);
        let weight = step.spec.weight();
        self.loads
            .update_weight(&step.spec.subject, before, weight, seq);
    }

    pub(crate) fn loads(&self) -> &SubjectLoads {
        &self.loads
    }

    /// Updates a node in the scheduler after a change of it or of its granted resources.
    ///
    /// GPUs are counted one by one: one that vanished while it was granted, or is not fit to be granted again, takes
    /// nothing from those that are there and fit, and its release gives nothing back.
    pub(super) fn place_node(&mut self, node: &Node) {
        let held = self.held.get(&node.name);
        let inside = held.map_or(0, |held| held.inside.min(MAX_ATTEMPTS_PER_NODE));
        let steps = (MAX_ATTEMPTS_PER_NODE - inside) as u64;
        let capacity = HostResources::from_amounts(&node.capacity()).with_steps(steps);
        let gpus = node.inventory.gpus.iter();
        let is_fit = |unit: &str| node.is_fit(unit) && self.blocker(node, unit).is_none();
        let (fit, unfit): (Vec<_>, Vec<_>) = gpus.partition(|gpu| is_fit(&gpu.uuid));
        let fit: BTreeSet<&str> = fit.iter().map(|gpu| gpu.uuid.as_str()).collect();
        let mut lost_by_run: BTreeMap<AttemptId, HostResources> = BTreeMap::new();
        let held = self.held.get(&node.name).into_iter();
        for (gpu, id) in held.flat_map(|held| &held.gpus) {
            if !fit.contains(gpu.as_str()) {
                let of_it = lost_by_run.entry(id.clone()).or_default();
                let run = self.scheduler.run(id);
                let mgpu = run.map_or(MGPU_A_GPU, |run| run.request.class.mgpu());
                *of_it = of_it.plus(HostResources::default().with_mgpu(mgpu));
            }
        }
        let size = HostInventory {
            capacity,
            hardware: self.hardware(node).clone(),
            unfit: HostResources::default()
                .with_mgpu(unfit.iter().map(|gpu| gpu.class().mgpu()).sum()),
            gpus_unknown: node.inventory.gpus_unknown,
            unfit_gpus: unfit.iter().map(|gpu| gpu.uuid.clone()).collect(),
            domain_path: self.domain_path(&node.name).to_vec(),
            image_forms: node.inventory.image_forms(),
            lost_by_run,
        };
        let open = node.is_open() && self.missing_capabilities(node).is_empty();
        self.scheduler.put_host(&node.name, &node.pool, size, open);
    }

    /// Adds the address and the platforms of a node.
    pub(super) fn settle_node(&mut self, node: &Node) {
        self.sort_node(node);
        let at_address = self.addresses.entry(String::from(node.address()));
        at_address.or_default().insert(node.name.clone());
    }

    /// Removes the address and the platforms of a node.
    pub(super) fn unsettle_node(&mut self, node: &Node) {
        self.hardware.remove(&node.name);
        self.domain_paths.remove(&node.name);
        self.wishes.remove(&node.name);
        let Some(at_address) = self.addresses.get_mut(node.address()) else {
            return;
        };
        at_address.remove(&node.name);
        if at_address.is_empty() {
            self.addresses.remove(node.address());
        }
    }

    /// The nodes with this address.
    pub(crate) fn nodes_at<'a>(
        &'a self,
        address: &str,
    ) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        self.addresses.get(address).into_iter().flatten()
    }

    /// Counts a step that went from one state to another; `None` means that it is not remembered.
    pub(super) fn count(&mut self, from: Option<StepState>, to: Option<StepState>) {
        if let Some(count) = from.and_then(|from| self.by_state.get_mut(&from)) {
            *count -= 1;
        }
        if let Some(to) = to {
            *self.by_state.entry(to).or_default() += 1;
        }
        self.by_state.retain(|_, count| *count > 0);
    }

    pub(super) fn by_state(&self) -> &BTreeMap<StepState, u64> {
        &self.by_state
    }

    pub(crate) fn finished(&self) -> &BTreeMap<u64, StepId> {
        &self.finished
    }

    pub(crate) fn attempts_on<'a>(
        &'a self,
        node: &NodeName,
    ) -> impl Iterator<Item = &'a AttemptId> + use<'a> {
        let held = self.held.get(node).into_iter();
        held.flat_map(|held| &held.attempts)
    }

    pub(crate) fn used_on(&self, node: &NodeName) -> HostResources {
        self.held
            .get(node)
            .map_or(HostResources::default(), |h| h.used)
    }

    pub(super) fn used_of(&self, pool: &PoolName) -> Amounts {
        let pool = self.scheduler.pool(pool);
        pool.map_or_else(Amounts::new, |pool| pool.used().clone())
    }
}

/// The resources that an attempt holds on each of its hosts: while it is frozen, its memory and the space for what is
/// moved from its GPUs; nothing inside an allocation, which holds them.
pub(crate) fn held_units(step: &Step, attempt: &Attempt) -> HostResources {
    if step.spec.inside.is_some() {
        return HostResources::default();
    }
    let whole = HostResources::from_amounts(&step.spec.request);
    let moved = attempt.suspension.as_ref().map_or(0, |it| it.moved_mb);
    let moved = HostResources::from_amounts(&Amounts::new().with(MEMORY_MB, moved));
    match attempt.is_frozen() {
        true => {
            let memory = step.spec.request.get(MEMORY_MB);
            HostResources::from_amounts(&Amounts::new().with(MEMORY_MB, memory)).plus(moved)
        }
        false => whole.plus(moved),
    }
}
