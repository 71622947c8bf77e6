//! Previews a submit, stage by stage, without storing anything: who may submit, what is filled in, what is asserted,
//! which hosts could hold the step, and where it would be queued. The last stage submits the step for real, lets the
//! scheduler decide, and rolls everything back (`context/dry_run.rs`).
//!
//! A step that may run in several pools passes a stage if one of them lets it.

mod filled;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId};
use sluice_common::step::StepSpec;
use sluice_reasons::Check;
use sluice_reasons::check::AssertionOutcome;
use sluice_scheduler::{Infeasible, Pool, Request};

use crate::arrays::advance::settle_steps;
use crate::arrays::first_open_part;
use crate::context::Context;
use crate::explain::holding::explain;
use crate::explain::reason;
use crate::handlers::submit::submit;
use crate::input::{NewStep, ReplyId};
use crate::model::pool::Pool as CurrentTerms;
use crate::output::preview::{CheckLine, CheckStatus, Preview, Previewed, Stage, StageReport};
use crate::output::{Answer, Refusal};
use crate::record::Record;
use crate::schedule::schedule;
use crate::submit::effective_spec::{EffectiveStep, preview_effective_step};
use crate::submit::feasible::{never_in, no_policy, unknown_pool};
use crate::submit::route::route_of;
use crate::submit::rules::broken_rule;
use crate::submit::validation::judged_in;

/// The result of a step's stages in one pool.
struct PoolPreview {
    lines: Vec<(Stage, CheckLine)>,
    /// The stage at which it failed, if it did.
    failed_at: Option<Stage>,
}

pub(crate) fn on_preview(ctx: &mut Context, reply: ReplyId, new: NewStep) {
    let preview = preview(ctx, &new, |ctx| submit(ctx, new.clone()).map(drop));
    ctx.reply(reply, Answer::Previewed(preview.into()));
}

/// Previews a step as it would be submitted; `enter` puts it into its queue in the last stage.
pub(crate) fn preview(
    ctx: &mut Context,
    new: &NewStep,
    enter: impl FnOnce(&mut Context) -> Result<(), Refusal>,
) -> Preview {
    let mut pools = asked_pools(ctx, new);
    let mark = ctx.state().seq();
    let trial = ctx.begin_dry_run();
    let entered = enter(ctx);
    if entered.is_ok() {
        settle_steps(ctx);
        schedule(ctx);
    }
    let outcome = entered.and_then(|()| {
        let previewed = previewed(ctx, &new.id, mark);
        previewed.ok_or_else(|| Refusal::UnknownStep {
            step: new.id.clone(),
        })
    });
    let queue = match &outcome {
        Ok(it) => Some(queue_lines(ctx, it)),
        Err(Refusal::UnknownDependency { on, .. }) => {
            let line = failed(None, Check::UnknownDependency { on: on.clone() });
            Some((CheckStatus::Failed, Vec::from([line])))
        }
        Err(
            refusal @ (Refusal::NotAnArray { .. }
            | Refusal::UnpairedPart { .. }
            | Refusal::IdInUse { .. }
            | Refusal::IdDeleted { .. }),
        ) => {
            let line = failed(None, Check::Refused(refusal.clone().into()));
            Some((CheckStatus::Failed, Vec::from([line])))
        }
        Err(Refusal::DeadlinePassed { deadline, .. }) => {
            let check = Check::DeadlinePassed {
                deadline: *deadline,
            };
            Some((CheckStatus::Failed, Vec::from([failed(None, check)])))
        }
        Err(_) => None,
    };
    ctx.take_back(trial);
    // If it failed before, the reason is there already.
    if let (Some((passage, lines)), None) = (queue, pools.failed_at) {
        let lines = lines.into_iter().map(|line| (Stage::Queue, line));
        pools.lines.extend(lines);
        pools.failed_at = (passage == CheckStatus::Failed).then_some(Stage::Queue);
    }
    let stages = stages(pools);
    Preview { stages, outcome }
}

