//! Attempts of allocations in pools without hosts. No host reports anything about them, so the core itself begins them,
//! and ends them when their holder releases them or when their deadline has passed.
//!
//! ```text
//! granted --> running ----(lease, `timeout`, preemption, cancel)----> stopping --(released, or its grace is over)--> over
//! ```
//! Nobody sees that the holder no longer uses what it had: the end is the holder's word, or the time that it was given.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::supervision::Exit;
use sluice_common::time::Time;
use sluice_common::wire::{StartedProcess, StopReason};

use crate::attempts::orders::stop_attempt;
use crate::attempts::progress::{at_least_running, vanish};
use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::Step;

/// The next change of an attempt without a host, and its time.
struct PendingChange {
    at: Time,
    attempt: AttemptId,
    node: NodeName,
    /// Whether it ends; otherwise it has run for as long as its `timeout` allows.
    ends: bool,
}

/// Begins a granted attempt: its holder has it from now on.
pub(crate) fn begin_hostless(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let process = StartedProcess {
        pid: 0,
        at: ctx.now(),
        workdir_refused: None,
    };
    at_least_running(ctx, node, id, process);
    follow_hostless(ctx, &id.step);
}

/// Makes the changes of a step that are due if it has no host, and sets the timer for the next one.
pub(crate) fn follow_hostless(ctx: &mut Context, id: &StepId) {
    while let Some(next) = ctx.state().step(id).and_then(next_change) {
        if next.at > ctx.now() {
            return ctx.set_timer(TimerKey::Hostless(id.clone()), next.at);
        }
        match next.ends {
            true => vanish(ctx, &next.node, &next.attempt, Exit::Unknown),
            false => stop_attempt(ctx, &next.attempt, StopReason::TimedOut),
        }
    }
}

/// Sets the timers of attempts that were granted in earlier runs. Changes nothing yet, because a jump of the clock is told
/// after the start.
pub(crate) fn follow_all_hostless(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let open = steps.filter_map(|step| Some((step.id.clone(), next_change(step)?.at)));
    for (id, at) in open.collect::<Vec<_>>() {
        ctx.set_timer(TimerKey::Hostless(id), at);
    }
}

/// The next change of a step that comes with time because it has no host, if there is one.
fn next_change(step: &Step) -> Option<PendingChange> {
    let attempt = step.live().filter(|attempt| attempt.is_hostless())?;
    let part = attempt.unended().next()?;
    let began = attempt.began_at.zip(step.spec.timeout);
    let times_out = began.map(|(began, timeout)| began + timeout + step.not_waited);
    Some(PendingChange {
        at: attempt.grace_ends(step).or(times_out)?,
        attempt: step.attempt_id(attempt.number),
        node: part.node.clone(),
        ends: attempt.stopping.is_some(),
    })
}
