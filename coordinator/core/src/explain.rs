//! Explains why a step is in its state. For a queued step this asks the scheduler the same questions as its last
//! decision did; there is no second copy of the rules. [`Core::reason`] is the short answer, [`Core::explain`] the
//! whole one: `explain/answer.rs` defines it, `explain/waiting.rs` and `explain/holding.rs` fill it,
//! `explain/host_block.rs` names a host that cannot act. What would let the step start is searched apart from it, in
//! `explain/remedies.rs`.
//!
//! [`Core::reason`]: crate::Core::reason
//! [`Core::explain`]: crate::Core::explain

mod answer;
pub(crate) mod holding;
pub(crate) mod host_block;
mod remedies;
pub(crate) mod waiting;

use alloc::string::String;

use sluice_common::amount::MGPU;
use sluice_common::id::{NodeName, PoolName};
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_reasons::rejection::{DomainShortage, Shortage};
use sluice_reasons::standing::{AmountUse, HostDemand, UnfitGpus, Unschedulable};
use sluice_reasons::{Cause, StepReason, Wait};
use sluice_scheduler::{BlockReason, Request};

use crate::arrays::{first_queued_part, wait_of_part};
use crate::attempts::endpoint::not_ready;
use crate::context::Context;
use crate::dependencies::unmet_dependencies;
use crate::explain::host_block::host_block;
use crate::guard::denied_hosts;
use crate::inside::settle::wait_inside;
use crate::model::node::Node;
use crate::model::step::Step;
use crate::recovery::recovering;
use crate::submit::default_amounts::default_of;
use crate::submit::feasible::never_in;

pub use answer::{
    AwaitedRun, Explanation, HeldResources, NominationDetails, PastAttempt, PoolWait,
};
pub use remedies::RemedySearch;

/// Why a step is in its state now.
pub(crate) fn reason(ctx: &Context, step: &Step) -> StepReason {
    let is_ready = !step.held && step.lets_parts_enter();
    if let Some(reason) = array_reason(ctx, step).filter(|_| is_ready) {
        return reason;
    }
    // The rest of an array may wait while some of its parts run.
    let waits = matches!(step.state, StepState::Queued | StepState::Suspended)
        || step.array.is_some() && !step.state.is_terminal();
    if !waits {
        return StepReason::Recorded {
            why: not_ready(step).unwrap_or_else(|| step.reason.clone()),
            host_block: host_block(ctx, step),
        };
    }
    if step.held {
        return StepReason::Recorded {
            why: Cause::Held,
            host_block: None,
        };
    }
    if !step.unmet.is_empty() {
        return StepReason::Waiting {
            after: None,
            wait: unmet_dependencies(ctx, step).into(),
        };
    }
    if let Some(at) = step.not_before {
        return StepReason::Waiting {
            after: None,
            wait: Wait::Begin { at }.into(),
        };
    }
    if let Some(wait) = wait_of_part(ctx, step) {
        return StepReason::Waiting {
            after: None,
            wait: wait.into(),
        };
    }
    let again = step.reason.code() != ReasonCode::Submitted;
    StepReason::Waiting {
        after: again.then(|| step.reason.clone()),
        wait: waiting(ctx, step).into(),
    }
}

/// The reason for the state of an array: while nothing of it has started, the reason of its first part in the queue.
fn array_reason(ctx: &Context, step: &Step) -> Option<StepReason> {
    let counts = ctx.state().part_counts(step)?;
    if step.state.is_terminal() {
        return None;
    }
    let first = first_queued_part(ctx, step);
    Some(match first.filter(|_| step.state == StepState::Queued) {
        Some(part) => reason(ctx, part),
        None => StepReason::Recorded {
            why: Cause::Parts { counts },
            host_block: None,
        },
    })
}

