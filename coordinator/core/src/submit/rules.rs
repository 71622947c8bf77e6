//! Applies the rules of pools to a submitted step: which pools exclude it, and which defaults it gets. A rule only
//! removes its pool from the candidates; the scheduler judges the rest. Rules do not affect steps that are queued or
//! running.
//!
//! ```text
//! as written --(pools that bar it)--> candidates --(most preferred that could grant it)--> its defaults filled in,
//!    cut to its maxima --(pools that bar that)--> queued in what is left
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::PoolName;
use sluice_common::inventory::Capability;
use sluice_common::mig::GpuClass;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::step::StepSpec;
use sluice_common::template::check::TemplateViolation;
use sluice_common::time::Span;
use sluice_reasons::rejection::{RuleBreach, SettingValue};
use sluice_reasons::{Cause, Exclusion, Rejection};
use sluice_scheduler::Request;

use crate::context::Context;
use crate::model::cluster::Route;
use crate::model::pool::Pool;
use crate::model::step::Step;
use crate::model::template::Provenance;
use crate::output::Refusal;
use crate::state::request;
use crate::submit::default_amounts::with_amounts;
use crate::submit::effective_spec::preview_effective_step;
use crate::submit::feasible::{never_in, rejected};
use crate::submit::fill::fill;
use crate::submit::layers::provenance_of;
use crate::submit::origins::of_settings;
use crate::submit::validation::invalid_in;

/// The decision about a submitted step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubmitDecision {
    Queued {
        /// The spec with everything filled in.
        spec: StepSpec,
        /// The pools that exclude it.
        excluded_pools: BTreeSet<PoolName>,
        /// Route by the cluster's defaults.
        route: Route,
        /// Templates under it.
        provenance: Provenance,
    },
    /// The step could never run.
    Rejected {
        /// The spec as it was written.
        spec: StepSpec,
        reason: Cause,
    },
}

/// The reason why a candidate pool does not take a step.
enum PoolObstacle {
    /// The step could never be granted there, or a rule or an assertion of the pool excludes it.
    Never(Rejection),
    /// The pool would take it after its maintenance.
    Maintenance(String),
}

/// Decides about a step by the rules of pools, and by the scheduler in those that remain. `request` is the step as
/// written.
pub(crate) fn admit_by_rules(
    ctx: &Context,
    request: &Request,
    route: Route,
    spec: StepSpec,
    past_maintenance: bool,
) -> Result<SubmitDecision, Refusal> {
    let mut obstacles = Vec::new();
    for (name, pool) in ctx.state().scheduler().pools_for(request) {
        let Some(terms) = ctx.state().pool(name) else {
            continue;
        };
        let layers = ctx.state().layers_of(terms, request);
        let mut asks = request.clone();
        let forbidden = layers.forbid(name, &spec);
        let guard = forbidden.is_none().then(|| layers.guard(terms, &spec));
        if let Some(guard) = guard.filter(|guard| !guard.is_empty()) {
            asks.guards.insert(name.clone(), guard);
        }
        let filled = with_amounts(ctx.state(), terms, layers.first(), &asks, &spec);
        let asks = asks.with_amounts(&filled.request);
        let scheduler = ctx.state().scheduler();
        let never = scheduler.infeasible(pool, &asks, terms.may_wait_for_hosts(&spec));
        let invalid = || invalid_as_filled(ctx, terms, &asks, &spec);
        let never = || never.map(|never| never_in(ctx, name, &asks, never));
        let broken = || breach(terms, &spec).or_else(|| forbidden.map(by_template));
        let broken = || broken().map(|breach| breaks_rule(name, breach));
        let closed = || closed(terms).filter(|_| !past_maintenance);
        // First the validity of the step, then whether it could ever be granted.
        let never = needs_hosts(terms, &spec)
            .map(|breach| breaks_rule(name, breach))
            .or_else(invalid)
            .or_else(never)
            .or_else(broken);
        match never.map(PoolObstacle::Never).or_else(closed) {
            None => {
                let (filled, past) = (filled.into_owned(), past_maintenance);
                return Ok(queued_under(ctx, terms, route, request, filled, past));
            }
            Some(obstacle) => obstacles.push((name.clone(), obstacle)),
        }
    }
    admitted_nowhere(request, spec, obstacles)
}

/// The rejection by the validations of a pool, with everything filled in.
fn invalid_as_filled(
    ctx: &Context,
    pool: &Pool,
    request: &Request,
    spec: &StepSpec,
) -> Option<Rejection> {
    let mut platforms = pool.platforms.values();
    if pool.spec.validations.is_empty() && platforms.all(|it| it.terms.validations.is_empty()) {
        return None;
    }
    invalid_in(ctx, &pool.name, request, &as_filled(ctx, &pool.name, spec))
}

