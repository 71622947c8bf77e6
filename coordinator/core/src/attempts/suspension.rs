//! Suspends and resumes attempts, and carries out what users ask for: suspend, resume, requeue.
//!
//! ```text
//!           gives way, or somebody suspends it            granted again
//! running -------------------------------> suspending -> suspended -> resuming -> running
//!                                              |             |            |
//!           it cannot be done                  +-------------+------------+--> stopping: it waits to start anew
//! ```
//! An attempt that is being resumed may be preempted again at once: then it is suspending again, and its host freezes
//! it after the resume. A frozen attempt keeps its memory and waits for its own host and GPUs, in its old place. A
//! step that a caller suspended is *held* as well: it is not considered until a caller resumes it. Orders are
//! repeated after each loss of the connection; `hosts/statuses.rs` handles the reports.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::megabytes_up;
use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::limit::DEFAULT_SUSPEND_TIMEOUT;
use sluice_common::state::StepState;
use sluice_common::time::Time;
use sluice_common::wire::{StopReason, SuspendFailure, ToNode};

use crate::attempts::orders::stop_as;
use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::{Step, SuspensionPhase};
use crate::record::{self, Record};

/// Records that an attempt is being frozen, and tells its host.
pub(crate) fn suspend_attempt(ctx: &mut Context, id: &AttemptId, by: Option<StepId>) {
    let room_mb = room_for(ctx, id);
    ctx.record(Record::Suspending(record::Suspending {
        attempt: id.clone(),
        by,
        room_mb,
    }));
    send_suspension(ctx, id);
}

/// Host memory to hold for what is moved from the attempt's GPUs: the size of their memory, as far as it is free and
/// not promised.
fn room_for(ctx: &Context, id: &AttemptId) -> u64 {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    let Some(part) = attempt.and_then(|attempt| attempt.parts.first()) else {
        return 0;
    };
    let wanted = memory_of_gpus(ctx, &part.node, &part.gpus);
    ctx.state().scheduler().free_beside(id, &part.node, wanted)
}

/// Most memory that can be moved from GPUs of a node, in units of 10^6 bytes, whatever its host reports.
pub(crate) fn memory_of_gpus(ctx: &Context, node: &NodeName, gpus: &[String]) -> u64 {
    let node = ctx.state().node(node);
    let all = node.into_iter().flat_map(|node| &node.inventory.gpus);
    let held = all.filter(|gpu| gpus.contains(&gpu.uuid));
    held.map(|gpu| megabytes_up(gpu.memory_bytes))
        .fold(0, u64::saturating_add)
}

/// Records that a frozen attempt holds all that it asked for again, and tells its host.
pub(crate) fn resume_attempt(
    ctx: &mut Context,
    id: &AttemptId,
    backfill: alloc::collections::BTreeSet<StepId>,
) {
    ctx.record(Record::Resuming {
        attempt: id.clone(),
        backfill,
    });
    send_suspension(ctx, id);
}

/// Orders an attempt's host to freeze or resume it, by the state here.
fn send_suspension(ctx: &mut Context, id: &AttemptId) {
    let step = ctx.state().step(&id.step);
    let Some(attempt) = step.and_then(|step| step.attempt(id.number)) else {
        return;
    };
    let Some(node) = attempt.unended().next().map(|part| part.node.clone()) else {
        return;
    };
    let suspension = attempt.suspension.as_ref();
    let order = match suspension.map(|it| (it.phase, it.moved_mb)) {
        Some((SuspensionPhase::Suspending | SuspensionPhase::Suspended, room_mb)) => {
            let attempt = id.clone();
            ToNode::Suspend { attempt, room_mb }
        }
        Some((SuspensionPhase::Resuming, _)) | None => ToNode::Resume {
            attempt: id.clone(),
        },
    };
    if let ToNode::Resume { attempt } = &order
        && let Some(contact) = ctx.contact_mut(&node)
    {
        contact.thawing.insert(attempt.clone());
    }
    ctx.send(&node, order);
}

/// Notes that a host has received the order to resume an attempt: its later reports are newer than that.
pub(crate) fn on_answer_to_resume(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if let Some(contact) = ctx.contact_mut(node) {
        contact.thawing.remove(id);
    }
}

