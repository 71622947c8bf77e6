//! Applies documents: pools, policies, platforms, templates, validations and access, several at once, all or none. A
//! change that a pool could not keep is rejected as a whole. A change that takes something from its users needs
//! `force`, and even then stops nothing that runs. A change that alters nothing is not recorded.
//!
//! Changes are made, checked together, and kept or rolled back (`context/dry_run.rs`), so a dry run uses the same
//! code. Only the affected parts are checked: the queue and runs of a pool, or of one subject in it. `terms/uses.rs`
//! finds who uses what is taken away.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{MGPU, ResourceKey};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::state::StepState;
use sluice_scheduler::{PossiblePreemptions, RequestKind};

use crate::context::Context;
use crate::input::{Desired, ReplyId, TermsChange};
use crate::model::step::default_pool;
use crate::output::{Answer, Applied, AppliedChange, CurrentTerms, Refusal, Refused, Use};
use crate::record::Record;
use crate::schedule::schedule;
use crate::terms::access::{access_terms, change_access, check_access};
use crate::terms::carving::carve_plans;
use crate::terms::platforms::{
    about_platforms, check_platforms, delete_platform, listing, loses_platform, put_platform,
    put_pool, undeclared_defaults, with_platforms,
};
use crate::terms::targets::{name_of, pool_of, rank, subject_of};
use crate::terms::templates::{
    check_templates, delete_template, naming_what_is_gone, put_template, template_terms,
};
use crate::terms::uses::{never_starts, uses, waiting};
use crate::terms::validations::{
    check_validations, delete_validation, put_validation, validation_terms,
};
use crate::{counted_by_hosts, record};

pub(crate) fn on_apply(
    ctx: &mut Context,
    reply: ReplyId,
    changes: &[TermsChange],
    force: bool,
    dry_run: bool,
) {
    let trial = ctx.begin_dry_run();
    let applied = make_all(ctx, changes).and_then(|applied| {
        if applied.uses.is_empty() || force || dry_run {
            return Ok(applied);
        }
        let uses = applied.uses;
        let refusal = Refusal::InUse { uses };
        Err(Refused { at: None, refusal })
    });
    match applied.is_ok() && !dry_run {
        true => {
            ctx.keep(trial);
            // The scheduler has run, and GPUs are cut after every input in pools that are affected.
            let pools = changes
                .iter()
                .filter_map(|change| about_platforms(&change.desired));
            pools.for_each(|(pool, _)| ctx.set_affected(pool.clone()));
        }
        false => ctx.take_back(trial),
    }
    ctx.reply(reply, Answer::Applied(applied));
}

/// Makes all changes and returns their effects.
fn make_all(ctx: &mut Context, changes: &[TermsChange]) -> Result<Applied, Refused> {
    check_duplicates(changes)?;
    let changes = &with_platforms(ctx, changes)[..];
    let wanted = || changes.iter().map(|change| &change.desired);
    let mut uses: Vec<Use> = wanted().flat_map(|it| uses(ctx.state(), it)).collect();
    let lines = affected_kinds(ctx, changes);
    let claims = preemptions_before(ctx, changes);
    let changed: Vec<&Desired> = wanted().filter(|it| !is_already(ctx, it)).collect();
    let undeclared = undeclared_defaults(ctx, &changed);
    let outcomes = make_each(ctx, changes)?;
    check_changes(ctx, changes)?;
    check_platforms(ctx, &undeclared, changes)?;
    uses.extend(naming_what_is_gone(ctx, changes));
    let rejected = reject_what_never_starts(ctx, lines, &changed);
    if !rejected.is_empty() {
        uses.push(waiting(&rejected));
    }
    Ok(Applied {
        outcomes,
        uses,
        exposed: newly_at_risk(ctx, &claims),
        carvings: carve_plans(ctx, changes),
        preempted: preempts(ctx),
        rejected,
    })
}

fn make_each(ctx: &mut Context, changes: &[TermsChange]) -> Result<Vec<AppliedChange>, Refused> {
    let mut outcomes: BTreeMap<usize, AppliedChange> = BTreeMap::new();
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|at| rank(&changes[*at].desired));
    for at in order {
        let outcome = make_change(ctx, &changes[at]);
        let outcome = outcome.map_err(|refusal| refused(at, refusal))?;
        outcomes.insert(at, outcome);
    }
    Ok(outcomes.into_values().collect())
}

