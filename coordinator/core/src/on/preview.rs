//! What a submit would come to, stage by stage, with nothing stored: who may, what is filled in, what is asserted, which
//! hosts could hold it, and where it would stand. The last is no guess: the step is submitted in earnest, the market
//! makes its moves, and all of it is taken back (`context/dry_run.rs`). The stages before are asked of the same rules that
//! the submit asks.
//!
//! A step that may go to several pools has passed a stage where one of them has let it through.

mod filled;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use filled::Filled;
use sluice_common::id::{PoolName, StepId};
use sluice_common::reason::Reason;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_reasons::Rejection;
use sluice_reasons::messages::shortened;
use sluice_scheduler::{Infeasible, Pool, Request};

use crate::context::Context;
use crate::explain::holding::explain;
use crate::explain::reason;
use crate::input::{NewStep, ReplyId};
use crate::model::pool::Pool as Terms;
use crate::model::validation::{Judged, Outcome};
use crate::on::submit::submit;
use crate::output::preview::{Line, Passage, Preview, Previewed, Stage, StageReport};
use crate::output::{Answer, Refusal};
use crate::record::Record;
use crate::schedule::schedule;
use crate::submit::effective_spec::{MergedStep, would_merge};
use crate::submit::feasible::{never_in, no_policy, unknown_pool};
use crate::submit::route::home_of;
use crate::submit::rules::broken_rule;
use crate::submit::validation::judged_in;

/// How many hosts a line names.
const NAMED_HOSTS: usize = 10;

/// What became of a step in one pool.
struct InPool {
    lines: Vec<(Stage, Line)>,
    /// Where it ended, if it did.
    failed_at: Option<Stage>,
}

pub(crate) fn on_preview(ctx: &mut Context, reply: ReplyId, new: NewStep) {
    let mut pools = asked_pools(ctx, &new);
    let mark = ctx.state().seq();
    let trial = ctx.begin_dry_run();
    let id = new.id.clone();
    let submitted = submit(ctx, new);
    if submitted.is_ok() {
        schedule(ctx);
    }
    let outcome = submitted.and_then(|_| {
        let previewed = previewed(ctx, &id, mark);
        previewed.ok_or(Refusal::UnknownStep { step: id.clone() })
    });
    let queue = outcome.as_ref().map(|it| queue_lines(ctx, it));
    ctx.take_back(trial);
    // Where it ended before, its reason stands there already.
    if let (Ok((passage, lines)), None) = (queue, pools.failed_at) {
        let lines = lines.into_iter().map(|line| (Stage::Queue, line));
        pools.lines.extend(lines);
        pools.failed_at = (passage == Passage::Failed).then_some(Stage::Queue);
    }
    let stages = stages(pools);
    let answer = Answer::Previewed(Preview { stages, outcome }.into());
    ctx.reply(reply, answer);
}

/// What each pool makes of it up to its queue; where it ended is where it came farthest.
fn asked_pools(ctx: &Context, new: &NewStep) -> InPool {
    let home = home_of(ctx, &new.spec);
    let request = home.send(Request::of(new.id.clone(), 0, &new.spec));
    let mut all = InPool {
        lines: Vec::new(),
        failed_at: Some(Stage::Access),
    };
    let market = ctx.state().market();
    for (name, pool) in market.candidates(&request) {
        let Some(known) = ctx.state().pool(name) else {
            continue;
        };
        let (filled, merged) = would_merge(ctx, &new.spec, known);
        let asks = request.asking(&filled.request);
        let never = market.never(pool, &asks, new.spec.allow_pending);
        let its = asked(ctx, known, &asks, new, (&filled, &merged), never);
        all.lines.extend(its.lines);
        all.failed_at = match (all.failed_at, its.failed_at) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (None, _) | (_, None) => None,
        };
    }
    if all.lines.is_empty() {
        let why = why_nowhere(ctx, &request);
        all.lines
            .push((Stage::Access, failed(request.pool.clone(), "policy", why)));
    }
    all
}

fn why_nowhere(ctx: &Context, request: &Request) -> String {
    let unknown = unknown_pool(ctx, request.pool.as_ref());
    let why = unknown.unwrap_or_else(|| no_policy(request));
    why.said().message
}

