//! What the rules of pools make of a step that is submitted: which pools do not let it in, and what holds where it says
//! nothing. A rule only removes its pool from the candidates; what is left is judged by the market. Steps that wait or
//! run already are not touched when rules change: what they were submitted under holds for them.
//!
//! ```text
//! as written --(pools that bar it)--> candidates --(most preferred that could grant it)--> its defaults filled in,
//!    cut to its maxima --(pools that bar that)--> queued in what is left
//! ```

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::PoolName;
use sluice_common::inventory::Capability;
use sluice_common::processors::CpuMode;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::rules::Setting;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::template::check::Forbidden;
use sluice_common::time::Span;
use sluice_scheduler::Request;

use crate::context::Context;
use crate::model::cluster::Home;
use crate::model::pool::Pool;
use crate::model::step::Step;
use crate::model::template::Grounds;
use crate::output::Refusal;
use crate::state::request;
use crate::submit::effective_spec::would_merge;
use crate::submit::feasible::{foremost, never_in, no_policy};
use crate::submit::fill::fill;
use crate::submit::layers::{grounds, standing_on};
use crate::submit::origins::of_settings;
use crate::submit::validation::invalid_in;

/// What becomes of a step that is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It waits.
    Queued {
        /// With everything filled in.
        spec: StepSpec,
        /// In any pool but these.
        barred: BTreeSet<PoolName>,
        /// Where the cluster's defaults send it.
        home: Home,
        /// What templates lay under it.
        grounds: Grounds,
    },
    /// It could never run.
    Rejected {
        /// As it was written.
        spec: StepSpec,
        /// Why.
        reason: Reason,
    },
}

/// Why a candidate does not take a step.
enum Obstacle {
    /// The market could never grant it there.
    Never(Reason),
    /// A rule of the pool.
    Rule(Breach),
    /// A document of assertions of the pool.
    Invalid(Reason),
    /// It would take it, and takes nothing now.
    Maintenance(String),
}

/// A rule that a step breaks by what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    /// It says more than it may.
    Above {
        setting: Setting,
        asked: String,
        most: String,
    },
    /// It would give way in a mode that is not allowed.
    Mode {
        asked: OnPreempt,
        allowed: BTreeSet<OnPreempt>,
    },
    /// It is to have processors of its own, and the pool does not see to it that its hosts can give them.
    NotPinned,
    /// It asks for what the pool's templates do not let be.
    Template(Forbidden),
}

/// Judges a step by the rules of pools, and by the market in those that they leave. `request` is the step as
/// written.
pub(crate) fn admit_by_rules(
    ctx: &Context,
    request: &Request,
    home: Home,
    spec: StepSpec,
    past_maintenance: bool,
) -> Result<Admitted, Refusal> {
    let mut obstacles = Vec::new();
    for (name, pool) in ctx.state().market().candidates(request) {
        let Some(terms) = ctx.state().pool(name) else {
            continue;
        };
        let layers = ctx.state().layers_of(terms, request);
        let there = standing_on(layers.first(), &spec);
        let mut asks = request.asking(&there.request);
        let forbidden = layers.forbid(name, &spec);
        let guard = forbidden.is_none().then(|| layers.guard(terms, &spec));
        if let Some(guard) = guard.filter(|guard| !guard.is_empty()) {
            asks.guards.insert(name.clone(), guard);
        }
        let market = ctx.state().market();
        let never = market.never(pool, &asks, spec.allow_pending);
        let invalid = || invalid_as_filled(ctx, terms, &asks, &spec).map(Obstacle::Invalid);
        let never = || never.map(|never| Obstacle::Never(never_in(ctx, name, &asks, never)));
        let broken = || {
            let rule = breach(terms, &spec);
            let rule = rule.or_else(|| forbidden.map(Breach::Template));
            rule.map(Obstacle::Rule)
        };
        let closed = || closed(terms).filter(|_| !past_maintenance);
        // What is judged first is what the step is, then whether it could ever be granted.
        match invalid().or_else(never).or_else(broken).or_else(closed) {
            None => {
                let there = there.into_owned();
                return Ok(queued_under(
                    ctx,
                    terms,
                    home,
                    request,
                    there,
                    past_maintenance,
                ));
            }
            Some(obstacle) => obstacles.push((name.clone(), obstacle)),
        }
    }
    admitted_nowhere(request, spec, obstacles)
}

/// Why the documents of a pool do not let a step in as it would be there.
fn invalid_as_filled(
    ctx: &Context,
    pool: &Pool,
    request: &Request,
    spec: &StepSpec,
) -> Option<Reason> {
    let mut platforms = pool.platforms.values();
    if pool.spec.rules.validations.is_empty() && platforms.all(|it| it.terms.validations.is_empty())
    {
        return None;
    }
    invalid_in(ctx, &pool.name, request, &as_filled(ctx, &pool.name, spec))
}

