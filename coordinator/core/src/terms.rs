//! Platform leads set the terms of pools and bind subjects to them: several changes at once, all or none. What a pool
//! could not keep is refused whole; so is what takes from those who use a pool, unless it is forced, and even then
//! nothing that runs is stopped by it. What is so already is answered and not recorded.
//!
//! Changes are made on a copy of everything, looked at there, and kept or dropped as a whole. So what a trial run says
//! is what would happen, by the same code.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::state::StepState;

use crate::core::Core;
use crate::input::{Change, ReplyId, Wanted};
use crate::market::{Policy, Table};
use crate::output::{Answer, Applied, Outcome, Refusal, Refused, Terms, Use};
use crate::record::Record;
use crate::state::default_pool;

impl Core {
    pub(crate) fn on_apply(
        &mut self,
        reply: ReplyId,
        changes: &[Change],
        force: bool,
        dry_run: bool,
    ) {
        let mut trial = self.clone();
        let applied = trial.make_all(self, changes);
        let applied = applied.and_then(|applied| match &applied.uses[..] {
            [] => Ok(applied),
            _ if force || dry_run => Ok(applied),
            uses => Err(Refused {
                at: None,
                refusal: Refusal::InUse {
                    uses: uses.to_vec(),
                },
            }),
        });
        if applied.is_ok() && !dry_run {
            *self = trial;
        }
        self.reply(reply, Answer::Applied(applied));
    }

    /// Makes all changes of a trial that began as `before`, and tells what they mean.
    fn make_all(&mut self, before: &Core, changes: &[Change]) -> Result<Applied, Refused> {
        each_once(changes)?;
        let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by_key(|at| rank(&changes[*at].wanted));
        for at in order {
            let outcome = self.make_change(&changes[at]);
            let outcome = outcome.map_err(|refusal| refused(at, refusal))?;
            outcomes.insert(at, outcome);
        }
        self.vet(changes)?;
        let changed = outcomes.iter().filter(|(_, outcome)| outcome.is_change());
        let changed: Vec<&Wanted> = changed.map(|(at, _)| &changes[*at].wanted).collect();
        let rejected = self.reject_what_never_starts(before, &changed);
        let mut uses: Vec<Use> = changed.iter().flat_map(|it| uses(before, it)).collect();
        if !rejected.is_empty() {
            uses.push(waiting(&rejected));
        }
        let pools: BTreeSet<&PoolName> = changed.iter().filter_map(|it| pool_of(it)).collect();
        let exposed = self.exposed(&pools);
        let earlier = before.exposed(&pools);
        Ok(Applied {
            outcomes: outcomes.into_values().collect(),
            uses,
            exposed: exposed.difference(&earlier).cloned().collect(),
            preempted: self.preempts(),
            rejected,
        })
    }

    fn make_change(&mut self, change: &Change) -> Result<Outcome, Refusal> {
        let before = self.terms_of(&change.wanted);
        let version = before.as_ref().map_or(0, |(_, version)| *version);
        if let Some(expected) = change.version.filter(|expected| *expected != version) {
            return Err(Refusal::VersionConflict {
                what: name_of(&change.wanted),
                expected,
                version,
            });
        }
        let before = before.map(|(terms, _)| terms);
        match &change.wanted {
            Wanted::Pool { pool, terms } => {
                if before != Some(Terms::Pool(terms.clone())) {
                    self.record(Record::PoolPut {
                        pool: pool.clone(),
                        description: terms.description.clone(),
                        capacity: terms.capacity.clone(),
                        min_runtime: terms.min_runtime,
                        require: terms.require.clone(),
                        rules: terms.rules.clone(),
                    });
                }
            }
            Wanted::Cluster { terms } => {
                if before != Some(Terms::Cluster(terms.clone())) {
                    let terms = terms.clone();
                    self.record(Record::ClusterPut { terms });
                }
            }
            Wanted::Policy {
                pool,
                subject,
                policy,
            } => {
                self.known_pool(pool)?;
                if before != Some(Terms::Policy(policy.clone())) {
                    self.record(Record::PolicyPut {
                        pool: pool.clone(),
                        subject: subject.clone(),
                        policy: policy.clone(),
                    });
                }
            }
            Wanted::NoPolicy { pool, subject } => self.delete_policy(pool, subject)?,
            Wanted::NoPool { pool } => self.delete_pool(pool)?,
        }
        let after = self.terms_of(&change.wanted).map(|(terms, _)| terms);
        Ok(Outcome { before, after })
    }