/// The step with everything filled in by a pool.
pub(crate) fn as_filled(ctx: &Context, pool: &PoolName, spec: &StepSpec) -> StepSpec {
    match ctx.state().pool(pool) {
        Some(pool) => preview_effective_step(ctx, spec, pool).0,
        None => spec.clone(),
    }
}

/// The first rule of a pool that the written fields of a step break.
pub(crate) fn broken_rule(ctx: &Context, pool: &PoolName, spec: &StepSpec) -> Option<Rejection> {
    let terms = ctx.state().pool(pool)?;
    let request = Request::from_spec(crate::submit::effective_spec::placeholder_id(), 0, spec);
    let layers = ctx.state().layers_of(terms, &request);
    let broken = breach(terms, spec);
    let broken = broken.or_else(|| layers.forbid(pool, spec).map(by_template));
    broken.map(|breach| breaks_rule(pool, breach))
}

/// Queues the step with the settings of the most preferred pool that could grant it. Pools that exclude it with these
/// settings are excluded.
fn queued_under(
    ctx: &Context,
    preferred: &Pool,
    route: Route,
    request: &Request,
    mut spec: StepSpec,
    past_maintenance: bool,
) -> SubmitDecision {
    let settings = of_settings(preferred, ctx.state(), request, &spec);
    fill(&preferred.spec, &mut spec);
    let as_said = StepSpec {
        unset: BTreeSet::new(),
        ..spec.clone()
    };
    let others = ctx.state().pools().values();
    let others = others.filter(|pool| pool.name != preferred.name);
    let (excluded_pools, open): (Vec<&Pool>, Vec<&Pool>) = others.partition(|pool| {
        let layers = ctx.state().layers_of(pool, request);
        !past_maintenance && pool.spec.maintenance.is_some()
            || breach(pool, &as_said).is_some()
            || layers.forbid(&pool.name, &as_said).is_some()
            || invalid_in(ctx, &pool.name, request, &as_said).is_some()
    });
    let open = open
        .into_iter()
        .filter(|pool| request.may_run_in(&pool.name, pool.made));
    let mut provenance = provenance_of(
        ctx,
        request,
        &as_said,
        core::iter::once(preferred).chain(open),
    );
    provenance.settings = settings;
    let excluded_pools = excluded_pools
        .into_iter()
        .map(|pool| pool.name.clone())
        .collect();
    SubmitDecision::Queued {
        spec,
        excluded_pools,
        route,
        provenance,
    }
}

/// Queues a step inside an allocation under the rules and the templates of a pool in which that is, or may be.
///
/// # Errors
/// A rule, a template or a validation of the pool forbids the step.
pub(crate) fn queued_inside(
    ctx: &Context,
    pool: &Pool,
    allocation: &Step,
    request: &Request,
    spec: &StepSpec,
) -> Result<SubmitDecision, Box<Rejection>> {
    let layers = ctx.state().layers_of(pool, request);
    let broken = || breach(pool, spec).or_else(|| layers.forbid(&pool.name, spec).map(by_template));
    let broken = || broken().map(|breach| breaks_rule(&pool.name, breach));
    let invalid = invalid_as_filled(ctx, pool, request, spec);
    if let Some(never) = invalid.or_else(broken) {
        return Err(never.into());
    }
    let route = Route::clone(&allocation.route);
    // The allocation is there already, so no maintenance keeps it out.
    Ok(queued_under(ctx, pool, route, request, spec.clone(), true))
}

/// The pools that exclude a queued step, each with the reason. Rules may have changed since the submit; those of the
/// submit count.
pub(crate) fn excluded_from(ctx: &Context, step: &Step) -> Vec<(PoolName, Exclusion)> {
    let as_said = StepSpec {
        unset: BTreeSet::new(),
        ..StepSpec::clone(&step.spec)
    };
    let request = request(step);
    let elsewhere = |pool: &PoolName| request.pool.as_ref().is_some_and(|only| only != pool);
    let known = ctx.state().pools().iter();
    let excluded_pools = known.filter(|(name, pool)| {
        let kept_out = step.excluded_pools.contains(*name) || request.is_older_than(pool.made);
        kept_out && !elsewhere(name)
    });
    let bound = excluded_pools.filter(|(name, _)| {
        let known = ctx.state().scheduler().pool(name);
        known.is_some_and(|known| known.policy(&request.subject).is_some())
    });
    let why = bound.map(|(name, pool)| {
        if request.is_older_than(pool.made) {
            return (name.clone(), Exclusion::MadeAfter);
        }
        let invalid = || invalid_in(ctx, name, &request, &as_said);
        let layers = ctx.state().layers_of(pool, &request);
        let forbidden = || layers.forbid(name, &as_said);
        let rule = breach(pool, &as_said).or_else(|| forbidden().map(by_template));
        let rule = rule.map(|breach| breaks_rule(name, breach));
        let why = match (rule.or_else(invalid), &pool.spec.maintenance) {
            (Some(never), _) => Exclusion::Never(never),
            (None, Some(message)) => Exclusion::Maintenance(message.clone()),
            (None, None) => Exclusion::BeforeChange,
        };
        (name.clone(), why)
    });
    why.collect()
}

