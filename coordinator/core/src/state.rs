//! The state, as the fold of its records: [`State::apply`] is the only way it changes. This file reads it;
//! `state/apply.rs` changes it, `state/index.rs` derives indexes so that no decision goes through all of it.
//!
//! A snapshot is this type in JSON. Indexes are not stored; they are rebuilt when a snapshot is read.

pub(crate) mod access_snapshot;
mod apply;
pub(crate) mod arrays;
pub(crate) mod carving;
mod dependents;
mod environments;
pub(crate) mod granted;
mod index;
mod inside;
mod load;
mod recovery;
mod rollback;
mod steps;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize, Serializer};

use sluice_common::amount::Amounts;
use sluice_common::id::{
    AttemptId, Epoch, NodeName, PlatformName, PoolName, ServiceName, StepId, Subject, TemplateName,
    ValidationName,
};
use sluice_common::inventory::{Capability, Gpu};
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_scheduler::{FairUses, LostWork, Nomination, Scheduler};

use crate::counted_by_hosts;
use crate::model::access::Access;
use crate::model::admission::Admission;
use crate::model::cluster::Cluster;
use crate::model::node::Node;
use crate::model::pool::Pool;
use crate::model::recovery::Recovery;
use crate::model::service::{EndedService, Service};
use crate::model::step::Step;
use crate::model::template::StoredTemplate;
use crate::model::topology::Topology;
use crate::model::validation::Validation;

pub use apply::{ApplyError, Mismatch};

pub(crate) use index::{Index, request};
pub(crate) use rollback::Rollback;
pub use steps::{ListedStep, StepKind, StepRow, Steps};

/// The stored state: everything that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "StoredState")]
pub struct State {
    stored: StoredState,
    index: Index,
}

/// The contents of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredState {
    /// Number of the last applied record.
    seq: u64,
    epoch: Option<Epoch>,
    /// `lost_after` of the coordinator that started last.
    #[serde(default)]
    lost_after: Span,
    /// Time until which leases of an earlier coordinator may keep attempts running on silent nodes.
    #[serde(default)]
    no_loss_before: Time,
    /// The recovery, while the store is older than the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery: Option<Recovery>,
    pools: BTreeMap<PoolName, Pool>,
    /// Terms of the cluster.
    #[serde(default)]
    cluster: Cluster,
    /// Levels into which hosts are divided.
    #[serde(default, skip_serializing_if = "Topology::is_unset")]
    topology: Topology,
    /// Validation documents, by name.
    #[serde(default)]
    validations: BTreeMap<ValidationName, Validation>,
    /// Templates, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    templates: BTreeMap<TemplateName, StoredTemplate>,
    /// Roles, bindings and tokens.
    #[serde(default, skip_serializing_if = "Access::is_empty")]
    access: Access,
    /// Nominations of steps that cannot start yet.
    #[serde(default)]
    nominations: BTreeMap<StepId, Nomination>,
    nodes: BTreeMap<NodeName, Node>,
    steps: Steps,
    /// Services, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    services: BTreeMap<ServiceName, Service>,
    /// Counters of deleted services.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    retired_services: BTreeMap<ServiceName, EndedService>,
    /// Ids of deleted steps by the numbers of their records; at most [`MAX_DELETED_KEPT`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    deleted: BTreeMap<u64, StepId>,
    /// Time of the last applied record.
    #[serde(default)]
    clock: Time,
    /// Decayed use of pools with fair share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fair_uses: FairUses,
    /// Work lost by priority, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    lost_work: BTreeMap<PoolName, LostWork>,
    /// Join tokens and the access of nodes.
    #[serde(default)]
    admission: Admission,
}