/// Returns the pool that a queued step prefers, or in which it is nominated, and the reason why it does not start
/// there.
fn waiting(ctx: &Context, step: &Step) -> Wait {
    if ctx.state().recovery().is_some() {
        return recovering(ctx);
    }
    if let Some((allocation, wait)) = wait_inside(ctx, step) {
        return Wait::Inside { allocation, wait };
    }
    let scheduler = ctx.state().scheduler();
    let Some(request) = scheduler.request(&step.id) else {
        let why = step.reason.clone();
        return Wait::Unlisted { why };
    };
    let promised = scheduler.nomination(&step.id).map(|promise| &promise.pool);
    let Some(pool) = promised.or_else(|| scheduler.preferred_pool(request)) else {
        let subject = request.subject.clone();
        return Wait::NoPolicy { subject };
    };
    match scheduler.block(&step.id, pool) {
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
    let closed = || denied_hosts(name, ctx.state().scheduler().pool(name)?, request);
    let by_default = |key: &str| default_of(ctx.state(), &request.step, key);
    let amount = |key: &str, used, most| AmountUse {
        key: String::from(key),
        asked: request.demand.get(key),
        used,
        most,
        by_default: by_default(key),
    };
    match without_host(block) {
        BlockReason::PoolEmpty => Wait::PoolEmpty { pool },
        BlockReason::GpusUnknown { node } => Wait::GpusUnknown {
            pool,
            node: node.clone(),
        },
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
            wanted: host_demand(request),
            nearest: nearest.clone(),
            why: idle_on(ctx, nearest),
            closed: closed(),
        },
        BlockReason::BehindHead { behind, starts_by } => Wait::Turn {
            pool,
            behind,
            starts_by,
        },
        BlockReason::PoolFull { key, free } => Wait::Pool {
            pool,
            key: String::from(key),
            asked: request.demand.get(key),
            free,
            by_default: by_default(key),
        },
        BlockReason::DomainsFull {
            level,
            domain,
            hosts,
        } => Wait::Domains {
            pool,
            closest: DomainShortage::of(level, domain, request.hosts, hosts),
        },
        BlockReason::HostsFull { closest } => Wait::Hosts {
            pool,
            wanted: host_demand(request),
            unfit: closest.and_then(|(node, key, ..)| unfit_of(ctx, node, key)),
            closest: closest.map(|it| Shortage::of(it, by_default(it.1), &request.class)),
            closed: closed(),
        },
    }
}

/// Says of a pool without hosts what it would say of a host.
fn without_host(block: BlockReason<'_>) -> BlockReason<'_> {
    if let BlockReason::HostsFull {
        closest: Some((node, key, _, free)),
    } = &block
        && node.is_of_pool()
    {
        return BlockReason::PoolFull { key, free: *free };
    }
    block
}

fn host_demand(request: &Request) -> HostDemand {
    HostDemand {
        hosts: request.hosts,
        platforms: request.platforms.clone(),
    }
}

/// The unfit GPUs of a node that is short of GPUs.
fn unfit_of(ctx: &Context, node: &NodeName, key: &str) -> Option<UnfitGpus> {
    let node = ctx.state().node(node).filter(|_| key == MGPU)?;
    unfit(ctx, node)
}

fn idle_on(ctx: &Context, node: &NodeName) -> Unschedulable {
    let node = ctx.state().node(node);
    node.map_or(Unschedulable::Gone, |it| idle(ctx, it))
}

/// Explains why a node takes no work.
fn idle(ctx: &Context, node: &Node) -> Unschedulable {
    let missing_capabilities = ctx.state().missing_capabilities(node);
    if node.is_open() && !missing_capabilities.is_empty() {
        return Unschedulable::Lacks(missing_capabilities);
    }
    if let Some(cordon) = &node.cordon {
        let reason = cordon.reason.clone();
        return match cordon.drain {
            None => Unschedulable::Cordoned(reason),
            Some(_) => Unschedulable::Drained(reason),
        };
    }
    match unfit(ctx, node).filter(|_| node.is_open()) {
        Some(unfit) => Unschedulable::ShortOfGpus(unfit),
        None => Unschedulable::State(node.state, node.unsupervised.clone()),
    }
}

fn unfit(ctx: &Context, node: &Node) -> Option<UnfitGpus> {
    let gpus = ctx.state().unfit_gpus(node);
    UnfitGpus::of(
        gpus.into_iter()
            .map(|((_, gpu), why)| (String::from(gpu), why)),
    )
}
