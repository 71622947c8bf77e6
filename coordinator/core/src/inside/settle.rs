//! Starts the steps inside allocations that have room for them, and ends them with their allocation. They start in order of
//! priority and then of submission, and none goes past one that waits: so a large one is not held off by small ones.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::state::{NodeState, StepState};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{AttemptStatus, StopReason};
use sluice_reasons::rejection::{ForbiddingHosts, HostMismatch, Shortage};
use sluice_reasons::standing::AllocationWait;
use sluice_reasons::{Cause, Rejection};
use sluice_scheduler::Denial;

use crate::arrays::advance::settle_steps;
use crate::attempts::live::live_on;
use crate::attempts::orders::{send_assignment, stop_as};
use crate::attempts::retry_policy::end_state;
use crate::context::Context;
use crate::hosts::link::settle_node;
use crate::hosts::statuses::take_status;
use crate::inside::room::{FreeResources, MissingResources, is_used_inside, place, rooms};
use crate::model::placement::Placement;
use crate::model::step::{Attempt, Step};
use crate::record::{self, Record};
use crate::schedule::{meeting_port, next_attempt};
use crate::submit::rules::broken_rule;

/// Makes all changes inside allocations that are due. Makes none during a recovery, because a host may run what is queued
/// here. Returns whether there were any.
pub(crate) fn settle_inside(ctx: &mut Context) -> bool {
    if ctx.state().recovery().is_some() {
        return false;
    }
    let before = ctx.state().seq();
    while let Some(allocation) = ctx.take_due_allocation() {
        release_held_back(ctx, &allocation);
        match end_of(ctx, &allocation) {
            Some(end) => end_all(ctx, &allocation, end),
            None => start_waiting(ctx, &allocation),
        }
        settle_steps(ctx);
    }
    ctx.state().seq() != before
}

/// The end of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AllocationEnd {
    /// The reason for its stop; `PeerEnded` if it ended by itself.
    why: StopReason,
    /// Time at which the last process inside is killed.
    kill_at: Time,
}

/// The end of an allocation that is over or being stopped; `None` if steps may run inside it, or wait for it.
fn end_of(ctx: &Context, allocation: &StepId) -> Option<AllocationEnd> {
    let gone = AllocationEnd {
        why: StopReason::PeerEnded,
        kill_at: ctx.now(),
    };
    let Some(held) = ctx.state().step(allocation).filter(|it| it.lease.is_some()) else {
        return Some(gone);
    };
    let attempt = held.latest().filter(|attempt| attempt.has_run());
    let stopping = attempt.filter(|_| held.state != StepState::Queued);
    let stopping = stopping.and_then(|attempt| Some((attempt, attempt.stopping?)));
    if let Some((attempt, why)) = stopping {
        return Some(AllocationEnd {
            why: reason_for_inside(why),
            kill_at: attempt.grace_ends(held).unwrap_or(ctx.now()),
        });
    }
    let over = held.finished.filter(|_| held.state.is_terminal())?;
    let why = match (held.state, &held.reason) {
        (StepState::Cancelled, Cause::NotRenewed) => StopReason::NotRenewed,
        (StepState::Cancelled, _) => StopReason::Cancelled,
        _ => StopReason::PeerEnded,
    };
    let kill_at = over.at + held.spec.grace;
    Some(AllocationEnd { why, kill_at })
}

/// The reason for which steps inside an allocation are stopped when it is stopped for `why`.
fn reason_for_inside(why: StopReason) -> StopReason {
    match why {
        StopReason::Cancelled
        | StopReason::NotRenewed
        | StopReason::Preempted
        | StopReason::Drained
        | StopReason::TimedOut => why,
        StopReason::Superseded
        | StopReason::PeerEnded
        | StopReason::GpuLost
        | StopReason::Requeued
        | StopReason::NotSuspended
        | StopReason::SuspendedTooLong
        | StopReason::LivenessFailed => StopReason::PeerEnded,
    }
}

/// Stops what runs inside an allocation within the grace of that, and ends what waits there.
fn end_all(ctx: &mut Context, allocation: &StepId, end: AllocationEnd) {
    let open = ctx.state().steps_inside(allocation);
    let open: Vec<StepId> = open.map(|step| step.id.clone()).collect();
    for id in open {
        let Some(step) = ctx.state().step(&id) else {
            continue;
        };
        if step.state == StepState::Queued {
            let state = end_state(step, end.why);
            ctx.record(Record::StepEnded(record::StepEnded {
                step: id,
                state,
                reason: Cause::AllocationEnded {
                    allocation: allocation.clone(),
                    cause: end.why,
                },
            }));
        } else if let Some(stopping) = stop_for(ctx, step, end) {
            stop_as(ctx, stopping);
        }
    }
}

