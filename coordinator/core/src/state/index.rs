//! What is derived from the kept facts, so that a submit, a finish or a heartbeat walks neither all steps nor all
//! nodes. `state/apply.rs` keeps it in step with each record; [`Index::of`] builds it from scratch, and an invariant
//! compares the two.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use sluice_common::amount::{Amounts, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::state::{NodeState, StepState};

use super::step::{Attempt, Part, PartPhase, Step};
use super::{HostUnits, Kept, Node, Queue, Ranks};

/// Everything derived. Entries that would be empty are absent, so that equal facts give equal indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    queues: BTreeMap<PoolName, Queue>,
    held: BTreeMap<NodeName, Held>,
    charged: BTreeMap<PoolName, Charged>,
    members: BTreeMap<PoolName, Members>,
    spots: BTreeMap<NodeName, Spot>,
    finished: BTreeMap<u64, StepId>,
}

/// What is granted on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    attempts: BTreeSet<AttemptId>,
    used: HostUnits,
    gpus: BTreeSet<String>,
}

/// What is granted of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Charged {
    attempts: BTreeSet<AttemptId>,
    used: Amounts,
}

/// The nodes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    names: BTreeSet<NodeName>,
    /// All of them, by capacity.
    pub(crate) known: Ranks,
    /// Those that take work, by capacity.
    pub(crate) ready: Ranks,
    /// Those that take work and may hold one more attempt, by what is free.
    pub(crate) free: Ranks,
}

/// Where a node stands in the ranks of its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spot {
    pool: PoolName,
    capacity: HostUnits,
    /// Whether it takes work.
    ready: bool,
    /// Where it takes work and may hold one more attempt.
    free: Option<HostUnits>,
}

impl Index {
    /// Builds it from scratch.
    pub(super) fn of(kept: &Kept) -> Self {
        let mut index = Self::default();
        for step in kept.steps.values() {
            if step.state == StepState::Queued {
                index.enqueue(step);
            }
            for attempt in &step.attempts {
                index.hold_again(step, attempt);
            }
            index.note_finished(step);
        }
        for node in kept.nodes.values() {
            index.place_node(node);
        }
        index
    }

    fn hold_again(&mut self, step: &Step, attempt: &Attempt) {
        let id = step.attempt_id(attempt.number);
        if !attempt.is_released() {
            self.charge(&id, step, attempt);
        }
        let parts = attempt.parts.iter();
        for part in parts.filter(|part| part.phase != PartPhase::Released) {
            self.hold(&id, step, part);
        }
    }

    pub(super) fn enqueue(&mut self, step: &Step) {
        let queue = self.queues.entry(step.pool()).or_default();
        queue.insert(
            step.place,
            step.id.clone(),
            HostUnits::of(&step.spec.request),
        );
    }

    pub(super) fn dequeue(&mut self, step: &Step) {
        let pool = step.pool();
        if let Some(queue) = self.queues.get_mut(&pool) {
            queue.remove(step.place, HostUnits::of(&step.spec.request));
            if queue.is_empty() {
                self.queues.remove(&pool);
            }
        }
    }

    /// Counts a part's units as granted on its host.
    pub(super) fn hold(&mut self, id: &AttemptId, step: &Step, part: &Part) {
        let held = self.held.entry(part.node.clone()).or_default();
        if held.attempts.insert(id.clone()) {
            held.used = held.used.plus(HostUnits::of(&step.spec.request));
            held.gpus.extend(part.gpus.iter().cloned());
        }
    }

    /// Gives a part's units back to its host.
    pub(super) fn release(&mut self, id: &AttemptId, step: &Step, part: &Part) {
        let Some(held) = self.held.get_mut(&part.node) else {
            return;
        };
        if held.attempts.remove(id) {
            held.used = held.used.less(HostUnits::of(&step.spec.request));
            for gpu in &part.gpus {
                held.gpus.remove(gpu);
            }
        }
        if held.attempts.is_empty() {
            self.held.remove(&part.node);
        }
    }

    /// Counts an attempt's units as granted of its pool.
    pub(super) fn charge(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt) {
        let charged = self.charged.entry(attempt.pool.clone()).or_default();
        if charged.attempts.insert(id.clone()) {
            charged.used.add(&cost(step, attempt));
        }
    }

    /// Gives an attempt's units back to its pool.
    pub(super) fn refund(&mut self, id: &AttemptId, step: &Step, attempt: &Attempt) {
        let Some(charged) = self.charged.get_mut(&attempt.pool) else {
            return;
        };
        if charged.attempts.remove(id) {
            charged.used.take(&cost(step, attempt));
        }
        if charged.attempts.is_empty() {
            self.charged.remove(&attempt.pool);
        }
    }

