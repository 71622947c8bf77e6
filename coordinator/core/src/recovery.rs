//! Recovery: the store is older than the hosts, because it was restored from a backup or lost. Attempts that hosts
//! run are *adopted* by the warrants that they show, and nothing new starts until all that may run is known or has
//! stopped.
//!
//! ```text
//! a status of an attempt that is not known here --> asked for its warrant --> adopted, and followed like any other
//!                                                        |      \--> waits for the other hosts of its gang
//!        no warrant, or one of before what we know ------+--> a stray: it is stopped
//! ```
//! A remembered host has either reported, or is lost after being silent for `lost_after`. A host that joined after
//! the backup is not remembered and may run a step that is queued here, so a recovery lasts until the leases of
//! earlier coordinators have expired, unless an admin ends it. An attempt that the store has running and its host
//! does not know is over: its step is queued again, for free.

pub(crate) mod adoption;
pub(crate) mod end;
pub(crate) mod warrants;

use crate::record;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId};
use sluice_common::pool::PoolSpec;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::time::Time;
use sluice_common::wire::StopReason;
use sluice_reasons::{Cause, Wait};

use crate::attempts::live::live_on;
use crate::attempts::orders::{send_stops, stop_attempt};
use crate::attempts::progress::{record_released, unseen, vanish};
use crate::attempts::queue_timeout::queue_again;
use crate::attempts::suspension::memory_of_gpus;
use crate::context::Context;
use crate::input::TimerKey;
use crate::inside::room::is_used_inside;
use crate::model::recovery::{LogPoint, RecoveryCause};
use crate::model::step::{Attempt, PartPhase, SuspensionPhase};
use crate::record::Record;

/// Stops new starts. The store knows all grants up to `known`.
pub(crate) fn begin_recovery(ctx: &mut Context, why: RecoveryCause, known: LogPoint) {
    let before = ctx.state().recovery().map(|recovery| recovery.known);
    let known = before.map_or(known, |before| before.min(known));
    ctx.record(Record::RecoveryBegan { why, known });
    await_recovery(ctx);
}

/// Sets the timer for the end of the recovery.
pub(crate) fn await_recovery(ctx: &mut Context) {
    if ctx.state().recovery().is_some() {
        let at = recovery_lasts_until(ctx);
        ctx.set_timer(TimerKey::Recovery, at);
    }
}

/// Time at which every unreported attempt has stopped, because each lease of an earlier coordinator has expired.
pub(crate) fn recovery_lasts_until(ctx: &Context) -> Time {
    let silent = ctx.listening_since() + ctx.settings().lost_after;
    silent.max(ctx.state().no_loss_before())
}

/// The remembered nodes that have not yet reported what they run and are not lost.
pub(crate) fn unreported(ctx: &Context) -> impl Iterator<Item = &NodeName> {
    let nodes = ctx.state().nodes().values();
    let present = nodes.filter(|node| node.state != NodeState::Lost);
    let silent = present.filter(|node| !has_told(ctx, &node.name));
    silent.map(|node| &node.name)
}

/// Whether a host has reported in this run what it holds. An agent that has not heard its supervisor has not.
pub(super) fn has_told(ctx: &Context, node: &NodeName) -> bool {
    let contact = ctx.contact(node);
    contact.is_some_and(|contact| {
        let knows = !matches!(contact.supervisor, SupervisorState::NeverSeen(_));
        knows && contact.heard_at.is_some()
    })
}

/// The reason why nothing starts.
pub(crate) fn recovering(ctx: &Context) -> Wait {
    Wait::Recovery {
        unreported: unreported(ctx).cloned().collect(),
        left: recovery_lasts_until(ctx).since(ctx.now()),
    }
}