/// Previews the step in each pool up to its queue. The result is that of the pool in which it came farthest.
fn asked_pools(ctx: &Context, new: &NewStep) -> PoolPreview {
    let route = route_of(ctx, &new.spec);
    let request = route.send(Request::from_spec(new.id.clone(), 0, &new.spec));
    let mut all = PoolPreview {
        lines: Vec::new(),
        failed_at: Some(Stage::Access),
    };
    let scheduler = ctx.state().scheduler();
    for (name, pool) in scheduler.pools_for(&request) {
        let Some(known) = ctx.state().pool(name) else {
            continue;
        };
        let (filled, merged) = preview_effective_step(ctx, &new.spec, known);
        let asks = request.with_amounts(&filled.request);
        let may_wait = known.may_wait_for_hosts(&new.spec);
        let never = scheduler.infeasible(pool, &asks, may_wait);
        let its = asked(ctx, known, &asks, new, (&filled, &merged), never);
        all.lines.extend(its.lines);
        all.failed_at = match (all.failed_at, its.failed_at) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (None, _) | (_, None) => None,
        };
    }
    if all.lines.is_empty() {
        let unknown = unknown_pool(ctx, request.pool.as_ref());
        let why = unknown.unwrap_or_else(|| no_policy(&request));
        let line = failed(request.pool.clone(), Check::NoPool(why));
        all.lines.push((Stage::Access, line));
    }
    all
}

/// Previews the step in one pool, stage by stage, up to the first that fails.
fn asked(
    ctx: &Context,
    pool: &CurrentTerms,
    request: &Request,
    new: &NewStep,
    (filled, merged): (&StepSpec, &EffectiveStep),
    never: Option<Infeasible>,
) -> PoolPreview {
    let (name, spec) = (&pool.name, &new.spec);
    let mut lines = Vec::from([(Stage::Access, access(ctx, name, request, spec))]);
    if let Some(closed) = closed_pool(pool, new.past_maintenance) {
        let failed_at = (closed.passage == CheckStatus::Failed).then_some(Stage::Access);
        lines.push((Stage::Access, closed));
        if failed_at.is_some() {
            return PoolPreview { lines, failed_at };
        }
    }
    let settings = filled::settings(name.as_str(), &pool.spec, spec, filled);
    let merge = settings.into_iter().chain(filled::layers(merged));
    lines.extend(merge.map(|it| (Stage::Merge, passed(name, it))));
    let broken = broken_rule(ctx, name, spec);
    let broken = broken.map(|it| failed(Some(name.clone()), Check::Never(it)));
    let judged = judged_in(ctx, name, request, filled).into_iter();
    let judged = judged.map(|it| assertion(name, it));
    let checks: Vec<CheckLine> = broken.into_iter().chain(judged).collect();
    let invalid = checks
        .iter()
        .any(|line| line.passage == CheckStatus::Failed);
    lines.extend(checks.into_iter().map(|line| (Stage::Validation, line)));
    if invalid {
        let failed_at = Some(Stage::Validation);
        return PoolPreview { lines, failed_at };
    }
    let (stage, line) = match never {
        Some(never) => {
            let stage = match never {
                Infeasible::NoHostFits { .. }
                | Infeasible::NoLevel { .. }
                | Infeasible::NoDomainFits { .. }
                | Infeasible::ExceedsEntitlement { .. } => Stage::Platform,
                Infeasible::UnknownResource { .. }
                | Infeasible::ExceedsPoolCapacity { .. }
                | Infeasible::ExceedsLimit { .. }
                | Infeasible::ExceedsReserved { .. } => Stage::Queue,
            };
            let never = never_in(ctx, name, request, never);
            let line = failed(Some(name.clone()), Check::Never(never));
            (Some(stage), Some(line))
        }
        None => (None, None),
    };
    if stage != Some(Stage::Platform) && !pool.is_hostless() {
        lines.push((Stage::Platform, hosts_line(ctx, name, request)));
    }
    lines.extend(stage.zip(line));
    PoolPreview {
        lines,
        failed_at: stage,
    }
}

fn access(ctx: &Context, name: &PoolName, request: &Request, spec: &StepSpec) -> CheckLine {
    let pool = ctx.state().scheduler().pool(name);
    let policy = pool.and_then(|pool| pool.policy(&request.subject));
    let priority = policy.map_or(0, |policy| policy.priority);
    let check = Check::Policy {
        subject: spec.subject.clone(),
        priority,
        by: Some(&request.subject)
            .filter(|by| **by != spec.subject)
            .cloned(),
        by_default: spec.pool.is_none() && request.pool.is_some(),
    };
    passed(name, check)
}

/// The line about the remembered hosts that could hold the step when empty.
fn hosts_line(ctx: &Context, name: &PoolName, request: &Request) -> CheckLine {
    let pool = ctx.state().scheduler().pool(name);
    let wanted = pool.map_or(&[][..], |pool| pool.wanted(request));
    let check = Check::Hosts {
        platforms: wanted.to_vec(),
        hosts: pool.map_or_else(Vec::new, |pool| could_hold(pool, request)),
    };
    passed(name, check)
}