/// Most ids of deleted steps that are kept: those that were deleted last.
pub(crate) const MAX_DELETED_KEPT: usize = 100_000;

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
    /// Returns a copy to be written elsewhere, in JSON as the state itself. It shares the steps, which are most of a large
    /// state, so it takes milliseconds where writing takes seconds.
    pub fn to_stored(&self) -> StoredState {
        self.stored.clone()
    }

    /// Number of the last applied record; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.stored.seq
    }

    /// Whether a step with this id was deleted.
    pub(crate) fn is_deleted(&self, id: &StepId) -> bool {
        self.index.deleted.contains(id)
    }

    /// The epoch that began last.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.stored.epoch.as_ref()
    }

    /// Earliest time at which a node may be called lost: leases of earlier coordinators, under terms that may have
    /// been longer, may run until then.
    pub fn no_loss_before(&self) -> Time {
        self.stored.no_loss_before
    }

    /// Join tokens and the access of nodes.
    pub fn admission(&self) -> &Admission {
        &self.stored.admission
    }

    /// The terms of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.stored.cluster
    }

    /// The topology of the cluster.
    pub fn topology(&self) -> &Topology {
        &self.stored.topology
    }

    /// Values of the levels of the topology that a node has labels of, the widest first, up to the first that it lacks.
    pub fn domain_path(&self, node: &NodeName) -> &[String] {
        self.index.domain_path(node)
    }

    /// Every validation document, by name.
    pub fn validations(&self) -> &BTreeMap<ValidationName, Validation> {
        &self.stored.validations
    }

    /// Every template, by name.
    pub fn templates(&self) -> &BTreeMap<TemplateName, StoredTemplate> {
        &self.stored.templates
    }
    /// Roles, bindings and tokens.
    pub fn access(&self) -> &Access {
        &self.stored.access
    }

    /// Every pool, by name.
    pub fn pools(&self) -> &BTreeMap<PoolName, Pool> {
        &self.stored.pools
    }

    /// The pool with this name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.stored.pools.get(name)
    }

    /// Every remembered node, lost ones included, by name.
    pub fn nodes(&self) -> &BTreeMap<NodeName, Node> {
        &self.stored.nodes
    }

    /// The remembered node with this name.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.stored.nodes.get(name)
    }

    /// Every service, by name.
    pub fn services(&self) -> &BTreeMap<ServiceName, Service> {
        &self.stored.services
    }

    /// The counters of a deleted service.
    pub(crate) fn retired_service(&self, name: &ServiceName) -> Option<&EndedService> {
        self.stored.retired_services.get(name)
    }

    /// Every remembered step.
    pub fn steps(&self) -> &Steps {
        &self.stored.steps
    }

    /// The remembered step with this id.
    pub fn step(&self, id: &StepId) -> Option<&Step> {
        self.stored.steps.get(id)
    }

    /// The steps inside an allocation that are not over, or still hold a part of it, in order of submission.
    pub fn steps_inside<'a>(
        &'a self,
        allocation: &StepId,
    ) -> impl Iterator<Item = &'a Step> + use<'a> {
        let open = self.index.inside.of(allocation);
        open.filter_map(|id| self.stored.steps.get(id))
    }

    /// Updates the index after a change of a step.
    pub(super) fn follow_inside(&mut self, id: &StepId) {
        if let Some(step) = self.stored.steps.get(id) {
            self.index.inside.follow(step);
        }
    }

    /// The remembered steps whose [`Step::order`] is after `order`, in order of submission.
    pub fn steps_after(&self, order: u64) -> impl Iterator<Item = ListedStep<'_>> {
        self.stored.steps.after(order)
    }

    /// The remembered steps whose [`Step::order`] is before `order`, the last submitted first.
    pub fn steps_before(&self, order: u64) -> impl Iterator<Item = ListedStep<'_>> {
        self.stored.steps.before(order)
    }

    /// The pool that granted a step, or to which it is nominated, or the only one that it may run in, or the one that it
    /// would prefer.
    pub fn pool_of<'a>(&'a self, step: &'a Step) -> Option<&'a PoolName> {
        let is_queued = step.state == StepState::Queued;
        let nominated = is_queued.then(|| self.scheduler().nomination(&step.id));
        let nominated = nominated.flatten().map(|nomination| &nomination.pool);
        let granted = step.latest().map(|attempt| &attempt.pool);
        nominated.or_else(|| {
            let (subject, excluded) = (step.policy_subject(), &step.excluded_pools);
            let preferred = || self.preferred_pool(subject, excluded, step.place);
            pool_without_nomination(step.state, granted, step.only_pool(), preferred)
        })
    }

    /// The pool of a listed step that is not nominated: as [`State::pool_of`], by its row alone.
    pub fn pool_of_kind<'a>(&'a self, row: &'a StepRow) -> Option<&'a PoolName> {
        let kind = &row.kind;
        let (subject, excluded) = (&kind.policy_subject, &kind.excluded_pools);
        let preferred = || self.preferred_pool(subject, excluded, row.place());
        let (granted, only) = (kind.granted.as_ref(), kind.only_pool.as_ref());
        pool_without_nomination(row.state, granted, only, preferred)
    }

    /// The most preferred pool of a step that names none and was accepted by the record `place`.
    fn preferred_pool(
        &self,
        subject: &Subject,
        excluded: &BTreeSet<PoolName>,
        place: u64,
    ) -> Option<&PoolName> {
        let is_open = |name: &PoolName, made| made <= place && !excluded.contains(name);
        self.scheduler().preferred_pool_of(subject, is_open)
    }

    /// The nodes of a pool, by name.
    pub fn nodes_of<'a>(&'a self, pool: &PoolName) -> impl Iterator<Item = &'a Node> + use<'a> {
        let hosts = self.scheduler().pool(pool).into_iter();
        let names = hosts.flat_map(|pool| pool.nodes());
        names.filter_map(|name| self.stored.nodes.get(name))
    }

    /// The required capabilities that a node lacks. A node that lacks any gets no new work.
    pub fn missing_capabilities(&self, node: &Node) -> BTreeSet<Capability> {
        self.index.missing_capabilities(node)
    }

    /// Whether a node gets new work now.
    pub fn takes_work(&self, node: &Node) -> bool {
        node.is_open() && self.missing_capabilities(node).is_empty()
    }

    /// The steps queued in a pool, in queue order.
    pub fn queued_in<'a>(&'a self, pool: &PoolName) -> impl Iterator<Item = &'a StepId> + use<'a> {
        self.scheduler().in_order(pool).into_iter()
    }

    /// Number of steps queued in a pool.
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

    /// The nodes with this address.
    pub fn nodes_at<'a>(&'a self, address: &str) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        self.index.nodes_at(address)
    }

    /// Resources granted on a node, of the keys that hosts bound. May exceed the capacity if some of it vanished
    /// while it was granted.
    pub fn used_on(&self, node: &NodeName) -> Amounts {
        self.index.used_on(node).amounts()
    }

    /// Resources granted in a pool, over all keys.
    pub fn used_of(&self, pool: &PoolName) -> Amounts {
        self.index.used_of(pool)
    }

    /// Number of attempts that hold resources of a pool.
    pub fn running_in(&self, pool: &PoolName) -> usize {
        self.scheduler().pool(pool).map_or(0, |pool| pool.running())
    }

    /// Sum of the resources of a pool's nodes; of a pool without hosts what it declares of them.
    pub fn capacity_of(&self, pool: &PoolName) -> Amounts {
        let mut sum = Amounts::new();
        if let Some(pool) = self.pool(pool).filter(|pool| pool.is_hostless()) {
            let declared = pool.spec.capacity.iter();
            let of_hosts = declared.filter(|(key, _)| counted_by_hosts(key.as_str()));
            of_hosts.for_each(|(key, amount)| sum.set(key.clone(), *amount));
        }
        for node in self.nodes_of(pool) {
            sum.add(&node.capacity());
        }
        sum
    }

    /// Number of steps in each state.
    pub fn steps_by_state(&self) -> impl Iterator<Item = (StepState, u64)> {
        let counts = self.index.by_state();
        StepState::ALL
            .into_iter()
            .map(|state| (state, counts.get(&state).copied().unwrap_or(0)))
    }

    /// The step of a pool's queue that was submitted first.
    pub fn oldest_in(&self, pool: &PoolName) -> Option<&Step> {
        let pool = self.scheduler().pool(pool)?;
        self.step(pool.oldest()?)
    }

    /// Whether a GPU of a node is granted.
    pub fn is_granted(&self, node: &NodeName, gpu: &str) -> bool {
        self.index.is_granted(node, gpu)
    }

    /// Whether a unit of a node can be granted now, if the node takes work.
    pub fn is_free(&self, node: &Node, unit: &str) -> bool {
        node.is_fit(unit)
            && !self.is_granted(&node.name, unit)
            && self.index.blocker(node, unit).is_none()
    }

    /// The reason why a unit of a node is not granted, as text; `None` if it is fit.
    pub fn unfit(&self, node: &Node, unit: &str) -> Option<String> {
        node.unfit(unit).or_else(|| {
            let (held, AttemptId { step, .. }) = self.index.blocker(node, unit)?;
            Some(match node.parent_of(unit) == Some(held) {
                true => format!("in use: step `{step}` holds its whole GPU `{held}`"),
                false => format!("in use: step `{step}` holds its MIG instance `{held}`"),
            })
        })
    }

    /// The listed units of a node that are not granted, by index, with the reason.
    pub fn unfit_gpus<'a>(&self, node: &'a Node) -> BTreeMap<(u32, &'a str), String> {
        let gpus = node.inventory.gpus.iter();
        let reason = |gpu: &Gpu| self.unfit(node, &gpu.uuid);
        gpus.filter_map(|gpu| Some(((gpu.index, gpu.uuid.as_str()), reason(gpu)?)))
            .collect()
    }

    /// Steps in a terminal state that hold nothing any more, oldest end first.
    pub fn finished(&self) -> impl Iterator<Item = &StepId> {
        self.index.finished().values()
    }

    /// The nominated queued steps, by id.
    pub fn promised(&self) -> impl Iterator<Item = &StepId> {
        self.stored.nominations.keys()
    }

    /// The platforms of a GPU of a node, or of the whole node.
    pub fn platforms_of<'a>(
        &'a self,
        node: &Node,
        gpu: Option<&str>,
    ) -> BTreeSet<&'a PlatformName> {
        let hardware = self.index.hardware(node);
        match gpu {
            Some(gpu) => (hardware.kind_of(gpu).into_iter())
                .flat_map(|kind| &kind.platforms)
                .collect(),
            None => (hardware.gpus.keys())
                .flat_map(|kind| &kind.platforms)
                .collect(),
        }
    }

    /// The scheduler's view of this state.
    pub fn scheduler(&self) -> &Scheduler {
        self.index.scheduler()
    }

    /// The indexes, which are derived from the facts.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The indexes, built from scratch for the invariants.
    pub(crate) fn rebuilt_index(&self) -> Index {
        Index::of(&self.stored)
    }
}

/// The pool of a step that is not nominated: the one of its latest attempt if it is not queued, else the only one that it
/// may run in, or the one that it would prefer.
fn pool_without_nomination<'a>(
    state: StepState,
    granted: Option<&'a PoolName>,
    only: Option<&'a PoolName>,
    preferred: impl FnOnce() -> Option<&'a PoolName>,
) -> Option<&'a PoolName> {
    match state == StepState::Queued {
        true => only.or_else(preferred),
        false => granted.or(only),
    }
}