    fn known_pool(&self, pool: &PoolName) -> Result<(), Refusal> {
        match self.state.pool(pool) {
            Some(_) => Ok(()),
            None => Err(Refusal::UnknownPool { pool: pool.clone() }),
        }
    }

    fn delete_policy(&mut self, pool: &PoolName, subject: &Subject) -> Result<(), Refusal> {
        self.known_pool(pool)?;
        let (pool, subject) = (pool.clone(), subject.clone());
        let known = self.state.pool(&pool);
        if !known.is_some_and(|known| known.policies.contains_key(&subject)) {
            return Err(Refusal::UnknownPolicy { pool, subject });
        }
        self.record(Record::PolicyDeleted { pool, subject });
        Ok(())
    }

    fn delete_pool(&mut self, pool: &PoolName) -> Result<(), Refusal> {
        self.known_pool(pool)?;
        let pool = pool.clone();
        if pool == default_pool() {
            return Err(Refusal::PoolIsDefault { pool });
        }
        let nodes = self.state.nodes_of(&pool);
        let nodes: Vec<_> = nodes.map(|node| node.name.clone()).collect();
        if !nodes.is_empty() {
            return Err(Refusal::PoolHasNodes { pool, nodes });
        }
        self.record(Record::PoolDeleted { pool });
        Ok(())
    }

    /// What there is now of what is wanted, with its version.
    fn terms_of(&self, wanted: &Wanted) -> Option<(Terms, u64)> {
        let Some(pool) = pool_of(wanted) else {
            let cluster = self.state.cluster();
            let terms = Terms::Cluster(cluster.terms.clone());
            return Some((terms, cluster.version));
        };
        let pool = self.state.pool(pool)?;
        match wanted {
            Wanted::Cluster { .. } => None,
            Wanted::Pool { .. } | Wanted::NoPool { .. } => {
                Some((Terms::Pool(pool.as_written()), pool.version))
            }
            Wanted::Policy { subject, .. } | Wanted::NoPolicy { subject, .. } => {
                let bound = pool.policies.get(subject)?;
                Some((Terms::Policy(bound.policy.clone()), bound.version))
            }
        }
    }

    /// Whether every pool that is concerned could keep its promises, once all changes are made. The first change that
    /// is to blame is named.
    fn vet(&self, changes: &[Change]) -> Result<(), Refused> {
        self.vet_cluster(changes)?;
        let pools = changes.iter().filter_map(|c| pool_of(&c.wanted));
        for name in pools.collect::<BTreeSet<&PoolName>>() {
            // The last goes over the line that those before it came up to.
            let its = |c: &&Change| pool_of(&c.wanted) == Some(name);
            let about = changes.iter().rev().filter(its);
            let subjects: Vec<&Subject> = about.filter_map(|c| subject_of(&c.wanted)).collect();
            let pool = self.state.market().pool(name);
            let bad = pool.and_then(|pool| pool.vet_all(&subjects).err());
            if let Some((subject, why)) = bad {
                let about = |named: Option<&Subject>| {
                    let its = |c: &Change| {
                        pool_of(&c.wanted) == Some(name) && subject_of(&c.wanted) == named
                    };
                    changes.iter().position(its)
                };
                let at = about(Some(subject)).or_else(|| about(None));
                let refusal = Refusal::BadPolicy {
                    pool: name.clone(),
                    subject: subject.clone(),
                    why,
                };
                return Err(Refused { at, refusal });
            }
        }
        Ok(())
    }

    /// Whether every pool is there that the cluster's terms name, once all changes are made.
    fn vet_cluster(&self, changes: &[Change]) -> Result<(), Refused> {
        let mut named = self.state.cluster().terms.pools();
        let Some((field, pool)) = named.find(|(_, pool)| self.state.pool(pool).is_none()) else {
            return Ok(());
        };
        let names = |c: &Change| matches!(c.wanted, Wanted::Cluster { .. });
        let at = changes
            .iter()
            .position(|c| pool_of(&c.wanted) == Some(pool));
        let at = at.or_else(|| changes.iter().position(names));
        let pool = pool.clone();
        let refusal = Refusal::ClusterNamesPool { pool, field };
        Err(Refused { at, refusal })
    }