/// The order to stop a step with its allocation, unless it is being stopped and will have ended by then.
fn stop_for(ctx: &Context, step: &Step, end: AllocationEnd) -> Option<record::Stopping> {
    let attempt = step.live()?;
    let left = match end.kill_at > ctx.now() {
        true => end.kill_at.since(ctx.now()),
        false => Span::ZERO,
    };
    let is_soon = |attempt: &Attempt| {
        let ends = attempt.grace_ends(step);
        ends.is_some_and(|ends| ends <= ctx.now() + left)
    };
    if attempt.stopping.is_some() && is_soon(attempt) {
        return None;
    }
    let id = step.attempt_id(attempt.number);
    Some(record::Stopping {
        grace: Some(left),
        with_allocation: attempt.stopping.is_none(),
        by: attempt.preempted_by.clone(),
        ..record::Stopping::because(id, attempt.stopping.unwrap_or(end.why))
    })
}

/// Hands a host back what it reported about the end of an allocation while steps inside it still held a part of that.
fn release_held_back(ctx: &mut Context, allocation: &StepId) {
    let Some(held) = ctx.state().step(allocation) else {
        return;
    };
    let attempts = held.attempts.iter().flat_map(|attempt| {
        let id = held.attempt_id(attempt.number);
        attempt
            .parts
            .iter()
            .map(move |part| (part.node.clone(), id.clone()))
    });
    let attempts: Vec<(NodeName, AttemptId)> = attempts.collect();
    for (node, attempt) in attempts {
        if is_used_inside(ctx.state(), &node, allocation) {
            continue;
        }
        let contact = ctx.contact_mut(&node);
        let phase = contact.and_then(|contact| contact.held_back.remove(&attempt));
        // A host that was lost meanwhile gave everything back.
        let is_live = live_on(ctx, &node, &attempt).is_some();
        let Some(phase) = phase.filter(|_| is_live) else {
            continue;
        };
        take_status(ctx, &node, AttemptStatus { attempt, phase });
        let is_linked = |ctx: &Context| ctx.contact(&node).is_some_and(|it| it.session.is_some());
        if is_linked(ctx) {
            settle_node(ctx, &node);
        }
    }
}

/// Starts the steps that wait inside an allocation and have room, up to the first that has none.
fn start_waiting(ctx: &mut Context, allocation: &StepId) {
    for id in waiting(ctx, allocation) {
        let Some(step) = ctx.state().step(&id) else {
            continue;
        };
        match placement(ctx, step) {
            Ok(placements) => grant(ctx, &id, placements),
            Err(Obstacle::Never(why)) => ctx.record(Record::StepEnded(record::StepEnded {
                step: id,
                state: StepState::Rejected,
                reason: Cause::rejected(*why),
            })),
            Err(Obstacle::Now(_)) => return,
        }
    }
}

/// The steps that wait for room inside an allocation, in their order.
fn waiting(ctx: &Context, allocation: &StepId) -> Vec<StepId> {
    let open = ctx.state().steps_inside(allocation);
    let mut waiting: Vec<&Step> = open.filter(|step| step.awaits_resources()).collect();
    waiting.sort_by_key(|step| (Reverse(step.spec.priority), step.order()));
    waiting.into_iter().map(|step| step.id.clone()).collect()
}

/// The reason why a step does not start inside its allocation.
enum Obstacle {
    Now(Box<AllocationWait>),
    Never(Box<Rejection>),
}

/// Returns what a step waits for that is queued inside an allocation; `None` if it is no such step.
pub(crate) fn wait_inside(ctx: &Context, step: &Step) -> Option<(StepId, AllocationWait)> {
    let allocation = step.spec.inside.clone()?;
    let before = waiting(ctx, &allocation);
    let before = before.into_iter().take_while(|id| *id != step.id);
    if let Some(behind) = before.last() {
        return Some((allocation, AllocationWait::Turn { behind }));
    }
    match placement(ctx, step) {
        Err(Obstacle::Now(wait)) => Some((allocation, *wait)),
        Ok(_) | Err(Obstacle::Never(_)) => None,
    }
}

/// A step inside an allocation for which something is due, for the invariants.
pub(crate) fn missed_inside(ctx: &Context, allocation: &StepId) -> Option<StepId> {
    if let Some(end) = end_of(ctx, allocation) {
        let mut open = ctx.state().steps_inside(allocation);
        let missed =
            open.find(|step| step.state == StepState::Queued || stop_for(ctx, step, end).is_some());
        return missed.map(|step| step.id.clone());
    }
    let first = waiting(ctx, allocation).into_iter().next()?;
    let step = ctx.state().step(&first)?;
    let waits = matches!(placement(ctx, step), Err(Obstacle::Now(_)));
    (!waits).then_some(first)
}