    /// Puts a step that is over and holds nothing in the order of forgetting.
    pub(super) fn note_finished(&mut self, step: &Step) {
        if let Some(finished) = step.finished.filter(|_| !step.holds_units()) {
            self.finished.insert(finished.seq, step.id.clone());
        }
    }

    pub(super) fn drop_finished(&mut self, seq: u64) {
        self.finished.remove(&seq);
    }

    /// Ranks a node anew, after a change of it or of what is granted on it.
    pub(super) fn place_node(&mut self, node: &Node) {
        if let Some(old) = self.spots.remove(&node.name) {
            self.leave_spot(&node.name, &old);
        }
        let capacity = HostUnits::of(&node.capacity());
        let ready = node.state == NodeState::Ready;
        let has_room = self.holding_on(&node.name) < MAX_ATTEMPTS_PER_NODE;
        let free = (ready && has_room).then(|| self.free_on(node, capacity));
        let members = self.members.entry(node.pool.clone()).or_default();
        members.names.insert(node.name.clone());
        members.known.insert(node.name.clone(), capacity);
        if ready {
            members.ready.insert(node.name.clone(), capacity);
        }
        if let Some(free) = free {
            members.free.insert(node.name.clone(), free);
        }
        let pool = node.pool.clone();
        let spot = Spot {
            pool,
            capacity,
            ready,
            free,
        };
        self.spots.insert(node.name.clone(), spot);
    }

    fn leave_spot(&mut self, node: &NodeName, old: &Spot) {
        let Some(members) = self.members.get_mut(&old.pool) else {
            return;
        };
        members.names.remove(node);
        members.known.remove(node, old.capacity);
        if old.ready {
            members.ready.remove(node, old.capacity);
        }
        if let Some(free) = old.free {
            members.free.remove(node, free);
        }
        if members.names.is_empty() {
            self.members.remove(&old.pool);
        }
    }

    /// GPUs are counted one by one: one that vanished while it was granted takes nothing from those that are there.
    fn free_on(&self, node: &Node, capacity: HostUnits) -> HostUnits {
        let gpus = node.inventory.gpus.iter();
        let free = gpus.filter(|gpu| !self.is_granted(&node.name, &gpu.uuid));
        capacity
            .less(self.used_on(&node.name))
            .with_gpus(free.count() as u64)
    }

    pub(crate) fn is_granted(&self, node: &NodeName, gpu: &str) -> bool {
        let held = self.held.get(node);
        held.is_some_and(|held| held.gpus.contains(gpu))
    }

    pub(crate) fn queue(&self, pool: &PoolName) -> Option<&Queue> {
        self.queues.get(pool)
    }

    pub(crate) fn queues(&self) -> &BTreeMap<PoolName, Queue> {
        &self.queues
    }

    pub(crate) fn members(&self, pool: &PoolName) -> Option<&Members> {
        self.members.get(pool)
    }

    pub(crate) fn finished(&self) -> &BTreeMap<u64, StepId> {
        &self.finished
    }

    pub(super) fn names_of<'a>(
        &'a self,
        pool: &PoolName,
    ) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        let members = self.members.get(pool).into_iter();
        members.flat_map(|members| &members.names)
    }

    pub(crate) fn attempts_on<'a>(
        &'a self,
        node: &NodeName,
    ) -> impl Iterator<Item = &'a AttemptId> + use<'a> {
        let held = self.held.get(node).into_iter();
        held.flat_map(|held| &held.attempts)
    }

    /// How many attempts hold units on a node: at most [`MAX_ATTEMPTS_PER_NODE`], beyond which the host refuses.
    fn holding_on(&self, node: &NodeName) -> usize {
        self.held.get(node).map_or(0, |held| held.attempts.len())
    }

    pub(crate) fn used_on(&self, node: &NodeName) -> HostUnits {
        self.held.get(node).map_or(HostUnits::default(), |h| h.used)
    }

    pub(super) fn used_of(&self, pool: &PoolName) -> Amounts {
        let charged = self.charged.get(pool);
        charged.map_or_else(Amounts::new, |charged| charged.used.clone())
    }

    pub(super) fn holding_of(&self, pool: &PoolName) -> usize {
        let charged = self.charged.get(pool);
        charged.map_or(0, |charged| charged.attempts.len())
    }
}

/// What an attempt takes of its pool: every key on each host, `step_run` once.
fn cost(step: &Step, attempt: &Attempt) -> Amounts {
    let hosts = attempt.parts.len() as u64;
    let request = step.spec.request.iter();
    request
        .map(|(key, n)| match key.as_str() {
            STEP_RUN => (key.clone(), n),
            _ => (key.clone(), n.saturating_mul(hosts)),
        })
        .collect()
}
