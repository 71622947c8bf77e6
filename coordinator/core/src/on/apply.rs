//! Platform leads set the terms of pools and bind subjects to them: several changes at once, all or none. What a pool
//! could not keep is refused whole; so is what takes from those who use a pool, unless it is forced, and even then
//! nothing that runs is stopped by it. What is so already is answered and not recorded.
//!
//! Changes are made, looked at as a whole, and kept or taken back (`context/dry_run.rs`). So what a dry run says is what
//! would happen, by the same code. Only what they concern is looked at: of a pool its own line and runs, of a policy its
//! subject's in that pool, and who could take them. Who uses what is taken away is said in `terms/uses.rs`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{GPU, ResourceKey};
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::state::StepState;
use sluice_scheduler::{PossiblePreemptions, RequestKind};

use crate::context::Context;
use crate::input::{Change, ReplyId, Wanted};
use crate::model::step::default_pool;
use crate::output::{Answer, Applied, Outcome, Refusal, Refused, Terms, Use};
use crate::record::Record;
use crate::schedule::schedule;
use crate::terms::about::{name_of, pool_of, rank, subject_of};
use crate::terms::access::{access_terms, change_access, vet_access};
use crate::terms::platforms::{
    bereft_of_platform, delete_platform, listing, put_platform, put_pool, undeclared_defaults,
    vet_platforms, with_platforms,
};
use crate::terms::templates::{
    delete_template, naming_what_is_gone, put_template, template_terms, vet_templates,
};
use crate::terms::uses::{never_starts, uses, waiting};
use crate::terms::validations::{
    delete_validation, put_validation, validation_terms, vet_validations,
};
use crate::{counted_by_hosts, record};

pub(crate) fn on_apply(
    ctx: &mut Context,
    reply: ReplyId,
    changes: &[Change],
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
        true => ctx.keep(trial),
        false => ctx.take_back(trial),
    }
    ctx.reply(reply, Answer::Applied(applied));
}

/// Makes all changes, and tells what they mean.
fn make_all(ctx: &mut Context, changes: &[Change]) -> Result<Applied, Refused> {
    each_once(changes)?;
    let changes = &with_platforms(ctx, changes)[..];
    let wanted = || changes.iter().map(|change| &change.wanted);
    let mut uses: Vec<Use> = wanted().flat_map(|it| uses(ctx.state(), it)).collect();
    let lines = lines_of(ctx, changes);
    let claims = claims_on(ctx, changes);
    let changed: Vec<&Wanted> = wanted().filter(|it| !is_so(ctx, it)).collect();
    let undeclared = undeclared_defaults(ctx, &changed);
    let outcomes = make_each(ctx, changes)?;
    vet(ctx, changes)?;
    vet_platforms(ctx, &undeclared, changes)?;
    uses.extend(naming_what_is_gone(ctx, changes));
    let rejected = reject_what_never_starts(ctx, lines, &changed);
    if !rejected.is_empty() {
        uses.push(waiting(&rejected));
    }
    Ok(Applied {
        outcomes,
        uses,
        exposed: exposed_since(ctx, &claims),
        preempted: preempts(ctx),
        rejected,
    })
}

fn make_each(ctx: &mut Context, changes: &[Change]) -> Result<Vec<Outcome>, Refused> {
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|at| rank(&changes[*at].wanted));
    for at in order {
        let outcome = make_change(ctx, &changes[at]);
        let outcome = outcome.map_err(|refusal| refused(at, refusal))?;
        outcomes.insert(at, outcome);
    }
    Ok(outcomes.into_values().collect())
}

fn make_change(ctx: &mut Context, change: &Change) -> Result<Outcome, Refusal> {
    let before = terms_of(ctx, &change.wanted);
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
            put_pool(ctx, pool, terms)?;
        }
        Wanted::Platform {
            pool,
            platform,
            terms,
        } => {
            known_pool(ctx, pool)?;
            put_platform(ctx, pool, platform, terms)?;
        }
        Wanted::NoPlatform { pool, platform } => {
            known_pool(ctx, pool)?;
            delete_platform(ctx, pool, platform)?;
        }
        Wanted::Cluster { terms } => {
            if before != Some(Terms::Cluster(terms.clone())) {
                let terms = terms.clone();
                ctx.record(Record::ClusterPut { terms });
            }
        }
        Wanted::Policy {
            pool,
            subject,
            policy,
        } => {
            known_pool(ctx, pool)?;
            if before != Some(Terms::Policy(policy.clone())) {
                ctx.record(Record::PolicyPut(record::PolicyPut {
                    pool: pool.clone(),
                    subject: subject.clone(),
                    policy: policy.clone(),
                }));
            }
        }
        Wanted::Validation { validation, terms } => {
            if before != Some(Terms::Validation(terms.clone())) {
                put_validation(ctx, validation, terms);
            }
        }
        Wanted::NoValidation { validation } => delete_validation(ctx, validation)?,
        Wanted::NoPolicy { pool, subject } => delete_policy(ctx, pool, subject)?,
        Wanted::NoPool { pool } => delete_pool(ctx, pool)?,
        Wanted::Template { template, terms } => put_template(ctx, template, terms),
        Wanted::NoTemplate { template } => delete_template(ctx, template)?,
        Wanted::Access { change } => change_access(ctx, change)?,
    }
    let after = terms_of(ctx, &change.wanted).map(|(terms, _)| terms);
    Ok(Outcome { before, after })
}