/// Places a step inside its allocation.
fn placement(ctx: &Context, step: &Step) -> Result<Vec<Placement>, Obstacle> {
    let allocation = step.spec.inside.as_ref();
    let held = allocation.and_then(|id| ctx.state().step(id));
    let state = held.map_or(StepState::Cancelled, |held| held.state);
    let Some((held, attempt)) = held.and_then(|held| Some((held, held.live()?))) else {
        return Err(Obstacle::Now(AllocationWait::Allocation { state }.into()));
    };
    if state != StepState::Running {
        return Err(Obstacle::Now(AllocationWait::Allocation { state }.into()));
    }
    if let Some(never) = forbidden(ctx, step, attempt) {
        return Err(Obstacle::Never(never.into()));
    }
    let rooms = rooms(ctx.state(), held, attempt);
    let open: Vec<FreeResources> = rooms
        .iter()
        .filter(|room| takes_orders(ctx, &room.node) && denial(ctx, step, &room.node).is_none())
        .cloned()
        .collect();
    let hosts = step.spec.nodes.max(1) as usize;
    place(&open, &step.spec.request, hosts).map_err(|lack| {
        let closed = rooms.iter().find(|room| !takes_orders(ctx, &room.node));
        let wait = match (lack, closed) {
            (Some(lack), _) => short_of(*lack),
            (None, Some(room)) => AllocationWait::Host {
                node: room.node.clone(),
                state: ctx
                    .state()
                    .node(&room.node)
                    .map_or(NodeState::Lost, |it| it.state),
            },
            // Too few of its hosts may hold the step, and each of these has room.
            (None, None) => AllocationWait::Allocation { state },
        };
        Obstacle::Now(wait.into())
    })
}

fn short_of(lack: MissingResources) -> AllocationWait {
    AllocationWait::Room {
        shortage: Shortage {
            node: lack.node,
            key: String::from(lack.key.as_str()),
            asked: lack.asked,
            has: lack.free,
            by_default: None,
            profile: None,
        },
        holders: lack.holders,
        unfit: lack.unfit,
    }
}

/// Whether a host takes orders now, and holds fewer attempts than it may.
fn takes_orders(ctx: &Context, node: &NodeName) -> bool {
    let known = ctx.state().node(node);
    let held = ctx.state().attempts_on(node).count();
    known.is_some_and(|it| it.state == NodeState::Ready) && held < MAX_ATTEMPTS_PER_NODE
}

/// Why a step can never run inside an allocation that has its hosts: its pool excludes it, or too few of the hosts admit
/// what it asks for.
fn forbidden(ctx: &Context, step: &Step, attempt: &Attempt) -> Option<Rejection> {
    let pool = &attempt.pool;
    if step.excluded_pools.contains(pool) {
        let broken = broken_rule(ctx, pool, &step.spec);
        return Some(broken.unwrap_or_else(|| Rejection::NoPolicy {
            subject: step.spec.subject.clone(),
            pool: Some(pool.clone()),
        }));
    }
    let hosts = attempt.parts.iter().map(|part| &part.node);
    let denied = hosts.filter_map(|node| denial(ctx, step, node));
    let denied: Vec<ForbiddingHosts> = denied.collect();
    let left = attempt.parts.len() - denied.len();
    let first = denied.into_iter().next();
    let first = first.filter(|_| left < step.spec.nodes.max(1) as usize)?;
    Some(Rejection::NoHostFits {
        pool: pool.clone(),
        hosts: HostMismatch::Closed(first),
    })
}

/// Why a host forbids what a step asks for, or cannot run its image.
fn denial(ctx: &Context, step: &Step, node: &NodeName) -> Option<ForbiddingHosts> {
    let host = ctx.state().node(node)?;
    let form = step.spec.image.as_ref().map(|image| image.form());
    let no_runtime = form.filter(|form| !host.inventory.image_forms().contains(form));
    let platforms = ctx.state().platforms_of(host, None);
    let platforms: BTreeSet<PlatformName> = platforms.into_iter().cloned().collect();
    let guard = step.provenance.guards.get(&host.pool);
    let denial = no_runtime.map(Denial::NoRuntime);
    let denial = denial.or_else(|| guard?.denial(&platforms))?;
    let (field, platform, by_pool, no_runtime_for) = match denial {
        Denial::ByPlatform { platform, field } => (field, Some(platform), None, None),
        Denial::ByPool { field, platform } => (field, platform, Some(&host.pool), None),
        Denial::NoRuntime(form) => ("image", None, None, Some(form)),
    };
    Some(ForbiddingHosts {
        node: node.clone(),
        field: String::from(field),
        platform: platform.cloned(),
        by_pool: by_pool.cloned(),
        no_runtime_for,
        others: 0,
    })
}

/// Grants a step a part of its allocation and sends its hosts the assignment.
fn grant(ctx: &mut Context, id: &StepId, placements: Vec<Placement>) {
    let Some(step) = ctx.state().step(id) else {
        return;
    };
    let held = step
        .spec
        .inside
        .as_ref()
        .and_then(|id| ctx.state().step(id));
    let Some(pool) = held.and_then(|held| Some(held.live()?.pool.clone())) else {
        return;
    };
    let attempt = next_attempt(step);
    let hosts: Vec<NodeName> = placements.iter().map(|it| it.node.clone()).collect();
    let port = meeting_port(ctx, &hosts);
    ctx.record(Record::Allocated(record::Allocated {
        attempt: attempt.clone(),
        pool,
        placements,
        backfill: BTreeSet::new(),
        port,
    }));
    for host in &hosts {
        send_assignment(ctx, host, &attempt);
    }
}
