//! Saves what records change, so that it can be rolled back: each pool, step and nomination as it was before the
//! first record that touched it. A dry run therefore costs what it changes, not the size of the state. Indexes are
//! rebuilt for what is rolled back.
//!
//! Only what a dry run makes can be rolled back: changes of pools and policies, a submitted step, and the decisions
//! that follow at once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId, TemplateName, ValidationName};
use sluice_common::time::Time;
use sluice_scheduler::{FairUses, LostWork, Nomination};

use crate::model::access::Access;
use crate::model::cluster::Cluster;
use crate::model::pool::Pool;
use crate::model::step::Step;
use crate::model::template::StoredTemplate;
use crate::model::topology::Topology;
use crate::model::validation::Validation;
use crate::record::{self, Record};

use super::State;

/// The saved values.
#[derive(Clone, Debug)]
pub(crate) struct Rollback {
    seq: u64,
    clock: Time,
    fair_uses: FairUses,
    lost_work: BTreeMap<PoolName, LostWork>,
    cluster: Cluster,
    topology: Topology,
    validations: BTreeMap<ValidationName, Option<Validation>>,
    /// Roles, bindings and tokens, once a record changes them.
    access: Option<Access>,
    pools: BTreeMap<PoolName, Option<Pool>>,
    /// `None` for a step that did not exist.
    steps: BTreeMap<StepId, Option<Step>>,
    nominations: BTreeMap<StepId, Option<Nomination>>,
    templates: BTreeMap<TemplateName, Option<StoredTemplate>>,
}

impl Rollback {
    /// Starts to save changes of a state.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            seq: state.stored.seq,
            clock: state.stored.clock,
            fair_uses: state.stored.fair_uses.clone(),
            lost_work: state.stored.lost_work.clone(),
            cluster: state.stored.cluster.clone(),
            topology: state.stored.topology.clone(),
            validations: BTreeMap::new(),
            access: None,
            pools: BTreeMap::new(),
            steps: BTreeMap::new(),
            nominations: BTreeMap::new(),
            templates: BTreeMap::new(),
        }
    }

    /// Saves what a record is about to change.
    pub(crate) fn note(&mut self, state: &State, record: &Record) {
        if let Some(step) = record.step() {
            self.note_step(state, step);
            // A part changes its array too.
            if let Some((array, _)) = state.array_of(step) {
                self.note_step(state, &array.id);
            }
            if let Record::StepQueued(queued) = record
                && queued.spec.array.is_some()
            {
                // A new array takes up the parts that were adopted.
                for (_, part) in state.parts_of(step) {
                    self.note_step(state, &part.id);
                }
            }
        }
        if let Some(pool) = pool_changed_by(record) {
            self.note_pool(state, pool);
        }
        if let Record::ValidationPut { validation, .. } | Record::ValidationDeleted { validation } =
            record
        {
            let before = || state.stored.validations.get(validation).cloned();
            let noted = self.validations.entry(validation.clone());
            noted.or_insert_with(before);
        }
        if let Record::TemplatePut { template, .. } | Record::TemplateDeleted { template } = record
        {
            let known = state.stored.templates.get(template).cloned();
            self.templates.entry(template.clone()).or_insert(known);
        }
        if let Record::AccessChanged { .. } = record {
            self.access.get_or_insert_with(|| state.access().clone());
        }
        if let Record::Nominated { nomination, .. } = record {
            // A pool has one soft nomination, which this may replace.
            let pool = state.scheduler().pool(&nomination.pool);
            if let Some(soft) = pool.and_then(|pool| pool.soft_nomination().cloned()) {
                self.note_promise(state, &soft);
            }
        }
    }

    /// Number of saved pools and steps.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> (usize, usize) {
        (self.pools.len(), self.steps.len())
    }

    fn note_step(&mut self, state: &State, id: &StepId) {
        if !self.steps.contains_key(id) {
            self.steps.insert(id.clone(), state.step(id).cloned());
        }
        self.note_promise(state, id);
    }

    fn note_promise(&mut self, state: &State, id: &StepId) {
        if !self.nominations.contains_key(id) {
            let promised = state.stored.nominations.get(id).cloned();
            self.nominations.insert(id.clone(), promised);
        }
    }

    fn note_pool(&mut self, state: &State, name: &PoolName) {
        if self.pools.contains_key(name) {
            return;
        }
        self.pools.insert(name.clone(), state.pool(name).cloned());
        for step in state.scheduler().nominated_in(name) {
            self.note_promise(state, step);
        }
    }
}