fn make_change(ctx: &mut Context, change: &TermsChange) -> Result<AppliedChange, Refusal> {
    let before = terms_of(ctx, &change.desired);
    let version = before.as_ref().map_or(0, |(_, version)| *version);
    if let Some(expected) = change.version.filter(|expected| *expected != version) {
        return Err(Refusal::VersionConflict {
            what: name_of(&change.desired),
            expected,
            version,
        });
    }
    let before = before.map(|(terms, _)| terms);
    match &change.desired {
        Desired::Pool { pool, terms } => {
            put_pool(ctx, pool, terms)?;
        }
        Desired::Platform {
            pool,
            platform,
            terms,
        } => {
            known_pool(ctx, pool)?;
            put_platform(ctx, pool, platform, terms)?;
        }
        Desired::NoPlatform { pool, platform } => {
            known_pool(ctx, pool)?;
            delete_platform(ctx, pool, platform)?;
        }
        Desired::Cluster { terms } => {
            if before != Some(CurrentTerms::Cluster(terms.clone())) {
                let terms = terms.clone();
                ctx.record(Record::ClusterPut { terms });
            }
        }
        Desired::Topology { terms } => {
            if before != Some(CurrentTerms::Topology(terms.clone())) {
                let terms = terms.clone();
                ctx.record(Record::TopologyPut { terms });
            }
        }
        Desired::Policy {
            pool,
            subject,
            policy,
        } => {
            known_pool(ctx, pool)?;
            if before != Some(CurrentTerms::Policy(policy.clone())) {
                ctx.record(Record::PolicyPut(record::PolicyPut {
                    pool: pool.clone(),
                    subject: subject.clone(),
                    policy: policy.clone(),
                }));
            }
        }
        Desired::Validation { validation, terms } => {
            if before != Some(CurrentTerms::Validation(terms.clone())) {
                put_validation(ctx, validation, terms);
            }
        }
        Desired::NoValidation { validation } => delete_validation(ctx, validation)?,
        Desired::NoPolicy { pool, subject } => delete_policy(ctx, pool, subject)?,
        Desired::NoPool { pool } => delete_pool(ctx, pool)?,
        Desired::Template { template, terms } => put_template(ctx, template, terms),
        Desired::NoTemplate { template } => delete_template(ctx, template)?,
        Desired::Access { change } => change_access(ctx, change)?,
    }
    let after = terms_of(ctx, &change.desired).map(|(terms, _)| terms);
    Ok(AppliedChange { before, after })
}

/// Whether the object is as wanted already.
fn is_already(ctx: &Context, wanted: &Desired) -> bool {
    let terms = terms_of(ctx, wanted).map(|(terms, _)| terms);
    match wanted {
        Desired::Pool { terms: it, .. } => terms == Some(CurrentTerms::Pool(it.clone())),
        Desired::Platform { terms: it, .. } => {
            terms == Some(CurrentTerms::Platform((**it).clone()))
        }
        Desired::Policy { policy, .. } => terms == Some(CurrentTerms::Policy(policy.clone())),
        Desired::Cluster { terms: it } => terms == Some(CurrentTerms::Cluster(it.clone())),
        Desired::Topology { terms: it } => terms == Some(CurrentTerms::Topology(it.clone())),
        Desired::Validation { terms: it, .. } => {
            terms == Some(CurrentTerms::Validation(it.clone()))
        }
        Desired::Template { terms: it, .. } => terms == Some(CurrentTerms::Template(it.clone())),
        Desired::NoPolicy { .. }
        | Desired::NoPool { .. }
        | Desired::NoPlatform { .. }
        | Desired::NoTemplate { .. }
        | Desired::NoValidation { .. } => terms.is_none(),
        // Roles, bindings and tokens change no pool.
        Desired::Access { .. } => false,
    }
}

/// The only subject that a change affects, if there is one. A policy that adds or drops a key which hosts have
/// affects all subjects of the pool.
fn only_affected_subject<'a>(ctx: &Context, wanted: &'a Desired) -> Option<&'a Subject> {
    let named = |policy: &PolicySpec| -> BTreeSet<ResourceKey> {
        let keys = policy.keys().filter(|key| counted_by_hosts(key.as_str()));
        keys.cloned().collect()
    };
    let mut before = BTreeSet::new();
    if let Some((CurrentTerms::Policy(policy), _)) = terms_of(ctx, wanted) {
        before = named(&policy);
    }
    let mut after = BTreeSet::new();
    if let Desired::Policy { policy, .. } = wanted {
        after = named(policy);
    }
    let mut differ = before.symmetric_difference(&after);
    let same = differ.all(|key| key.as_str() == MGPU);
    subject_of(wanted).filter(|it| same && !it.is_everyone())
}

fn known_pool(ctx: &Context, pool: &PoolName) -> Result<(), Refusal> {
    match ctx.state().pool(pool) {
        Some(_) => Ok(()),
        None => Err(Refusal::UnknownPool { pool: pool.clone() }),
    }
}