/// The step in its state in the dry run.
fn previewed(ctx: &Context, id: &StepId, mark: u64) -> Option<Previewed> {
    let step = ctx.state().step(id)?;
    // Of an array, its first part shows where it would start.
    let part = first_open_part(ctx, step).unwrap_or(step);
    let id = &part.id;
    let scheduler = ctx.state().scheduler();
    let granted = part.latest().map(|attempt| &attempt.pool);
    let promised = scheduler.nomination(id).map(|promise| &promise.pool);
    let preferred = || scheduler.preferred_pool(scheduler.request(id)?);
    let pool = granted.or(promised).or_else(preferred);
    let preempts = ctx
        .records_after(mark)
        .filter_map(Record::gives_way)
        .filter(|(_, to)| *to == id)
        .map(|(gives, _)| gives.clone());
    Some(Previewed {
        step: step.clone(),
        reason: reason(ctx, step),
        pool: pool.or(step.only_pool()).cloned(),
        preempts: preempts.collect(),
    })
}

fn queue_lines(ctx: &Context, it: &Previewed) -> (CheckStatus, Vec<CheckLine>) {
    let Previewed { step, reason, .. } = it;
    let standing = reason.clone();
    let part = first_open_part(ctx, step).unwrap_or(step);
    let (passage, check) = match part.latest() {
        _ if step.state.is_terminal() => (CheckStatus::Failed, Check::Rejected(standing)),
        _ if !step.lets_parts_enter() => (CheckStatus::Passed, Check::Later(standing)),
        None => return (CheckStatus::Passed, places(ctx, it)),
        Some(attempt) => {
            let parts = attempt.parts.iter().filter(|part| !part.node.is_of_pool());
            let parts = parts.map(|part| (part.node.clone(), part.gpus.len()));
            let parts = parts.collect();
            (CheckStatus::Passed, Check::Starts { standing, parts })
        }
    };
    let line = CheckLine {
        pool: it.pool.clone(),
        passage,
        check,
    };
    (passage, Vec::from([line]))
}

/// The lines about each pool in which the step is queued: its place, and the reason.
fn places(ctx: &Context, it: &Previewed) -> Vec<CheckLine> {
    let explained = explain(ctx, &it.step.id);
    let pools = explained.map_or_else(Vec::new, |explained| explained.pools);
    let place = |pool: crate::explain::PoolWait<'_>| {
        let (ahead, waiting) = pool.inspection.position;
        let check = Check::Waits {
            place: (ahead + 1, waiting),
            wait: pool.reason,
        };
        passed(pool.inspection.pool, check)
    };
    pools.into_iter().map(place).collect()
}

fn closed_pool(pool: &CurrentTerms, admin: bool) -> Option<CheckLine> {
    let message = pool.spec.maintenance.clone()?;
    let check = Check::Maintenance { message, admin };
    Some(match admin {
        true => passed(&pool.name, check),
        false => failed(Some(pool.name.clone()), check),
    })
}

/// The hosts that could hold a request when empty, the preferred ones first.
fn could_hold(pool: &Pool, request: &Request) -> Vec<NodeName> {
    let mut seen = BTreeSet::new();
    let hosts = pool.hosts_that_fit(request);
    let hosts = hosts.filter(|node| seen.insert(*node));
    hosts.cloned().collect()
}

fn passed(pool: &PoolName, check: Check) -> CheckLine {
    CheckLine {
        pool: Some(pool.clone()),
        passage: CheckStatus::Passed,
        check,
    }
}

fn failed(pool: Option<PoolName>, check: Check) -> CheckLine {
    CheckLine {
        pool,
        passage: CheckStatus::Failed,
        check,
    }
}

fn assertion(pool: &PoolName, judged: Check) -> CheckLine {
    let fails = matches!(
        judged,
        Check::Assertion {
            outcome: AssertionOutcome::Fails(_),
            ..
        }
    );
    match fails {
        true => failed(Some(pool.clone()), judged),
        false => passed(pool, judged),
    }
}

/// The report of all stages: those before the failed one have passed, those after it were not reached.
fn stages(pools: PoolPreview) -> Vec<StageReport> {
    let PoolPreview { lines, failed_at } = pools;
    let reports = Stage::ALL.into_iter().map(|stage| {
        let its = lines.iter().filter(|(of, _)| *of == stage);
        StageReport {
            stage,
            passage: match failed_at {
                Some(end) if stage == end => CheckStatus::Failed,
                Some(end) if stage > end => CheckStatus::NotReached,
                Some(_) | None => CheckStatus::Passed,
            },
            lines: its.map(|(_, line)| line.clone()).collect(),
        }
    });
    reports.collect()
}