/// A step as it would be in a pool, with everything filled in.
pub(crate) fn as_filled(ctx: &Context, pool: &PoolName, spec: &StepSpec) -> StepSpec {
    match ctx.state().pool(pool) {
        Some(pool) => would_merge(ctx, spec, pool).0,
        None => spec.clone(),
    }
}

/// The first rule of a pool that a step breaks by what it says.
pub(crate) fn broken_rule(ctx: &Context, pool: &PoolName, spec: &StepSpec) -> Option<Reason> {
    let terms = ctx.state().pool(pool)?;
    let request = Request::of(crate::submit::effective_spec::nobody(), 0, spec);
    let layers = ctx.state().layers_of(terms, &request);
    let broken = breach(terms, spec);
    let broken = broken.or_else(|| layers.forbid(pool, spec).map(Breach::Template));
    broken.map(|breach| breach.reason(pool))
}

/// What holds is what the most preferred pool says that could grant it; pools that would not have it so are barred.
fn queued_under(
    ctx: &Context,
    preferred: &Pool,
    home: Home,
    request: &Request,
    mut spec: StepSpec,
    past_maintenance: bool,
) -> Admitted {
    let settings = of_settings(preferred, ctx.state(), request, &spec);
    fill(&preferred.spec.rules, &mut spec);
    let as_said = StepSpec {
        unsaid: BTreeSet::new(),
        ..spec.clone()
    };
    let others = ctx.state().pools().values();
    let others = others.filter(|pool| pool.name != preferred.name);
    let (barred, open): (Vec<&Pool>, Vec<&Pool>) = others.partition(|pool| {
        let layers = ctx.state().layers_of(pool, request);
        !past_maintenance && pool.spec.rules.maintenance.is_some()
            || breach(pool, &as_said).is_some()
            || layers.forbid(&pool.name, &as_said).is_some()
            || invalid_in(ctx, &pool.name, request, &as_said).is_some()
    });
    let open = open
        .into_iter()
        .filter(|pool| request.may_run_in(&pool.name, pool.made));
    let mut grounds = grounds(
        ctx,
        request,
        &as_said,
        core::iter::once(preferred).chain(open),
    );
    grounds.settings = settings;
    let barred = barred.into_iter().map(|pool| pool.name.clone()).collect();
    Admitted::Queued {
        spec,
        barred,
        home,
        grounds,
    }
}

/// The pools that do not let a step in that waits for others, each with why. Rules may have changed since it was
/// submitted; what held then holds for it.
pub(crate) fn barred_from(ctx: &Context, step: &Step) -> Vec<(PoolName, String)> {
    let as_said = StepSpec {
        unsaid: BTreeSet::new(),
        ..step.spec.clone()
    };
    let request = request(step);
    let elsewhere = |pool: &PoolName| request.pool.as_ref().is_some_and(|only| only != pool);
    let known = ctx.state().pools().iter();
    let barred = known.filter(|(name, pool)| {
        let kept_out = step.barred.contains(*name) || request.is_older_than(pool.made);
        kept_out && !elsewhere(name)
    });
    let bound = barred.filter(|(name, _)| {
        let known = ctx.state().market().pool(name);
        known.is_some_and(|known| known.policy(&request.subject).is_some())
    });
    let why = bound.map(|(name, pool)| {
        if request.is_older_than(pool.made) {
            return (name.clone(), made_after(name));
        }
        let invalid = || invalid_in(ctx, name, &request, &as_said);
        let layers = ctx.state().layers_of(pool, &request);
        let forbidden = || layers.forbid(name, &as_said);
        let rule = breach(pool, &as_said).or_else(|| forbidden().map(Breach::Template));
        let rule = rule.map(|breach| breach.reason(name));
        let why = match (rule.or_else(invalid), &pool.spec.rules.maintenance) {
            (Some(reason), _) => reason.message,
            (None, Some(message)) => {
                format!("pool `{name}` takes no new steps: {message}")
            }
            (None, None) => format!(
                "a rule of pool `{name}` kept it out when it was submitted: submit it again to have it considered"
            ),
        };
        (name.clone(), why)
    });
    why.collect()
}

fn made_after(pool: &PoolName) -> String {
    format!("pool `{pool}` was made after it was submitted: submit it again to have it considered")
}

fn closed(pool: &Pool) -> Option<Obstacle> {
    pool.spec
        .rules
        .maintenance
        .clone()
        .map(Obstacle::Maintenance)
}