/// One pool, stage by stage, up to the first that does not let it through.
fn asked(
    ctx: &Context,
    pool: &Terms,
    request: &Request,
    new: &NewStep,
    (filled, merged): (&StepSpec, &MergedStep),
    never: Option<Infeasible>,
) -> InPool {
    let (name, spec) = (&pool.name, &new.spec);
    let mut lines = Vec::from([(Stage::Access, access(ctx, name, request, spec))]);
    if let Some(closed) = closed_pool(pool, new.past_maintenance) {
        let failed_at = (closed.passage == Passage::Failed).then_some(Stage::Access);
        lines.push((Stage::Access, closed));
        if failed_at.is_some() {
            return InPool { lines, failed_at };
        }
    }
    let settings = filled::settings(name.as_str(), &pool.spec, spec, filled);
    let merge = settings.into_iter().chain(filled::layers(merged));
    lines.extend(merge.map(|it| (Stage::Merge, merge_line(name, it))));
    let broken = broken_rule(ctx, name, spec);
    let broken = broken.map(|it| rejected(name, &it));
    let judged = judged_in(ctx, name, request, filled).into_iter();
    let judged = judged.map(|it| assertion(name, it));
    let checks: Vec<Line> = broken.into_iter().chain(judged).collect();
    let invalid = checks.iter().any(|line| line.passage == Passage::Failed);
    lines.extend(checks.into_iter().map(|line| (Stage::Validation, line)));
    if invalid {
        let failed_at = Some(Stage::Validation);
        return InPool { lines, failed_at };
    }
    let (stage, line) = match never {
        Some(never) => {
            let stage = match never {
                Infeasible::NoHostFits { .. } => Stage::Platform,
                Infeasible::UnknownResource { .. }
                | Infeasible::ExceedsPoolCapacity { .. }
                | Infeasible::ExceedsLimit { .. }
                | Infeasible::ExceedsReserved { .. } => Stage::Queue,
            };
            let never = never_in(ctx, name, request, never);
            (Some(stage), Some(rejected(name, &never)))
        }
        None => (None, None),
    };
    if stage != Some(Stage::Platform) {
        lines.push((Stage::Platform, hosts_line(ctx, name, request)));
    }
    lines.extend(stage.zip(line));
    InPool {
        lines,
        failed_at: stage,
    }
}

fn access(ctx: &Context, name: &PoolName, request: &Request, spec: &StepSpec) -> Line {
    let pool = ctx.state().market().pool(name);
    let policy = pool.and_then(|pool| pool.policy(&request.subject));
    let priority = policy.map_or(0, |policy| policy.priority);
    let mut message = format!("`{}` may, with priority {priority}", spec.subject);
    if request.subject != spec.subject {
        message = format!("{message}, by the policy of `{}`", request.subject);
    }
    if spec.pool.is_none() && request.pool.is_some() {
        message.push_str("; the cluster's defaults send it here");
    }
    passed(name, "policy", message)
}

/// Which of the hosts that it remembers could hold it, were they empty.
fn hosts_line(ctx: &Context, name: &PoolName, request: &Request) -> Line {
    let pool = ctx.state().market().pool(name);
    let wanted = pool.map_or(&[][..], |pool| pool.wanted(request));
    let of = match wanted {
        [] => "any".to_string(),
        asked => {
            let asked: Vec<&str> = asked.iter().map(|it| it.as_str()).collect();
            asked.join(",")
        }
    };
    let hosts = pool.map_or_else(Vec::new, |pool| could_hold(pool, request));
    let message = match hosts.len() {
        0 => "no host that it has could hold it: it waits for one to come".to_string(),
        1 => format!("one host could hold it: {}", hosts[0]),
        n => format!("{n} hosts could hold it: {}", shortened(hosts, NAMED_HOSTS)),
    };
    passed(name, &of, message)
}

/// The step in the state that the trial has come to.
fn previewed(ctx: &Context, id: &StepId, mark: u64) -> Option<Previewed> {
    let step = ctx.state().step(id)?;
    let market = ctx.state().market();
    let granted = step.latest().map(|attempt| &attempt.pool);
    let promised = market.nomination(id).map(|promise| &promise.pool);
    let preferred = || market.preferred(market.request(id)?);
    let pool = granted.or(promised).or_else(preferred);
    let preempts = ctx
        .records_after(mark)
        .filter_map(Record::gives_way)
        .filter(|(_, to)| *to == id)
        .map(|(gives, _)| gives.clone());
    Some(Previewed {
        step: step.clone(),
        reason: reason(ctx, step),
        pool: pool.or(step.spec.pool.as_ref()).cloned(),
        preempts: preempts.collect(),
    })
}