/// Whether what is wanted is there already.
fn is_so(ctx: &Context, wanted: &Wanted) -> bool {
    let terms = terms_of(ctx, wanted).map(|(terms, _)| terms);
    match wanted {
        Wanted::Pool { terms: it, .. } => terms == Some(Terms::Pool(it.clone())),
        Wanted::Platform { terms: it, .. } => terms == Some(Terms::Platform((**it).clone())),
        Wanted::Policy { policy, .. } => terms == Some(Terms::Policy(policy.clone())),
        Wanted::Cluster { terms: it } => terms == Some(Terms::Cluster(it.clone())),
        Wanted::Validation { terms: it, .. } => terms == Some(Terms::Validation(it.clone())),
        Wanted::Template { terms: it, .. } => terms == Some(Terms::Template(it.clone())),
        Wanted::NoPolicy { .. }
        | Wanted::NoPool { .. }
        | Wanted::NoPlatform { .. }
        | Wanted::NoTemplate { .. }
        | Wanted::NoValidation { .. } => terms.is_none(),
        // No pool looks different for it.
        Wanted::Access { .. } => false,
    }
}

/// The subject whom a change of a pool concerns alone. What one policy names of what hosts have, all of the pool are
/// held to.
fn alone_concerned<'a>(ctx: &Context, wanted: &'a Wanted) -> Option<&'a Subject> {
    let named = |policy: &PolicySpec| -> BTreeSet<ResourceKey> {
        let keys = policy.keys().filter(|key| counted_by_hosts(key.as_str()));
        keys.cloned().collect()
    };
    let mut before = BTreeSet::new();
    if let Some((Terms::Policy(policy), _)) = terms_of(ctx, wanted) {
        before = named(&policy);
    }
    let mut after = BTreeSet::new();
    if let Wanted::Policy { policy, .. } = wanted {
        after = named(policy);
    }
    let mut differ = before.symmetric_difference(&after);
    let same = differ.all(|key| key.as_str() == GPU);
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
    ctx.record(Record::PoolDeleted { pool });
    Ok(())
}

/// What there is now of what is wanted, with its version.
fn terms_of(ctx: &Context, wanted: &Wanted) -> Option<(Terms, u64)> {
    let pool_of = |name: &PoolName| ctx.state().pool(name);
    match wanted {
        Wanted::Cluster { .. } => {
            let cluster = ctx.state().cluster();
            Some((Terms::Cluster(cluster.terms.clone()), cluster.version))
        }
        Wanted::Validation { validation, .. } | Wanted::NoValidation { validation } => {
            validation_terms(ctx, validation)
        }
        Wanted::Template { template, .. } | Wanted::NoTemplate { template } => {
            template_terms(ctx, template)
        }
        Wanted::Access { change } => access_terms(ctx.state().access(), change),
        Wanted::Pool { pool, terms } => {
            let known = pool_of(pool)?;
            let written = known.as_written_by(Some(terms));
            Some((Terms::Pool(Box::new(written)), known.version))
        }
        Wanted::NoPool { pool } => {
            let known = pool_of(pool)?;
            let written = known.as_written_by(None);
            Some((Terms::Pool(Box::new(written)), known.version))
        }
        Wanted::Platform { pool, platform, .. } | Wanted::NoPlatform { pool, platform } => {
            let known = pool_of(pool)?.platforms.get(platform)?;
            Some((Terms::Platform(known.terms.clone()), known.version))
        }
        Wanted::Policy { pool, subject, .. } | Wanted::NoPolicy { pool, subject } => {
            let bound = pool_of(pool)?.policies.get(subject)?;
            Some((Terms::Policy(bound.policy.clone()), bound.version))
        }
    }
}

