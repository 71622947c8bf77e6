//! The view of an allocation, by the state of the step that it is.

use coordinator_core::Step;
use sluice_common::allocation::{AllocationState, AllocationView};
use sluice_common::api::{duration, timestamp};
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::wire::StopReason;

/// Returns the view; `None` if the step is no allocation.
pub(super) fn allocation(step: &Step) -> Option<AllocationView> {
    let (lease, own) = step.lease.zip(step.spec.lease)?;
    let state = state(step);
    let is_open = !step.state.is_terminal();
    let release_by = step.live().and_then(|attempt| attempt.grace_ends(step));
    Some(AllocationView {
        state,
        lease: duration(own),
        expires_at: is_open.then(|| timestamp(lease.until)),
        holder: lease.holder,
        release_by: release_by
            .filter(|_| state == AllocationState::Preempting)
            .map(timestamp),
    })
}

fn state(step: &Step) -> AllocationState {
    let expired = [
        ReasonCode::NotRenewed,
        ReasonCode::QueueTimeout,
        ReasonCode::DeadlineMissed,
        ReasonCode::TimedOut,
    ];
    match step.state {
        // Until its hosts have set its resources aside it may be queued again without its holder.
        StepState::Queued | StepState::Allocated | StepState::Starting => AllocationState::Queued,
        StepState::Running | StepState::Suspending | StepState::Suspended | StepState::Resuming => {
            AllocationState::Allocated
        }
        StepState::Stopping if gives_way(step) => AllocationState::Preempting,
        StepState::Stopping => AllocationState::Releasing,
        StepState::Preempted => AllocationState::Preempted,
        StepState::Rejected => AllocationState::Rejected,
        StepState::Succeeded => AllocationState::Released,
        StepState::Cancelled | StepState::Failed if expired.contains(&step.reason.code()) => {
            AllocationState::Expired
        }
        StepState::Cancelled if step.reason.code() == ReasonCode::DependencyFailed => {
            AllocationState::Rejected
        }
        StepState::Cancelled => AllocationState::Released,
        StepState::Failed => AllocationState::Lost,
    }
}

/// Whether it is being stopped although its holder wants it.
fn gives_way(step: &Step) -> bool {
    let why = step.live().and_then(|attempt| attempt.stopping);
    matches!(why, Some(StopReason::Preempted | StopReason::Drained))
}
