//! The state, as the fold of its records: [`State::apply`] is the only way it changes. This file reads it;
//! `state/apply.rs` changes it, `state/index.rs` derives indexes so that no decision goes through all of it.
//!
//! A snapshot is this type in JSON. Indexes are not stored; they are rebuilt when a snapshot is read.

pub(crate) mod access_snapshot;
mod apply;
pub(crate) mod granted;
mod index;
mod load;
mod recovery;
mod rollback;

use core::ops::Bound;

use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize, Serializer};

use sluice_common::amount::Amounts;
use sluice_common::environment::Environment;
use sluice_common::id::{
    AttemptId, Epoch, NodeName, PlatformName, PoolName, StepId, TemplateName, ValidationName,
};
use sluice_common::inventory::Capability;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_scheduler::{Nomination, Scheduler};

use crate::model::access::Access;
use crate::model::admission::Admission;
use crate::model::cluster::Cluster;
use crate::model::node::Node;
use crate::model::pool::Pool;
use crate::model::recovery::Recovery;
use crate::model::step::Step;
use crate::model::template::StoredTemplate;
use crate::model::validation::Validation;

pub use apply::{ApplyError, Mismatch};

pub(crate) use index::{Index, request};
pub(crate) use rollback::Rollback;

/// Everything that outlives the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "StoredState")]
pub struct State {
    stored: StoredState,
    index: Index,
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredState {
    /// The number of the last record that was applied.
    seq: u64,
    epoch: Option<Epoch>,
    /// Terms of the coordinator that began last.
    #[serde(default)]
    lost_after: Span,
    /// Until then, leases that an earlier coordinator gave may keep attempts running on silent nodes.
    #[serde(default)]
    no_loss_before: Time,
    /// While the store is of an earlier time than the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery: Option<Recovery>,
    pools: BTreeMap<PoolName, Pool>,
    /// Terms of the cluster as a whole.
    #[serde(default)]
    cluster: Cluster,
    /// Documents of assertions, by name.
    #[serde(default)]
    validations: BTreeMap<ValidationName, Validation>,
    /// What pools may lay under steps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    templates: BTreeMap<TemplateName, StoredTemplate>,
    /// Who may do what.
    #[serde(default, skip_serializing_if = "Access::is_empty")]
    access: Access,
    /// Places that steps are promised which cannot start yet.
    #[serde(default)]
    nominations: BTreeMap<StepId, Nomination>,
    nodes: BTreeMap<NodeName, Node>,
    steps: BTreeMap<StepId, Step>,
    /// Who may have a certificate.
    #[serde(default)]
    admission: Admission,
}

impl From<StoredState> for State {
    fn from(stored: StoredState) -> Self {
        let index = Index::of(&stored);
        Self { stored, index }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.stored.serialize(serializer)
    }
}

impl State {
    /// The number of the last record that was applied; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.stored.seq
    }