fn queue_lines(ctx: &Context, it: &Previewed) -> (Passage, Vec<Line>) {
    let Previewed { step, reason, .. } = it;
    let pool = it.pool.clone();
    let reason = reason.said();
    let about = reason.code.as_str();
    if step.state == StepState::Rejected {
        let line = failed(pool, about, reason.message);
        return (Passage::Failed, Vec::from([line]));
    }
    let line = |message| Line {
        pool: pool.clone(),
        about: about.to_string(),
        passage: Passage::Passed,
        message,
    };
    let Some(attempt) = step.latest() else {
        return (Passage::Passed, places(ctx, it));
    };
    let hosts: Vec<String> = attempt.parts.iter().map(host_of).collect();
    let message = format!("it starts at once, on {}", hosts.join(" and "));
    (Passage::Passed, Vec::from([line(message)]))
}

/// Where it waits: its place in each pool, and why it waits there.
fn places(ctx: &Context, it: &Previewed) -> Vec<Line> {
    let explained = explain(ctx, &it.step.id);
    let pools = explained.map_or_else(Vec::new, |explained| explained.pools);
    let place = |pool: crate::explain::InPool<'_>| {
        let (ahead, waiting) = pool.look.place;
        let Reason { code, message, .. } = pool.reason.said();
        let place = ahead + 1;
        let message = format!("it waits at place {place} of {waiting}: {message}");
        passed(pool.look.pool, code.as_str(), message)
    };
    pools.into_iter().map(place).collect()
}

fn closed_pool(pool: &Terms, past_maintenance: bool) -> Option<Line> {
    let message = pool.spec.maintenance.as_ref()?;
    Some(match past_maintenance {
        true => {
            let message = format!("it takes new steps of its admins alone: {message}");
            passed(&pool.name, "maintenance", message)
        }
        false => {
            let message = format!("it takes no new steps: {message}");
            failed(Some(pool.name.clone()), "maintenance", message)
        }
    })
}

/// The hosts that could hold a request, were they empty, those first that it likes best.
fn could_hold(pool: &Pool, request: &Request) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let hosts = pool.large_hosts(request);
    let hosts = hosts.filter(|node| seen.insert(*node));
    hosts.map(|node| format!("`{node}`")).collect()
}

fn host_of(part: &crate::model::step::Part) -> String {
    match part.gpus.len() {
        0 => format!("`{}`", part.node),
        1 => format!("`{}` with one GPU", part.node),
        n => format!("`{}` with {n} GPUs", part.node),
    }
}

fn line(pool: Option<PoolName>, about: &str, passage: Passage, message: String) -> Line {
    Line {
        pool,
        about: about.to_string(),
        passage,
        message,
    }
}

fn passed(pool: &PoolName, about: &str, message: String) -> Line {
    line(Some(pool.clone()), about, Passage::Passed, message)
}

fn failed(pool: Option<PoolName>, about: &str, message: String) -> Line {
    line(pool, about, Passage::Failed, message)
}

fn rejected(pool: &PoolName, never: &Rejection) -> Line {
    let Reason { code, message, .. } = never.said();
    failed(Some(pool.clone()), code.as_str(), message)
}

fn merge_line(pool: &PoolName, Filled { field, value, from }: Filled) -> Line {
    passed(pool, &field, format!("{value}, from {from}"))
}

fn assertion(pool: &PoolName, judged: Judged) -> Line {
    let about = match &judged.platform {
        Some(platform) => format!("{} of {platform}: {}", judged.document, judged.assert),
        None => format!("{}: {}", judged.document, judged.assert),
    };
    match judged.outcome {
        Outcome::Holds => passed(pool, &about, "it holds".to_string()),
        Outcome::Idle => passed(pool, &about, "its `when` does not hold".to_string()),
        Outcome::HoldsOn { keep: 0, of: 0 } => {
            passed(pool, &about, "there is no host to ask yet".to_string())
        }
        Outcome::HoldsOn { keep, of } => {
            passed(pool, &about, format!("it holds on {keep} of {of} hosts"))
        }
        Outcome::Fails(found) => failed(Some(pool.clone()), &about, found),
    }
}

/// Every stage with its lines: those before the one where it ended have passed, those after it were not reached.
fn stages(pools: InPool) -> Vec<StageReport> {
    let InPool { lines, failed_at } = pools;
    let reports = Stage::ALL.into_iter().map(|stage| {
        let its = lines.iter().filter(|(of, _)| *of == stage);
        StageReport {
            stage,
            passage: match failed_at {
                Some(end) if stage == end => Passage::Failed,
                Some(end) if stage > end => Passage::NotReached,
                Some(_) | None => Passage::Passed,
            },
            lines: its.map(|(_, line)| line.clone()).collect(),
        }
    });
    reports.collect()
}