/// Whether every pool that is concerned could keep its promises, once all changes are made. The first change that
/// is to blame is named.
fn vet(ctx: &Context, changes: &[Change]) -> Result<(), Refused> {
    vet_cluster(ctx, changes)?;
    vet_validations(ctx, changes)?;
    vet_templates(ctx, changes)?;
    vet_access(ctx, changes)?;
    let pools = changes.iter().filter_map(|c| pool_of(&c.wanted));
    for name in pools.collect::<BTreeSet<&PoolName>>() {
        // The last goes over the line that those before it came up to.
        let its = |c: &&Change| pool_of(&c.wanted) == Some(name);
        let about = changes.iter().rev().filter(its);
        let subjects: Vec<&Subject> = about.filter_map(|c| subject_of(&c.wanted)).collect();
        let pool = ctx.state().market().pool(name);
        let bad = pool.and_then(|pool| pool.check_policies(&subjects).err());
        if let Some((subject, why)) = bad {
            let about = |named: Option<&Subject>| {
                let its =
                    |c: &Change| pool_of(&c.wanted) == Some(name) && subject_of(&c.wanted) == named;
                changes.iter().position(its)
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

/// Whether every pool is there that the cluster's terms name, once all changes are made.
fn vet_cluster(ctx: &Context, changes: &[Change]) -> Result<(), Refused> {
    let mut named = ctx.state().cluster().terms.pools();
    let Some((field, pool)) = named.find(|(_, pool)| ctx.state().pool(pool).is_none()) else {
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

/// The lines that changes could concern, as they are before.
fn lines_of(ctx: &Context, changes: &[Change]) -> BTreeSet<RequestKind> {
    let market = ctx.state().market();
    let mut found = BTreeSet::new();
    for wanted in changes.iter().map(|change| &change.wanted) {
        if let Some(pool) = pool_of(wanted).filter(|_| !is_so(ctx, wanted)) {
            found.extend(market.kinds_in(pool, alone_concerned(ctx, wanted)));
        }
    }
    found
}

/// What waits and could never start under these terms, whatever hosts come: it is rejected, for nothing waits in
/// vain. What is alike shares its fate, so one of each kind is looked at, and the others where it is rejected.
fn reject_what_never_starts(
    ctx: &mut Context,
    kinds: BTreeSet<RequestKind>,
    changed: &[&Wanted],
) -> Vec<StepId> {
    let mut rejected = BTreeSet::new();
    for kind in kinds {
        // Of what is alike some may wait for a platform to come.
        let first = never_starts(ctx, &kind.first, changed);
        if first.is_none() && bereft_of_platform(ctx, &kind.first, changed).is_none() {
            continue;
        }
        for id in ctx.state().market().alike(&kind) {
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

/// Who could take what of whom, as far as changes concern it.
fn claims_on<'a>(ctx: &Context, changes: &'a [Change]) -> Vec<About<'a>> {
    let mut about: BTreeMap<&PoolName, Option<BTreeSet<&Subject>>> = BTreeMap::new();
    for wanted in changes.iter().map(|change| &change.wanted) {
        let Some(pool) = pool_of(wanted).filter(|_| !is_so(ctx, wanted)) else {
            continue;
        };
        let subjects = about.entry(pool).or_insert_with(|| Some(BTreeSet::new()));
        match (alone_concerned(ctx, wanted), &mut *subjects) {
            (Some(subject), Some(subjects)) => _ = subjects.insert(subject),
            (Some(_), None) => {}
            (None, all) => *all = None,
        }
    }
    let market = ctx.state().market();
    let about = about.into_iter().map(|(pool, subjects)| About {
        pool,
        claims: market.possible_preemptions(pool, subjects.as_ref()),
        subjects,
    });
    about.collect()
}

/// Steps that run and that somebody could take now, and nobody of these before.
fn exposed_since(ctx: &Context, before: &[About<'_>]) -> Vec<StepId> {
    let market = ctx.state().market();
    let runs = before.iter().flat_map(|it| {
        let subjects = it.subjects.as_ref();
        market.newly_at_risk(it.pool, &it.claims, subjects, ctx.now())
    });
    let steps: BTreeSet<StepId> = runs.map(|run| run.step.clone()).collect();
    steps.into_iter().collect()
}

/// Lets the trial go on, and tells who gives way to whom at once.
fn preempts(ctx: &mut Context) -> Vec<(StepId, StepId)> {
    let mark = ctx.state().seq();
    schedule(ctx);
    let given = ctx.records_after(mark).filter_map(Record::gives_way);
    let given = given.map(|(gives, to)| (gives.clone(), to.clone()));
    given.collect()
}

/// Who could take what of a pool before changes of it: of some subjects, or of all.
struct About<'a> {
    pool: &'a PoolName,
    subjects: Option<BTreeSet<&'a Subject>>,
    claims: PossiblePreemptions,
}

/// Two changes of one thing have no order that means anything.
fn each_once(changes: &[Change]) -> Result<(), Refused> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        let what = name_of(&change.wanted);
        if let Some(first) = listing(changes, &change.wanted) {
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