fn closed(pool: &Pool) -> Option<PoolObstacle> {
    pool.spec.maintenance.clone().map(PoolObstacle::Maintenance)
}

/// Rejects the step for the reason of the most preferred pool, and lists the others. If a pool would take it after
/// its maintenance, the submit is refused instead and may be repeated.
fn admitted_nowhere(
    request: &Request,
    spec: StepSpec,
    obstacles: Vec<(PoolName, PoolObstacle)>,
) -> Result<SubmitDecision, Refusal> {
    let mut never = Vec::new();
    for (pool, obstacle) in obstacles {
        match obstacle {
            PoolObstacle::Never(why) => never.push(why),
            PoolObstacle::Maintenance(message) => {
                let named = spec.pool.is_some();
                return Err(Refusal::PoolInMaintenance {
                    pool,
                    message,
                    named,
                });
            }
        }
    }
    let reason = rejected(never.into_iter(), request);
    Ok(SubmitDecision::Rejected { spec, reason })
}

fn breaks_rule(pool: &PoolName, breach: RuleBreach) -> Rejection {
    let pool = pool.clone();
    Rejection::BreaksRule { pool, breach }
}

fn by_template(forbidden: TemplateViolation) -> RuleBreach {
    RuleBreach::Template {
        code: forbidden.code,
        field: forbidden.field,
        what: forbidden.message,
    }
}

/// The field by which a step asks for what only hosts have, if the pool has none.
fn needs_hosts(pool: &Pool, spec: &StepSpec) -> Option<RuleBreach> {
    if !pool.is_hostless() {
        return None;
    }
    let fields = [
        ("command", spec.lease.is_none()),
        ("nodes", spec.nodes > 1),
        ("platform", spec.platform.is_some()),
        ("mig", spec.gpu_class() != GpuClass::Whole),
        ("within", spec.within.is_some()),
        ("cpu_mode", spec.cpu_mode == CpuMode::Pinned),
        // Such as cores alone, which belong to another pool of its subject.
        ("resources", !pool.counts_any_of(&spec.request)),
    ];
    let (field, _) = fields.into_iter().find(|(_, is_set)| *is_set)?;
    Some(RuleBreach::NoHosts {
        field: String::from(field),
    })
}

/// The first rule that the written fields of a step break. Fields that are left out break none: they are filled in.
fn breach(pool: &Pool, spec: &StepSpec) -> Option<RuleBreach> {
    let rules = &pool.spec;
    let says = |setting| !spec.unset.contains(&setting);
    let max = &rules.max;
    // Without a bound the step would run, or wait, forever.
    let spans = [
        (Setting::Timeout, spec.timeout, max.timeout),
        (Setting::QueueTimeout, spec.queue_timeout, max.queue_timeout),
        (Setting::GracePeriod, Some(spec.grace), max.grace_period),
    ];
    let mut spans = spans.into_iter().filter(|(setting, ..)| says(*setting));
    let long = spans.find_map(|(setting, asked, most)| above_span(setting, asked, most?));
    let often = || {
        let most = max.retries.filter(|most| spec.retries > *most)?;
        says(Setting::Retries).then_some(RuleBreach::Above {
            setting: Setting::Retries,
            asked: SettingValue::Times(spec.retries),
            most: SettingValue::Times(most),
        })
    };
    let mode = || {
        // An allocation has no choice: only its holder could take it up again. What runs inside it goes with it.
        let is_bound = spec.lease.is_some() || spec.inside.is_some();
        let chooses = says(Setting::OnPreempt) && !is_bound;
        let allowed = !chooses || rules.allows(spec.on_preempt);
        (!allowed).then(|| RuleBreach::Mode {
            asked: spec.on_preempt,
            allowed: rules.on_preempt_allowed.clone(),
        })
    };
    let unpinned = || {
        let pins = pool.spec.require.contains(&Capability::Cpuset);
        (spec.cpu_mode == CpuMode::Pinned && !pins).then_some(RuleBreach::NotPinned)
    };
    needs_hosts(pool, spec)
        .or(long)
        .or_else(often)
        .or_else(mode)
        .or_else(unpinned)
}

fn above_span(setting: Setting, asked: Option<Span>, most: Span) -> Option<RuleBreach> {
    if asked.is_some_and(|asked| asked <= most) {
        return None;
    }
    Some(RuleBreach::Above {
        setting,
        asked: asked.map_or(SettingValue::Unbounded, SettingValue::Lasting),
        most: SettingValue::Lasting(most),
    })
}