    /// What waits and could never start under these terms, whatever hosts come: it is rejected, for nothing waits in
    /// vain.
    fn reject_what_never_starts(&mut self, before: &Core, changed: &[&Wanted]) -> Vec<StepId> {
        let mut rejected = Vec::new();
        for id in concerned(before, changed) {
            let step = self.state.step(&id);
            let Some(step) = step.filter(|step| step.state == StepState::Queued) else {
                continue;
            };
            if let Err(reason) = self.admit_by_terms(step) {
                self.record(Record::StepEnded {
                    step: id.clone(),
                    state: StepState::Rejected,
                    reason,
                });
                rejected.push(id);
            }
        }
        rejected
    }

    /// Steps that run and that others may take, for their subject holds more than its share.
    fn exposed(&self, pools: &BTreeSet<&PoolName>) -> BTreeSet<StepId> {
        let market = self.state.market();
        let runs = pools.iter().flat_map(|pool| market.exposed(pool));
        runs.map(|attempt| attempt.step.clone()).collect()
    }

    /// Lets the trial go on, and tells who gives way to whom at once.
    fn preempts(&mut self) -> Vec<(StepId, StepId)> {
        let mark = self.state.seq();
        self.schedule();
        let mut found = Vec::new();
        for record in self.records_after(mark) {
            if let Record::Stopping {
                attempt,
                by: Some(by),
                ..
            } = record
            {
                found.push((attempt.step.clone(), by.clone()));
            }
        }
        found
    }
}

/// Waiting steps that a change could concern.
fn concerned(before: &Core, changed: &[&Wanted]) -> BTreeSet<StepId> {
    let mut found = BTreeSet::new();
    for wanted in changed {
        let Some(pool) = pool_of(wanted) else {
            continue;
        };
        let waiting = before.state.queued_in(pool);
        match wanted {
            Wanted::Cluster { .. } => {}
            Wanted::Pool { .. } | Wanted::NoPool { .. } => found.extend(waiting.cloned()),
            Wanted::Policy { subject, .. } | Wanted::NoPolicy { subject, .. } => {
                let its = waiting.filter(|id| {
                    let request = before.state.market().request(id);
                    request.is_some_and(|request| request.subject == *subject)
                });
                found.extend(its.cloned());
            }
        }
    }
    found
}

/// Who uses what a change takes away.
fn uses(before: &Core, wanted: &Wanted) -> Vec<Use> {
    match wanted {
        Wanted::Cluster { .. } => Vec::new(),
        Wanted::Pool { pool, terms } => shrunk_pool(before, pool, &terms.capacity),
        Wanted::Policy {
            pool,
            subject,
            policy,
        } => shrunk_policy(before, pool, subject, policy),
        Wanted::NoPolicy { pool, subject } => gone(before, pool, Some(subject)),
        Wanted::NoPool { pool } => gone(before, pool, None),
    }
}

fn shrunk_pool(before: &Core, pool: &PoolName, capacity: &Table) -> Vec<Use> {
    let (Some(known), Some(market)) = (before.state.pool(pool), before.state.market().pool(pool))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, used) in market.used().iter() {
        let earlier = known.capacity.get(key).copied();
        let now = match (capacity.get(key), earlier) {
            (Some(now), earlier) => Some(*now).filter(|now| earlier.is_none_or(|e| e > *now)),
            (None, Some(_)) if market.detected(key.as_str()).is_none() => Some(0),
            (None, _) => None,
        };
        if let Some(now) = now.filter(|now| *now < used) {
            let message = format!("capacity.{key} would be {now}, and {used} are in use");
            found.push(use_of(before, pool, None, Some(key.as_str()), message));
        }
    }
    found
}