/// Repeats the order that a host missed, by the state that its hello shows. `is_frozen` is whether the attempt is
/// frozen or being frozen there.
pub(crate) fn resend_suspension(ctx: &mut Context, id: &AttemptId, is_frozen: bool) {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    let Some(attempt) = attempt.filter(|a| a.stopping.is_none() && !a.has_ended()) else {
        return;
    };
    let wanted = match attempt.suspension() {
        Some(SuspensionPhase::Suspending | SuspensionPhase::Suspended) => true,
        Some(SuspensionPhase::Resuming) | None => false,
    };
    let is_under_way = attempt.suspension() == Some(SuspensionPhase::Suspending);
    if wanted != is_frozen || is_under_way {
        send_suspension(ctx, id);
    }
}

/// Handles a report that an attempt is frozen. The report may be old if the attempt was resumed and preempted again
/// at once.
pub(crate) fn on_host_suspended(ctx: &mut Context, node: &NodeName, id: &AttemptId, moved_mb: u64) {
    let contact = ctx.contact(node);
    let is_old = contact.is_some_and(|contact| contact.thawing.contains(id));
    if suspension_of(ctx, id) == Some(SuspensionPhase::Suspending) && !is_old {
        // More memory than was held for it cannot have been moved, whatever the host reports.
        let step = ctx.state().step(&id.step);
        let live = step.and_then(|step| step.live());
        let room_mb = live.and_then(|live| Some(live.suspension.as_ref()?.moved_mb));
        let moved_mb = moved_mb.min(room_mb.unwrap_or(0));
        ctx.record(Record::Suspended(record::Suspended {
            attempt: id.clone(),
            node: node.clone(),
            moved_mb,
        }));
        await_overdue(ctx, id);
    }
}

/// Handles a report that an attempt runs: one that was being resumed is resumed.
pub(crate) fn on_host_runs(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if suspension_of(ctx, id) != Some(SuspensionPhase::Resuming) {
        return;
    }
    ctx.record(Record::Resumed {
        attempt: id.clone(),
        node: node.clone(),
    });
    if ctx.state().step(&id.step).is_some_and(|step| step.held) {
        suspend_attempt(ctx, id, None);
    }
}

/// Stops an attempt that its host could not freeze or resume.
pub(crate) fn on_host_not_suspended(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    why: SuspendFailure,
) {
    let (Some(SuspensionPhase::Suspending | SuspensionPhase::Resuming), Some(step)) =
        (suspension_of(ctx, id), ctx.state().step(&id.step))
    else {
        return;
    };
    let by = step.live().and_then(|live| live.preempted_by.clone());
    ctx.record(Record::NotSuspended(record::NotSuspended {
        attempt: id.clone(),
        node: node.clone(),
        why,
    }));
    stop_as(
        ctx,
        record::Stopping {
            by,
            ..record::Stopping::because(id.clone(), StopReason::NotSuspended)
        },
    );
}

/// Returns the suspension phase of an attempt that is not being stopped.
fn suspension_of(ctx: &Context, id: &AttemptId) -> Option<SuspensionPhase> {
    let attempt = ctx.state().step(&id.step)?.attempt(id.number)?;
    let stays = attempt.stopping.is_none() && !attempt.has_ended();
    attempt.suspension().filter(|_| stays)
}

/// Sets the timers of attempts that earlier runs saw frozen.
pub(crate) fn await_all_overdue(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let frozen = steps.filter(|step| step.state == StepState::Suspended);
    for id in frozen.filter_map(latest_id).collect::<Vec<_>>() {
        await_overdue(ctx, &id);
    }
}

pub(crate) fn await_overdue(ctx: &mut Context, id: &AttemptId) {
    let at = ctx.state().step(&id.step).and_then(overdue_at);
    if let Some(at) = at {
        ctx.set_timer(TimerKey::Suspension(id.clone()), at);
    }
}

/// Time at which a step has been frozen for too long. A step that a caller suspended has no limit unless its spec
/// sets one.
pub(crate) fn overdue_at(step: &Step) -> Option<Time> {
    let attempt = step.live().filter(|_| step.state == StepState::Suspended)?;
    let since = attempt.suspension.as_ref()?.since;
    let unsaid = (!step.held).then_some(DEFAULT_SUSPEND_TIMEOUT);
    Some(since + step.not_waited + step.spec.suspend_timeout.or(unsaid)?)
}

pub(crate) fn latest_id(step: &Step) -> Option<AttemptId> {
    let latest = step.latest()?;
    Some(step.attempt_id(latest.number))
}
