//! Applies the attempt statuses that hosts report. A status tells how far an attempt is now: it implies all stages
//! before, a repeat is harmless, and it never takes an attempt back.
//!
//! An attempt is *live on* a node while it holds resources there; any other attempt that the host holds is a stray
//! (`attempts/strays.rs`).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, AttemptStatus, ToNode};

use crate::attempts::live::live_on;
use crate::attempts::orders::{send_assignment, stop_again};
use crate::attempts::progress::{
    at_least_ended, at_least_running, at_least_starting, at_least_stopping, hold_back,
    record_released, vanish,
};
use crate::attempts::strays::on_stray;
use crate::attempts::suspension::{
    on_answer_to_resume, on_host_not_suspended, on_host_runs, on_host_suspended, resend_suspension,
};
use crate::context::Context;
use crate::inside::room::is_used_inside;
use crate::model::step::PartPhase;
use crate::recovery::warrants::{ask_for_warrant, may_be_adopted};
use crate::recovery::{follow_suspension, lose_track};

/// Settles the attempts that a hello lists, and those that it does not list.
pub(crate) fn reconcile(
    ctx: &mut Context,
    node: &NodeName,
    statuses: Vec<AttemptStatus>,
    rebooted: bool,
) {
    let listed: BTreeSet<AttemptId> = statuses.iter().map(|s| s.attempt.clone()).collect();
    if ctx.state().recovery().is_some() {
        // Missing attempts go first, because others may have their GPUs.
        miss(ctx, node, &listed, rebooted);
        let (running, idle) = statuses.into_iter().partition(|s| holds_gpus(&s.phase));
        let (running, idle): (Vec<_>, Vec<_>) = (running, idle);
        let in_order = idle.into_iter().chain(running);
        in_order.for_each(|status| take_listed(ctx, node, status));
        return;
    }
    for status in statuses {
        take_listed(ctx, node, status);
    }
    miss(ctx, node, &listed, rebooted);
}

/// Applies a status from a hello, and repeats the orders that its host missed.
pub(crate) fn take_listed(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let id = status.attempt.clone();
    let is_frozen = matches!(
        status.phase,
        AttemptPhase::Suspending(_) | AttemptPhase::Suspended { .. }
    );
    let missed_stop = match &status.phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. } => Some(id),
        AttemptPhase::Stopping { .. } | AttemptPhase::Ended(_) | AttemptPhase::Released(_) => None,
    };
    take_status(ctx, node, status);
    if let Some(attempt) = missed_stop {
        stop_again(ctx, node, &attempt);
        resend_suspension(ctx, &attempt, is_frozen);
    }
}

/// Settles live attempts on a node that does not list them.
fn miss(ctx: &mut Context, node: &NodeName, listed: &BTreeSet<AttemptId>, rebooted: bool) {
    let held: Vec<AttemptId> = ctx.state().attempts_on(node).cloned().collect();
    for attempt in held.iter().filter(|attempt| !listed.contains(attempt)) {
        on_missing(ctx, node, attempt, rebooted);
    }
}

/// Settles one live attempt that its node does not list.
fn on_missing(ctx: &mut Context, node: &NodeName, id: &AttemptId, rebooted: bool) {
    let Some((_, attempt, part)) = live_on(ctx, node, id) else {
        return;
    };
    // A host lists whatever it has begun, so an attempt that was not seen running has not begun: the order was lost
    // with an agent, before or after that agent acknowledged it.
    let unbegun = part.phase <= PartPhase::Starting && attempt.stopping.is_none();
    if part.phase == PartPhase::Ended {
        // Its end is recorded, so that only its resources come back.
        vanish(ctx, node, id, Exit::Unknown);
    } else if rebooted {
        vanish(ctx, node, id, Exit::HostRebooted);
    } else if ctx.state().recovery().is_some() {
        lose_track(ctx, node, id);
    } else if unbegun {
        send_assignment(ctx, node, id);
    } else {
        vanish(ctx, node, id, Exit::Unknown);
    }
}

/// Applies a status. The caller settles the node afterwards.
pub(crate) fn take_status(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    if live_on(ctx, node, &status.attempt).is_some() {
        follow(ctx, node, status);
    } else if may_be_adopted(ctx, &status.attempt) {
        ask_for_warrant(ctx, node, status);
    } else {
        on_stray(ctx, node, status);
    }
}

fn follow(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let AttemptStatus { attempt: id, phase } = status;
    if !matches!(phase, AttemptPhase::Suspended { .. }) {
        on_answer_to_resume(ctx, node, &id);
    }
    match phase {
        AttemptPhase::Starting => at_least_starting(ctx, node, &id),
        AttemptPhase::Running(process) => {
            at_least_running(ctx, node, &id, process);
            follow_suspension(ctx, node, &id, None);
            on_host_runs(ctx, node, &id);
        }
        AttemptPhase::Suspending(process) => at_least_running(ctx, node, &id, process),
        AttemptPhase::Resuming(process) => {
            at_least_running(ctx, node, &id, process);
            follow_suspension(ctx, node, &id, None);
        }
        AttemptPhase::Suspended { started, moved_mb } => {
            at_least_running(ctx, node, &id, started);
            follow_suspension(ctx, node, &id, Some(moved_mb));
            on_host_suspended(ctx, node, &id, moved_mb);
        }
        AttemptPhase::NotSuspended { started, why } => {
            at_least_running(ctx, node, &id, started);
            on_host_not_suspended(ctx, node, &id, why);
        }
        AttemptPhase::Stopping { started, why } => at_least_stopping(ctx, node, &id, started, why),
        AttemptPhase::Ended(_) | AttemptPhase::Released(_)
            if is_used_inside(ctx.state(), node, &id.step) =>
        {
            hold_back(ctx, node, id, phase);
        }
        AttemptPhase::Ended(end) => at_least_ended(ctx, node, &id, end),
        AttemptPhase::Released(mut end) => {
            let kept = end.kept.take();
            at_least_ended(ctx, node, &id, end);
            record_released(ctx, node, &id, kept);
            ctx.send(node, ToNode::Forget { attempt: id });
        }
    }
}

/// Whether an attempt in this phase may hold its GPUs.
fn holds_gpus(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => true,
        AttemptPhase::Suspended { .. } | AttemptPhase::Released(_) => false,
    }
}