/// The pool whose terms a record changes.
fn pool_changed_by(record: &Record) -> Option<&PoolName> {
    if let Record::PoolPut(record::PoolPut { pool, .. })
    | Record::PolicyPut(record::PolicyPut { pool, .. })
    | Record::PolicyDeleted { pool, .. }
    | Record::PlatformPut(record::PlatformPut { pool, .. })
    | Record::PlatformDeleted { pool, .. }
    | Record::PoolDeleted { pool } = record
    {
        return Some(pool);
    }
    None
}

impl State {
    /// Rolls back all records since `rollback` began.
    pub(crate) fn take_back(&mut self, rollback: Rollback) {
        let Rollback {
            seq,
            clock,
            fair_uses,
            lost_work,
            cluster,
            topology,
            validations,
            access,
            pools,
            steps,
            nominations,
            templates,
        } = rollback;
        if let Some(access) = access {
            self.stored.access = access;
        }
        for step in nominations.keys() {
            self.stored.nominations.remove(step);
            self.index.scheduler_mut().withdraw(step);
        }
        let touched: Vec<StepId> = steps.keys().cloned().collect();
        let now = steps.keys().filter_map(|id| self.stored.steps.remove(id));
        let now: Vec<Step> = now.collect();
        let nodes = nodes_of(now.iter().chain(steps.values().flatten()));
        now.iter().for_each(|step| self.index.remove_step(step));
        for (name, before) in pools {
            self.put_back_pool(&name, before);
        }
        for step in steps.into_values().flatten() {
            self.index.add_step(&step);
            self.stored.steps.insert(step);
        }
        for node in nodes.iter().filter_map(|node| self.stored.nodes.get(node)) {
            self.index.place_node(node);
        }
        for (step, nomination) in nominations {
            if let Some(nomination) = nomination {
                self.index.nominate(&step, &nomination);
                self.stored.nominations.insert(step, nomination);
            }
        }
        for (name, before) in templates {
            match before {
                Some(before) => self.stored.templates.insert(name, before),
                None => self.stored.templates.remove(&name),
            };
        }
        self.stored.cluster = cluster;
        if self.stored.topology != topology {
            self.set_topology(topology);
        }
        for (name, before) in validations {
            self.stored.validations.remove(&name);
            let before = before.map(|before| (name, before));
            self.stored.validations.extend(before);
        }
        self.stored.seq = seq;
        self.stored.clock = clock;
        let scheduler = self.index.scheduler_mut();
        scheduler.set_clock(clock);
        scheduler.set_fair_uses(&fair_uses);
        self.stored.fair_uses = fair_uses;
        scheduler.set_lost_work(&lost_work);
        self.stored.lost_work = lost_work;
        self.follow_arrays(&touched);
    }

    fn put_back_pool(&mut self, name: &PoolName, before: Option<Pool>) {
        let mut now = self.stored.pools.remove(name);
        let made = before.as_ref().map(|before| before.made);
        if now.as_ref().map(|now| now.made) != made {
            self.index.remove_pool(name);
            now = None;
        }
        let Some(before) = before else {
            return;
        };
        self.index.put_terms(&before);
        let scheduler = self.index.scheduler_mut();
        let policies = now.as_ref().map(|now| &now.policies);
        let added = policies.into_iter().flatten();
        for (subject, _) in added.filter(|(subject, _)| !before.policies.contains_key(*subject)) {
            scheduler.remove_policy(name, subject);
        }
        for (subject, binding) in &before.policies {
            let known = policies.and_then(|policies| policies.get(subject));
            if known.is_none_or(|known| known.policy != binding.policy) {
                scheduler.put_policy(name, subject, binding.policy.clone());
            }
        }
        let same = now.is_some_and(|now| {
            now.spec.require == before.spec.require && now.platforms == before.platforms
        });
        self.stored.pools.insert(name.clone(), before);
        if !same {
            self.sort_nodes_of(name);
        }
    }
}

/// The hosts of the steps' attempts.
pub(super) fn nodes_of<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeSet<NodeName> {
    let attempts = steps.flat_map(|step| &step.attempts);
    let parts = attempts.flat_map(|attempt| &attempt.parts);
    parts.map(|part| part.node.clone()).collect()
}