/// Where a pool would take it but for its maintenance, it may be submitted again. Else it is rejected, for the reason of
/// the most preferred pool; the others are listed.
fn admitted_nowhere(
    request: &Request,
    spec: StepSpec,
    obstacles: Vec<(PoolName, Obstacle)>,
) -> Result<Admitted, Refusal> {
    let mut reasons = Vec::new();
    for (pool, obstacle) in obstacles {
        reasons.push(match obstacle {
            Obstacle::Never(reason) => (reason, pool),
            Obstacle::Rule(breach) => (breach.reason(&pool), pool),
            Obstacle::Invalid(reason) => (reason, pool),
            Obstacle::Maintenance(message) => {
                let named = spec.pool.is_some();
                return Err(Refusal::PoolInMaintenance {
                    pool,
                    message,
                    named,
                });
            }
        });
    }
    let reason = foremost(reasons.into_iter()).unwrap_or_else(|| no_policy(request));
    Ok(Admitted::Rejected { spec, reason })
}

impl Breach {
    fn reason(&self, pool: &PoolName) -> Reason {
        let reason = match self {
            Breach::Above {
                setting,
                asked,
                most,
            } => {
                let message =
                    format!("its `{setting}` is {asked}, and pool `{pool}` allows {most} at most");
                let reason = Reason::new(ReasonCode::ExceedsMaximum, message);
                let reason = reason.with("field", setting.as_str());
                reason
                    .with("asked", asked.as_str())
                    .with("maximum", most.as_str())
            }
            Breach::Mode { asked, allowed } => {
                let asked = asked.as_str();
                let words: Vec<&str> = allowed.iter().map(|mode| mode.as_str()).collect();
                let message = format!(
                    "its `on_preempt` is `{asked}`, and pool `{pool}` allows `{}`",
                    words.join("`, `")
                );
                let reason = Reason::new(ReasonCode::OnPreemptNotAllowed, message);
                let reason = reason.with("field", Setting::OnPreempt.as_str());
                reason
                    .with("asked", asked)
                    .with("allowed", words.join(",").as_str())
            }
            Breach::NotPinned => {
                let message = format!(
                    "it is to have processors of its own, and pool `{pool}` does not require `cpuset` of its hosts, so that \
                     some may not be able to give them: take another pool, or write `require: [cpuset]` for this one"
                );
                let reason = Reason::new(ReasonCode::CpuModeNotAllowed, message);
                let reason = reason.with("field", "cpu_mode");
                reason.with("asked", CpuMode::Pinned.as_str())
            }
            Breach::Template(Forbidden {
                code,
                field,
                message,
            }) => {
                let message = format!("pool `{pool}`: {message}");
                Reason::new(*code, message).with("field", field.as_str())
            }
        };
        reason.with("pool", pool.as_str())
    }
}

/// The first rule that a step breaks by what it says. What it does not say breaks none: that is filled in.
fn breach(pool: &Pool, spec: &StepSpec) -> Option<Breach> {
    let rules = &pool.spec.rules;
    let says = |setting| !spec.unsaid.contains(&setting);
    let max = &rules.max;
    // Without a bound it would run, or wait, for ever.
    let spans = [
        (Setting::Timeout, spec.timeout, max.timeout),
        (Setting::QueueTimeout, spec.queue_timeout, max.queue_timeout),
        (Setting::GracePeriod, Some(spec.grace), max.grace_period),
    ];
    let mut spans = spans.into_iter().filter(|(setting, ..)| says(*setting));
    let long = spans.find_map(|(setting, asked, most)| above_span(setting, asked, most?));
    let often = || {
        let most = max.retries.filter(|most| spec.retries > *most)?;
        says(Setting::Retries).then(|| Breach::Above {
            setting: Setting::Retries,
            asked: spec.retries.to_string(),
            most: most.to_string(),
        })
    };
    let mode = || {
        let allowed = !says(Setting::OnPreempt) || rules.allows(spec.on_preempt);
        (!allowed).then(|| Breach::Mode {
            asked: spec.on_preempt,
            allowed: rules.on_preempt_allowed.clone(),
        })
    };
    let unpinned = || {
        let pins = pool.spec.require.contains(&Capability::Cpuset);
        (spec.cpu_mode == CpuMode::Pinned && !pins).then_some(Breach::NotPinned)
    };
    long.or_else(often).or_else(mode).or_else(unpinned)
}

fn above_span(setting: Setting, asked: Option<Span>, most: Span) -> Option<Breach> {
    let asked = match asked {
        Some(asked) if asked <= most => return None,
        Some(asked) => asked.to_string(),
        None => String::from("without bound"),
    };
    let most = most.to_string();
    Some(Breach::Above {
        setting,
        asked,
        most,
    })
}