fn delete_policy(ctx: &mut Context, pool: &PoolName, subject: &Subject) -> Result<(), Refusal> {
    known_pool(ctx, pool)?;
    let (pool, subject) = (pool.clone(), subject.clone());
    let known = ctx.state().pool(&pool);
    if !known.is_some_and(|known| known.policies.contains_key(&subject)) {
        return Err(Refusal::UnknownPolicy { pool, subject });
    }
    ctx.record(Record::PolicyDeleted { pool, subject });
    Ok(())
}

fn delete_pool(ctx: &mut Context, pool: &PoolName) -> Result<(), Refusal> {
    known_pool(ctx, pool)?;
    let pool = pool.clone();
    if pool == default_pool() {
        return Err(Refusal::PoolIsDefault { pool });
    }
    let nodes = ctx.state().nodes().values();
    let nodes = nodes.filter(|node| node.pool == pool || node.moves_to() == Some(&pool));
    let nodes: Vec<_> = nodes.map(|node| node.name.clone()).collect();
    if !nodes.is_empty() {
        return Err(Refusal::PoolHasNodes { pool, nodes });
    }
    let held = ctx.state().attempts_on(&NodeName::of_pool(&pool));
    let steps: Vec<StepId> = held.map(|id| id.step.clone()).collect();
    if !steps.is_empty() {
        return Err(Refusal::PoolHoldsAllocations { pool, steps });
    }
    ctx.record(Record::PoolDeleted { pool });
    Ok(())
}

/// The current terms of the object that a change is about, with the version.
fn terms_of(ctx: &Context, wanted: &Desired) -> Option<(CurrentTerms, u64)> {
    let pool_of = |name: &PoolName| ctx.state().pool(name);
    match wanted {
        Desired::Cluster { .. } => {
            let cluster = ctx.state().cluster();
            Some((
                CurrentTerms::Cluster(cluster.terms.clone()),
                cluster.version,
            ))
        }
        Desired::Topology { .. } => {
            let topology = ctx.state().topology();
            let terms = topology.terms.clone();
            Some((CurrentTerms::Topology(terms), topology.version))
        }
        Desired::Validation { validation, .. } | Desired::NoValidation { validation } => {
            validation_terms(ctx, validation)
        }
        Desired::Template { template, .. } | Desired::NoTemplate { template } => {
            template_terms(ctx, template)
        }
        Desired::Access { change } => access_terms(ctx.state().access(), change),
        Desired::Pool { pool, terms } => {
            let known = pool_of(pool)?;
            let written = known.spec_as_requested(Some(terms));
            Some((CurrentTerms::Pool(Box::new(written)), known.version))
        }
        Desired::NoPool { pool } => {
            let known = pool_of(pool)?;
            let written = known.spec_as_requested(None);
            Some((CurrentTerms::Pool(Box::new(written)), known.version))
        }
        Desired::Platform { pool, platform, .. } | Desired::NoPlatform { pool, platform } => {
            let known = pool_of(pool)?.platforms.get(platform)?;
            Some((CurrentTerms::Platform(known.terms.clone()), known.version))
        }
        Desired::Policy { pool, subject, .. } | Desired::NoPolicy { pool, subject } => {
            let bound = pool_of(pool)?.policies.get(subject)?;
            Some((CurrentTerms::Policy(bound.policy.clone()), bound.version))
        }
    }
}

/// Checks that every affected pool could keep its promises once all changes are made. The error names the first
/// change at fault.
fn check_changes(ctx: &Context, changes: &[TermsChange]) -> Result<(), Refused> {
    check_cluster(ctx, changes)?;
    check_validations(ctx, changes)?;
    check_templates(ctx, changes)?;
    check_access(ctx, changes)?;
    let pools = changes.iter().filter_map(|c| pool_of(&c.desired));
    for name in pools.collect::<BTreeSet<&PoolName>>() {
        // The last change exceeds the amount that those before it used up.
        let is_of_pool = |c: &&TermsChange| pool_of(&c.desired) == Some(name);
        let about = changes.iter().rev().filter(is_of_pool);
        let subjects: Vec<&Subject> = about.filter_map(|c| subject_of(&c.desired)).collect();
        let pool = ctx.state().scheduler().pool(name);
        let bad = pool.and_then(|pool| pool.check_policies(&subjects).err());
        if let Some((subject, why)) = bad {
            let about = |named: Option<&Subject>| {
                let is_of_pool = |c: &TermsChange| {
                    pool_of(&c.desired) == Some(name) && subject_of(&c.desired) == named
                };
                changes.iter().position(is_of_pool)
            };
            let at = about(Some(subject)).or_else(|| about(None));
            let refusal = Refusal::InvalidPolicy {
                pool: name.clone(),
                subject: subject.clone(),
                why,
            };
            return Err(Refused { at, refusal });
        }
    }
    Ok(())
}