/// Makes a pool that a host is in and that the store does not know, because it was made after the time of the store.
pub(crate) fn know_pool(ctx: &mut Context, pool: &PoolName, node: &NodeName) {
    if ctx.state().recovery().is_none() || ctx.state().pool(pool).is_some() {
        return;
    }
    ctx.record(Record::PoolPut(record::PoolPut {
        pool: pool.clone(),
        spec: PoolSpec {
            description: format!(
                "told by `{node}` in a recovery: its terms are to be applied again"
            ),
            ..PoolSpec::default()
        },
    }));
}

/// Ends an attempt that its host does not know. Whether the attempt was over or never began is unknown.
pub(crate) fn lose_track(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let Some((_, attempt, part)) = live_on(ctx, node, id) else {
        return;
    };
    if attempt.stopping.is_some() || is_used_inside(ctx.state(), node, &id.step) {
        return vanish(ctx, node, id, Exit::Unknown);
    }
    let started = part.started;
    ctx.record(Record::Stopping(record::Stopping::because(
        id.clone(),
        StopReason::Superseded,
    )));
    send_stops(ctx, id, StopReason::Superseded, Some(node));
    let Some((_, attempt, _)) = live_on(ctx, node, id) else {
        return;
    };
    let end = unseen(ctx, attempt, started);
    ctx.record(Record::Ended(record::Ended {
        attempt: id.clone(),
        node: node.clone(),
        end,
    }));
    queue_untracked(ctx, node, &id.step);
    record_released(ctx, node, id, None);
}

fn queue_untracked(ctx: &mut Context, node: &NodeName, step: &StepId) {
    let known = ctx.state().step(step);
    let known = known.filter(|step| step.latest().is_some_and(Attempt::has_ended));
    let Some(is_allocation) = known.map(|step| step.lease.is_some()) else {
        return;
    };
    let (step, reason) = (step.clone(), Cause::LostTrack { node: node.clone() });
    match is_allocation {
        // Its holder may have had it after the time of the store.
        true => ctx.record(Record::StepEnded(record::StepEnded {
            step,
            state: StepState::Failed,
            reason,
        })),
        false => queue_again(ctx, Record::Requeued { step, reason }),
    }
}

/// Follows hosts that froze or resumed attempts after the time of the store. `moved_mb` is the memory that was moved
/// from the GPUs of a frozen attempt.
pub(crate) fn follow_suspension(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    moved_mb: Option<u64>,
) {
    if ctx.state().recovery().is_none() {
        return;
    }
    let Some((_, attempt, part)) = live_on(ctx, node, id) else {
        return;
    };
    // An attempt that has ended is neither.
    let runs = part.phase == PartPhase::Running;
    if !runs || attempt.stopping.is_some() || attempt.parts.len() > 1 {
        return;
    }
    let gpus = part.gpus.clone();
    match (moved_mb, attempt.suspension()) {
        (Some(moved_mb), None | Some(SuspensionPhase::Resuming)) => {
            let room_mb = moved_mb.min(memory_of_gpus(ctx, node, &gpus));
            ctx.record(Record::Suspending(record::Suspending {
                attempt: id.clone(),
                by: None,
                room_mb,
            }));
        }
        (None, Some(SuspensionPhase::Suspended)) => follow_resumption(ctx, node, id, &gpus),
        (Some(_), Some(SuspensionPhase::Suspending | SuspensionPhase::Suspended))
        | (None, None | Some(SuspensionPhase::Suspending | SuspensionPhase::Resuming)) => {}
    }
}

/// Marks an attempt as resumed. If its GPUs are granted to another here, the attempt is stopped, because the report
/// cannot be true.
fn follow_resumption(ctx: &mut Context, node: &NodeName, id: &AttemptId, gpus: &[String]) {
    let free = gpus.iter().all(|gpu| !ctx.state().is_granted(node, gpu));
    if !free {
        return stop_attempt(ctx, id, StopReason::Superseded);
    }
    ctx.record(Record::Resuming {
        attempt: id.clone(),
        backfill: BTreeSet::new(),
    });
}
