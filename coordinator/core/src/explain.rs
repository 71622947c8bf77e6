//! Why a step is where it is. For a queued step this asks the scheduler what its last decision asked; it holds no
//! second copy of its rules, and no sentence. [`Core::reason`] is the short answer; [`Core::explain`] is the whole one:
//! `explain/answer.rs` says what is in it, `explain/waiting.rs` and `explain/holding.rs` fill it, `explain/held_up.rs` names
//! a host that cannot act.
//!
//! [`Core::reason`]: crate::Core::reason
//! [`Core::explain`]: crate::Core::explain

mod answer;
pub(crate) mod held_up;
pub(crate) mod holding;
pub(crate) mod waiting;

use alloc::string::String;

use sluice_common::amount::GPU;
use sluice_common::id::PoolName;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_reasons::rejection::Shortage;
use sluice_reasons::standing::{Idle, UnfitGpus, Used, Wanted};
use sluice_reasons::{Standing, Wait, Why};
use sluice_scheduler::{BlockReason, Request};

use crate::context::Context;
use crate::explain::held_up::held_up;
use crate::guard::kept_off;
use crate::model::node::Node;
use crate::model::step::Step;
use crate::recovery::recovering;
use crate::submit::feasible::never_in;

pub use answer::{Awaited, Explanation, Holding, InPool, Past, Promised};

/// Why a step is where it is now.
pub(crate) fn reason(ctx: &Context, step: &Step) -> Standing {
    if step.state != StepState::Queued && step.state != StepState::Suspended {
        return Standing::Came {
            why: step.reason.clone(),
            held_up: held_up(ctx, step),
        };
    }
    if step.held {
        return Standing::Came {
            why: Why::Held,
            held_up: None,
        };
    }
    let again = step.reason.code() != ReasonCode::Submitted;
    Standing::Waits {
        after: again.then(|| step.reason.clone()),
        wait: waiting(ctx, step).into(),
    }
}

/// The pool that a queued step prefers, or where it is promised a place, and what keeps it from starting there.
fn waiting(ctx: &Context, step: &Step) -> Wait {
    if ctx.state().recovery().is_some() {
        return recovering(ctx);
    }
    let market = ctx.state().market();
    let Some(request) = market.request(&step.id) else {
        let why = step.reason.clone();
        return Wait::Unlisted { why };
    };
    let promised = market.nomination(&step.id).map(|promise| &promise.pool);
    let Some(pool) = promised.or_else(|| market.preferred_pool(request)) else {
        let subject = request.subject.clone();
        return Wait::NoPolicy { subject };
    };
    match market.block(&step.id, pool) {
        Some(block) => wait_for(ctx, pool, request, block),
        None => waiting::next(pool),
    }
}

pub(crate) fn wait_for(
    ctx: &Context,
    name: &PoolName,
    request: &Request,
    block: BlockReason<'_>,
) -> Wait {
    let pool = name.clone();
    let subject = request.subject.clone();
    let closed = || kept_off(name, ctx.state().market().pool(name)?, request);
    let wanted = || Wanted {
        hosts: request.hosts,
        platforms: request.platforms.clone(),
    };
    let amount = |key: &str, used, most| Used {
        key: String::from(key),
        asked: request.demand.get(key),
        used,
        most,
    };
    match block {
        BlockReason::PoolEmpty => Wait::PoolEmpty { pool },
        BlockReason::Infeasible(never) => Wait::Infeasible {
            why: never_in(ctx, name, request, never),
        },
        BlockReason::AwaitingRelease { runs } => Wait::Release {
            pool,
            runs: runs as u64,
        },
        BlockReason::Limit { key, used, limit } => Wait::Limit {
            pool,
            subject,
            amount: amount(key, used, limit),
        },
        BlockReason::Reserved {
            key,
            used,
            reserved,
        } => Wait::Reserved {
            pool,
            subject,
            amount: amount(key, used, reserved),
        },
        BlockReason::NoSchedulableHost { nearest } => Wait::NoOpenHost {
            pool,
            wanted: wanted(),
            nearest: nearest.clone(),
            why: ctx
                .state()
                .node(nearest)
                .map_or(Idle::Gone, |it| idle(ctx, it)),
            closed: closed(),
        },
        BlockReason::BehindHead { behind } => Wait::Turn { pool, behind },
        BlockReason::PoolFull { key, free } => Wait::Pool {
            pool,
            key: String::from(key),
            asked: request.demand.get(key),
            free,
        },
        BlockReason::HostsFull { closest } => Wait::Hosts {
            pool,
            wanted: wanted(),
            unfit: closest.and_then(|(node, key, ..)| {
                let node = ctx.state().node(node).filter(|_| key == GPU)?;
                unfit(node)
            }),
            closest: closest.map(Shortage::of),
            closed: closed(),
        },
    }
}

/// Why a node takes no work.
fn idle(ctx: &Context, node: &Node) -> Idle {
    let lacking = ctx.state().lacking(node);
    if node.is_open() && !lacking.is_empty() {
        return Idle::Lacks(lacking);
    }
    if let Some(cordon) = &node.cordon {
        let reason = cordon.reason.clone();
        return match cordon.drain {
            None => Idle::Cordoned(reason),
            Some(_) => Idle::Drained(reason),
        };
    }
    match unfit(node).filter(|_| node.is_open()) {
        Some(unfit) => Idle::ShortOfGpus(unfit),
        None => Idle::State(node.state, node.unsupervised.clone()),
    }
}

fn unfit(node: &Node) -> Option<UnfitGpus> {
    let gpus = node.unfit_gpus();
    let ((_, gpu), why) = gpus.first_key_value()?;
    Some(UnfitGpus {
        count: gpus.len() as u64,
        gpu: String::from(*gpu),
        why: why.clone(),
    })
}