fn shrunk_policy(before: &Core, pool: &PoolName, subject: &Subject, policy: &Policy) -> Vec<Use> {
    let known = before.state.pool(pool);
    let earlier = known.and_then(|known| known.policies.get(subject));
    let used = before.state.market().pool(pool);
    let used = used.and_then(|pool| pool.used_by(subject));
    let (Some(earlier), Some((used, firm))) = (earlier, used) else {
        return Vec::new();
    };
    let lower = |now: u64, earlier: Option<u64>| earlier.is_none_or(|earlier| earlier > now);
    let mut found = Vec::new();
    for (key, used) in used.iter() {
        let now = policy.limit.get(key).copied();
        let earlier = earlier.policy.limit.get(key).copied();
        if let Some(now) = now.filter(|now| *now < used && lower(*now, earlier)) {
            let message = format!("limit.{key} would be {now}, and `{subject}` uses {used}");
            found.push(use_of(
                before,
                pool,
                Some(subject),
                Some(key.as_str()),
                message,
            ));
        }
    }
    for (key, used) in firm.iter() {
        let now = policy.reserved(key.as_str());
        let earlier = earlier.policy.reserved(key.as_str());
        if let Some(now) = now.filter(|now| *now < used && lower(*now, earlier)) {
            let message = format!(
                "reserved.{key} would be {now}, and steps of `{subject}` that cannot be made to give way use {used}"
            );
            found.push(use_of(
                before,
                pool,
                Some(subject),
                Some(key.as_str()),
                message,
            ));
        }
    }
    found
}

fn gone(before: &Core, pool: &PoolName, subject: Option<&Subject>) -> Vec<Use> {
    let message = match subject {
        Some(subject) => format!("steps of `{subject}` run in it"),
        None => "steps run in it".to_string(),
    };
    let found = use_of(before, pool, subject, None, message);
    if found.steps.is_empty() {
        Vec::new()
    } else {
        Vec::from([found])
    }
}

/// The steps that hold units of a pool: of a subject, or all; of a key, or any.
fn use_of(
    before: &Core,
    pool: &PoolName,
    subject: Option<&Subject>,
    key: Option<&str>,
    message: String,
) -> Use {
    let runs = before.state.market().runs_of(pool, subject);
    let runs = runs.filter(|(_, run)| key.is_none_or(|key| run.demand().get(key) > 0));
    let steps: BTreeSet<StepId> = runs.map(|(id, _)| id.step.clone()).collect();
    let what = match subject {
        Some(subject) => format!("policy of `{subject}` in pool `{pool}`"),
        None => format!("pool `{pool}`"),
    };
    Use {
        message: format!("{what}: {message}"),
        steps: steps.into_iter().collect(),
    }
}

fn waiting(rejected: &[StepId]) -> Use {
    let message = match rejected.len() {
        1 => "a step that waits could never start and would be rejected".to_string(),
        n => format!("{n} steps that wait could never start and would be rejected"),
    };
    Use {
        message,
        steps: rejected.to_vec(),
    }
}

/// What is made first: what others need. What is taken away goes last.
fn rank(wanted: &Wanted) -> u8 {
    match wanted {
        Wanted::Pool { .. } => 0,
        Wanted::Policy { .. } => 1,
        Wanted::NoPolicy { .. } => 2,
        Wanted::NoPool { .. } => 3,
        Wanted::Cluster { .. } => 4,
    }
}

/// The pool that a change is about, where it is about one.
fn pool_of(wanted: &Wanted) -> Option<&PoolName> {
    match wanted {
        Wanted::Pool { pool, .. }
        | Wanted::Policy { pool, .. }
        | Wanted::NoPolicy { pool, .. }
        | Wanted::NoPool { pool } => Some(pool),
        Wanted::Cluster { .. } => None,
    }
}

fn subject_of(wanted: &Wanted) -> Option<&Subject> {
    match wanted {
        Wanted::Policy { subject, .. } | Wanted::NoPolicy { subject, .. } => Some(subject),
        Wanted::Pool { .. } | Wanted::NoPool { .. } | Wanted::Cluster { .. } => None,
    }
}

fn name_of(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Cluster { .. } => "the cluster".to_string(),
        Wanted::Pool { pool, .. } | Wanted::NoPool { pool } => format!("pool `{pool}`"),
        Wanted::Policy { pool, subject, .. } | Wanted::NoPolicy { pool, subject } => {
            format!("policy of `{subject}` in pool `{pool}`")
        }
    }
}

/// Two changes of one thing have no order that means anything.
fn each_once(changes: &[Change]) -> Result<(), Refused> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        let what = name_of(&change.wanted);
        if let Some(first) = seen.insert(what.clone(), at) {
            return Err(refused(at, Refusal::Twice { what, first }));
        }
    }
    Ok(())
}

fn refused(at: usize, refusal: Refusal) -> Refused {
    let at = Some(at);
    Refused { at, refusal }
}