    /// The epoch that was begun last.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.stored.epoch.as_ref()
    }

    /// No node may be called lost before: leases of earlier coordinators, under terms that may have been longer, may
    /// still run.
    pub fn no_loss_before(&self) -> Time {
        self.stored.no_loss_before
    }

    /// Who may have a certificate.
    pub fn admission(&self) -> &Admission {
        &self.stored.admission
    }

    /// The terms of the cluster as a whole.
    pub fn cluster(&self) -> &Cluster {
        &self.stored.cluster
    }

    /// Every document of assertions, by name.
    pub fn validations(&self) -> &BTreeMap<ValidationName, Validation> {
        &self.stored.validations
    }

    /// Every template, by name.
    pub fn templates(&self) -> &BTreeMap<TemplateName, StoredTemplate> {
        &self.stored.templates
    }
    /// Who may do what.
    pub fn access(&self) -> &Access {
        &self.stored.access
    }

    /// Every pool, by name.
    pub fn pools(&self) -> &BTreeMap<PoolName, Pool> {
        &self.stored.pools
    }

    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.stored.pools.get(name)
    }

    /// Every remembered node, lost ones included, by name.
    pub fn nodes(&self) -> &BTreeMap<NodeName, Node> {
        &self.stored.nodes
    }

    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.stored.nodes.get(name)
    }

    /// Every remembered step, by id.
    pub fn steps(&self) -> &BTreeMap<StepId, Step> {
        &self.stored.steps
    }

    pub fn step(&self, id: &StepId) -> Option<&Step> {
        self.stored.steps.get(id)
    }

    /// Gives steps the values of their variables back, which are kept apart from what is written of them.
    ///
    /// The first step for whose variables there is nothing, or other ones.
    ///
    /// # Errors
    /// Those of whoever keeps them.
    pub fn give_environments<E>(
        &mut self,
        mut kept: impl FnMut(&StepId) -> Result<Option<Environment>, E>,
    ) -> Result<Option<StepId>, E> {
        for (id, step) in &mut self.stored.steps {
            if step.spec.env.is_empty() {
                continue;
            }
            let before = step.spec.weight();
            match kept(id)? {
                Some(values) if values.keys().eq(step.spec.env.keys()) => {
                    step.spec.env = values;
                    self.index.update_weight(step, before);
                }
                Some(_) | None => return Ok(Some(id.clone())),
            }
        }
        Ok(None)
    }

    /// The remembered steps whose [`Step::place`] is after `place`, those first that were submitted first.
    pub fn steps_after(&self, place: u64) -> impl Iterator<Item = &Step> {
        let after = (Bound::Excluded(place), Bound::Unbounded);
        let later = self.index.in_order().range(after);
        later.filter_map(|(_, id)| self.stored.steps.get(id))
    }

    /// The nodes that joined a pool, by name.
    pub fn nodes_of<'a>(&'a self, pool: &PoolName) -> impl Iterator<Item = &'a Node> + use<'a> {
        let hosts = self.scheduler().pool(pool).into_iter();
        let names = hosts.flat_map(|pool| pool.nodes());
        names.filter_map(|name| self.stored.nodes.get(name))
    }

    /// What its pool requires of a node and it does not have. While there is any such thing it gets no new work.
    pub fn missing_capabilities(&self, node: &Node) -> BTreeSet<Capability> {
        self.index.missing_capabilities(node)
    }

    /// Whether a node gets new work now.
    pub fn takes_work(&self, node: &Node) -> bool {
        node.is_open() && self.missing_capabilities(node).is_empty()
    }

    /// The steps that wait for a pool, those first that go first.
    pub fn queued_in<'a>(&'a self, pool: &PoolName) -> impl Iterator<Item = &'a StepId> + use<'a> {
        self.scheduler().in_order(pool).into_iter()
    }

    /// Number of steps wait for a pool.
    pub fn queue_len(&self, pool: &PoolName) -> usize {
        self.scheduler().pool(pool).map_or(0, |pool| pool.waiting())
    }

    /// The attempts that hold resources on a node, by id; some of them may have ended.
    pub fn attempts_on<'a>(
        &'a self,
        node: &NodeName,
    ) -> impl Iterator<Item = &'a AttemptId> + use<'a> {
        self.index.attempts_on(node)
    }

    /// The nodes that are reached at an address.
    pub fn nodes_at<'a>(&'a self, address: &str) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        self.index.nodes_at(address)
    }

    /// What is granted on a node, in resources of the keys that hosts bound. It may be above its capacity where
    /// something of it vanished while it was granted.
    pub fn used_on(&self, node: &NodeName) -> Amounts {
        self.index.used_on(node).amounts()
    }

    /// What is granted of a pool, over all keys.
    pub fn used_of(&self, pool: &PoolName) -> Amounts {
        self.index.used_of(pool)
    }

    /// How many attempts hold resources of a pool.
    pub fn running_in(&self, pool: &PoolName) -> usize {
        self.scheduler().pool(pool).map_or(0, |pool| pool.running())
    }

    /// What the nodes of a pool have, added up.
    pub fn capacity_of(&self, pool: &PoolName) -> Amounts {
        let mut sum = Amounts::new();
        for node in self.nodes_of(pool) {
            sum.add(&node.capacity());
        }
        sum
    }

    /// Number of steps stand in each state.
    pub fn steps_by_state(&self) -> impl Iterator<Item = (StepState, u64)> {
        let counts = self.index.by_state();
        StepState::ALL
            .into_iter()
            .map(|state| (state, counts.get(&state).copied().unwrap_or(0)))
    }

    /// The step that was submitted first of those that wait for a pool.
    pub fn oldest_in(&self, pool: &PoolName) -> Option<&Step> {
        let pool = self.scheduler().pool(pool)?;
        self.step(pool.oldest()?)
    }

    /// Whether a GPU of a node is granted.
    pub fn is_granted(&self, node: &NodeName, gpu: &str) -> bool {
        self.index.is_granted(node, gpu)
    }

    /// Steps in a terminal state that hold nothing any more, oldest end first.
    pub fn finished(&self) -> impl Iterator<Item = &StepId> {
        self.index.finished().values()
    }

    /// The waiting steps that are promised a place, by id.
    pub fn promised(&self) -> impl Iterator<Item = &StepId> {
        self.stored.nominations.keys()
    }

    /// The platforms that a GPU of a node is of; without one, all that the node is of.
    pub fn platforms_of<'a>(
        &'a self,
        node: &Node,
        gpu: Option<&str>,
    ) -> BTreeSet<&'a PlatformName> {
        let hardware = self.index.hardware(node);
        match gpu {
            Some(gpu) => hardware.kind_of(gpu).into_iter().flatten().collect(),
            None => hardware.gpus.keys().flatten().collect(),
        }
    }

    /// Who gets what, as scheduling sees it.
    pub fn scheduler(&self) -> &Scheduler {
        self.index.scheduler()
    }

    /// What is derived.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// What is derived, built again: for invariants.
    pub(crate) fn rebuilt_index(&self) -> Index {
        Index::of(&self.stored)
    }
}
