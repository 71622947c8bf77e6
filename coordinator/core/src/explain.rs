//! Why a step is where it is. For a queued step this asks the market what its last decision asked (`market/`), and puts
//! it into words; it holds no second copy of its rules. [`Core::reason`] is the short answer; [`Core::explain`] is the
//! whole one: `explain/answer.rs` says what is in it, `explain/waiting.rs` and `explain/holding.rs` fill it,
//! `explain/held_up.rs` names a host that cannot act, and `explain/sentences.rs` has its sentences.

mod answer;
pub(crate) mod held_up;
pub(crate) mod holding;
mod sentences;
pub(crate) mod waiting;

use alloc::format;
use alloc::string::{String, ToString};

use sluice_common::amount::{GPU, STEP_RUN};
use sluice_common::id::{PoolName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::quantity::{figure, quantity};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::state::StepState;
use sluice_reasons::Why;
use sluice_scheduler::{Block, Request};

use crate::context::Context;
use crate::explain::held_up::reason_on_host;
use crate::guard::kept_off;
use crate::model::node::Node;
use crate::model::step::Step;
use crate::recovery::recovering;
use crate::submit::feasible::never_in;

pub use answer::{Awaited, Explanation, Holding, InPool, Past, Promised, Spare, WouldStart};

/// Why a step is where it is now. Of a step that waits again after an attempt, the code says why that attempt is
/// over, and the message and the detail `waiting` say for what it waits.
pub(crate) fn reason(ctx: &Context, step: &Step) -> Reason {
    if step.state != StepState::Queued && step.state != StepState::Suspended {
        return reason_on_host(ctx, step);
    }
    if step.held {
        return Why::Held.said();
    }
    let waiting = waiting(ctx, step);
    if step.reason.code() == ReasonCode::Submitted {
        return waiting;
    }
    let mut again = step.reason.said();
    again.message = format!("{}; {}", again.message, waiting.message);
    for (name, detail) in waiting.detail {
        again.detail.entry(name).or_insert(detail);
    }
    again.with("waiting", waiting.code.as_str())
}

/// The pool that a queued step prefers, or where it is promised a place, and what keeps it from starting there.
fn waiting(ctx: &Context, step: &Step) -> Reason {
    if ctx.state().recovery().is_some() {
        return recovering(ctx);
    }
    let market = ctx.state().market();
    let Some(request) = market.request(&step.id) else {
        return step.reason.said();
    };
    let promised = market.nomination(&step.id).map(|promise| &promise.pool);
    let Some(pool) = promised.or_else(|| market.preferred(request)) else {
        return lost_policy(request);
    };
    match market.block(&step.id, pool) {
        Some(block) => in_words(ctx, pool, request, block),
        None => waiting::next(pool),
    }
}

pub(crate) fn in_words(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    block: Block<'_>,
) -> Reason {
    let waits_for_hosts = matches!(block, Block::NoOpenHost { .. } | Block::Hosts { .. });
    let mut reason = block_in_words(ctx, pool, request, block);
    let market = ctx.state().market().pool(pool).filter(|_| waits_for_hosts);
    if let Some(kept_off) = market.and_then(|market| kept_off(pool, market, request)) {
        reason.message = format!("{}; {kept_off}", reason.message);
    }
    reason
}

fn block_in_words(ctx: &Context, pool: &PoolName, request: &Request, block: Block<'_>) -> Reason {
    let subject = &request.subject;
    match block {
        Block::PoolEmpty => pool_empty(pool),
        Block::Infeasible(never) => still_too_large(never_in(ctx, pool, request, never)),
        Block::Release { runs } => {
            let message = format!(
                "its place in pool `{pool}` is being made free: {runs} running {} told to give way",
                if runs == 1 { "step was" } else { "steps were" }
            );
            Reason::new(ReasonCode::WaitingForRelease, message).with("runs", runs as u64)
        }
        Block::Limit { key, used, limit } => {
            let asked = request.demand.get(key);
            let message = format!(
                "`{subject}` uses {} of pool `{pool}`, its limit is {}, and it asks for {} more",
                quantity(key, used),
                figure(key, limit),
                figure(key, asked)
            );
            Reason::new(ReasonCode::WaitingForLimit, message)
                .with("key", key)
                .with("asked", asked)
                .with("used", used)
                .with("limit", limit)
        }
        Block::Reserved {
            key,
            used,
            reserved,
        } => {
            let asked = request.demand.get(key);
            let message = format!(
                "it is not preemptible: `{subject}` has {} reserved in pool `{pool}`, of which such steps use {}, \
                 and it asks for {} more",
                quantity(key, reserved),
                figure(key, used),
                figure(key, asked)
            );
            Reason::new(ReasonCode::WaitingForReserved, message)
                .with("key", key)
                .with("asked", asked)
                .with("used", used)
                .with("reserved", reserved)
        }
        Block::NoOpenHost { nearest } => {
            let node = ctx.state().node(nearest);
            let fewer = match request.hosts {
                1 => String::from("no host"),
                wanted => format!("fewer than {wanted} hosts"),
            };
            let verb = if request.hosts == 1 { "takes" } else { "take" };
            let message = format!(
                "{fewer} of pool `{pool}`{} that could hold it {verb} work now: `{nearest}` {}",
                of_platforms(request),
                node.map_or("is gone".to_string(), |node| closed(ctx, node))
            );
            Reason::new(ReasonCode::NoLiveHost, message).with("node", nearest.as_str())
        }
        Block::Turn { behind } => turn(pool, &behind),
        Block::Pool { key, free } => {
            let asked = request.demand.get(key);
            let message = format!(
                "it asks for {}, and pool `{pool}` has {} free",
                quantity(key, asked),
                figure(key, free)
            );
            short(pool, message, key, asked, free)
        }
        Block::Hosts { closest } => match closest {
            None => Reason::new(
                ReasonCode::WaitingForUnits,
                format!("it starts in pool `{pool}` when enough is free {}", on(request)),
            ),
            Some((node, STEP_RUN, ..)) => Reason::new(
                ReasonCode::WaitingForUnits,
                format!(
                    "it starts in pool `{pool}` when a host holds fewer than {MAX_ATTEMPTS_PER_NODE} steps, the \
                     most that one may: `{node}` holds as many"
                ),
            )
            .with("key", STEP_RUN)
            .with("node", node.as_str()),
            Some((node, key, asked, free)) => {
                let unfit = ctx.state().node(node).filter(|_| key == GPU).and_then(unfit);
                let message = format!(
                    "it starts in pool `{pool}` when enough is free {}: it asks {}for {}, and `{node}`, which \
                     comes closest, has {} free{}",
                    on(request),
                    if request.hosts > 1 { "each " } else { "" },
                    quantity(key, asked),
                    figure(key, free),
                    unfit.map_or(String::new(), |unfit| format!(", and {unfit}")),
                );
                short(pool, message, key, asked, free).with("node", node.as_str())
            }
        },
    }
    .with("pool", pool.as_str())
}

/// Why a node takes no work, as what is said of it.
fn closed(ctx: &Context, node: &Node) -> String {
    let lacking = ctx.state().lacking(node);
    if !node.is_open() || lacking.is_empty() {
        return format!("is {}", closed_by(node));
    }
    crate::words::lacks(&lacking)
}

/// How a node is closed, in the admin's words where one closed it.
fn closed_by(node: &Node) -> String {
    let Some(cordon) = &node.cordon else {
        return match unfit(node) {
            Some(unfit) if node.is_open() => format!("short of GPUs, for {unfit}"),
            Some(_) | None => match &node.unsupervised {
                Some(why) => format!("{} ({why})", node.state),
                None => node.state.to_string(),
            },
        };
    };
    let word = match cordon.drain {
        None => "cordoned",
        Some(_) => "drained",
    };
    match cordon.reason.as_str() {
        "" => word.to_string(),
        reason => format!("{word} ({reason})"),
    }
}

/// The GPUs of a node that are granted to nobody, the first of them with why.
fn unfit(node: &Node) -> Option<String> {
    let gpus = node.unfit_gpus();
    let ((_, gpu), why) = gpus.first_key_value()?;
    Some(match gpus.len() {
        1 => format!("1 of its GPUs is granted to nobody (`{gpu}` is {why})"),
        count => {
            format!("{count} of its GPUs are granted to nobody (the first is `{gpu}`, {why})")
        }
    })
}

/// On how many hosts it must find room, and of which platforms.
fn on(request: &Request) -> String {
    let of = of_platforms(request);
    match request.hosts {
        1 => format!("on one host{of}"),
        hosts => format!("on {hosts} hosts{of} at once"),
    }
}

/// The platforms that a request asks for, where it does not take any.
fn of_platforms(request: &Request) -> String {
    let names: alloc::vec::Vec<String> =
        request.platforms.iter().map(|p| format!("`{p}`")).collect();
    match &names[..] {
        [] => String::new(),
        [one] => format!(" of platform {one}"),
        several => format!(" of one of the platforms {}", several.join(", ")),
    }
}

fn short(pool: &PoolName, message: String, key: &str, asked: u64, free: u64) -> Reason {
    Reason::new(ReasonCode::WaitingForUnits, message)
        .with("pool", pool.as_str())
        .with("key", key)
        .with("asked", asked)
        .with("free", free)
}

fn pool_empty(pool: &PoolName) -> Reason {
    let message = format!(
        "pool `{pool}` has no host yet: have one join by `sluice token create --pool {pool}`, or move one by \
                 `sluice move node NODE --pool {pool}`"
    );
    Reason::new(ReasonCode::PoolEmpty, message)
}

fn lost_policy(request: &Request) -> Reason {
    let message = format!(
        "`{}` has no policy any more in any pool that it may run in: it waits for one",
        request.subject
    );
    Reason::new(ReasonCode::NoPolicy, message)
}

/// It was accepted all the same, because it may wait for a larger host or because hosts or terms were others then.
fn still_too_large(mut reason: Reason) -> Reason {
    reason.message = format!("{}; it waits and holds nobody up", reason.message);
    reason
}

fn turn(pool: &PoolName, behind: &StepId) -> Reason {
    let message =
        format!("`{behind}` goes before it in pool `{pool}` and waits for the same units");
    Reason::new(ReasonCode::WaitingForTurn, message).with("behind", behind.as_str())
}