/// Checks that every pool that the cluster's terms name exists once all changes are made.
fn check_cluster(ctx: &Context, changes: &[TermsChange]) -> Result<(), Refused> {
    let mut named = ctx.state().cluster().terms.pools();
    let Some((field, pool)) = named.find(|(_, pool)| ctx.state().pool(pool).is_none()) else {
        return Ok(());
    };
    let names = |c: &TermsChange| matches!(c.desired, Desired::Cluster { .. });
    let at = changes
        .iter()
        .position(|c| pool_of(&c.desired) == Some(pool));
    let at = at.or_else(|| changes.iter().position(names));
    let pool = pool.clone();
    let refusal = Refusal::ClusterNamesPool { pool, field };
    Err(Refused { at, refusal })
}

/// The queues that changes could affect, as they are before.
fn affected_kinds(ctx: &Context, changes: &[TermsChange]) -> BTreeSet<RequestKind> {
    let scheduler = ctx.state().scheduler();
    let mut found = BTreeSet::new();
    for wanted in changes.iter().map(|change| &change.desired) {
        if let Some(pool) = pool_of(wanted).filter(|_| !is_already(ctx, wanted)) {
            found.extend(scheduler.kinds_in(pool, only_affected_subject(ctx, wanted)));
        }
    }
    found
}

/// Rejects queued steps that could never start under the new terms, whatever hosts join. One step of each kind of
/// request is checked, and the others only if that one is rejected.
fn reject_what_never_starts(
    ctx: &mut Context,
    kinds: BTreeSet<RequestKind>,
    changed: &[&Desired],
) -> Vec<StepId> {
    let mut rejected = BTreeSet::new();
    for kind in kinds {
        // Some steps of one kind may wait for a platform to come.
        let first = never_starts(ctx, &kind.first, changed);
        if first.is_none() && loses_platform(ctx, &kind.first, changed).is_none() {
            continue;
        }
        for id in ctx.state().scheduler().alike(&kind) {
            if let Some(reason) = never_starts(ctx, &id, changed) {
                ctx.record(Record::StepEnded(record::StepEnded {
                    step: id.clone(),
                    state: StepState::Rejected,
                    reason,
                }));
                rejected.insert(id);
            }
        }
    }
    rejected.into_iter().collect()
}

/// The preemptions that are possible now, as far as changes affect them.
fn preemptions_before<'a>(ctx: &Context, changes: &'a [TermsChange]) -> Vec<PreemptionsBefore<'a>> {
    let mut about: BTreeMap<&PoolName, Option<BTreeSet<&Subject>>> = BTreeMap::new();
    for wanted in changes.iter().map(|change| &change.desired) {
        let Some(pool) = pool_of(wanted).filter(|_| !is_already(ctx, wanted)) else {
            continue;
        };
        let subjects = about.entry(pool).or_insert_with(|| Some(BTreeSet::new()));
        match (only_affected_subject(ctx, wanted), &mut *subjects) {
            (Some(subject), Some(subjects)) => _ = subjects.insert(subject),
            (Some(_), None) => {}
            (None, all) => *all = None,
        }
    }
    let scheduler = ctx.state().scheduler();
    let about = about.into_iter().map(|(pool, subjects)| PreemptionsBefore {
        pool,
        claims: scheduler.possible_preemptions(pool, subjects.as_ref()),
        subjects,
    });
    about.collect()
}

/// Running steps that can be preempted now and could not be before.
fn newly_at_risk(ctx: &Context, before: &[PreemptionsBefore<'_>]) -> Vec<StepId> {
    let scheduler = ctx.state().scheduler();
    let runs = before.iter().flat_map(|it| {
        let subjects = it.subjects.as_ref();
        scheduler.newly_at_risk(it.pool, &it.claims, subjects, ctx.now())
    });
    let steps: BTreeSet<StepId> = runs.map(|run| run.step.clone()).collect();
    steps.into_iter().collect()
}

/// Runs the scheduler in the dry run, and returns each preempted step with the step that preempts it.
fn preempts(ctx: &mut Context) -> Vec<(StepId, StepId)> {
    let mark = ctx.state().seq();
    schedule(ctx);
    let given = ctx.records_after(mark).filter_map(Record::gives_way);
    let given = given.map(|(gives, to)| (gives.clone(), to.clone()));
    given.collect()
}

/// The possible preemptions in a pool before changes: by some subjects, or by all.
struct PreemptionsBefore<'a> {
    pool: &'a PoolName,
    subjects: Option<BTreeSet<&'a Subject>>,
    claims: PossiblePreemptions,
}

/// Rejects two changes of the same object, because their order would be arbitrary.
fn check_duplicates(changes: &[TermsChange]) -> Result<(), Refused> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        let what = name_of(&change.desired);
        if let Some(first) = listing(changes, &change.desired) {
            return Err(refused(at, Refusal::Twice { what, first }));
        }
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
