//! Tracks which attempts may still write output, for followers. Runs after the core has handled an input.

use sluice_common::id::AttemptId;
use sluice_common::supervision::{AttemptView, HostPhase};
use sluice_common::wire::AttemptPhase;

use super::Engine;
use super::report::ChangedAttempts;

impl Engine {
    /// All attempts that write or will write, including those that wait for the supervisor to reconnect.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = AttemptId> {
        self.core
            .statuses()
            .filter(|status| may_write(&status.phase))
            .map(|status| status.attempt)
    }

    /// A follower of an attempt that waits to start must wait as well, instead of seeing empty output.
    pub(super) fn expect_output(&self, assigned: Option<AttemptId>) {
        let taken = assigned.filter(|id| self.core.status(id).as_ref().is_some_and(may_write));
        if let Some(attempt) = taken {
            self.live.add(attempt);
        }
    }

    /// A released attempt writes no more. A returned attempt had no view that said so.
    pub(super) fn forget_output(&self, touched: &ChangedAttempts) {
        let is_released = |phase: Option<AttemptPhase>| phase.is_some_and(|it| !may_write(&it));
        match touched {
            ChangedAttempts::Nobody => {}
            ChangedAttempts::One(id) if is_released(self.core.status(id)) => self.live.remove(id),
            ChangedAttempts::One(_) => {}
            ChangedAttempts::All => self
                .core
                .statuses()
                .filter(|status| !may_write(&status.phase))
                .for_each(|status| self.live.remove(&status.attempt)),
        }
    }
}

/// Whether an attempt may still write output, by its view.
pub(super) fn writes(view: &AttemptView) -> bool {
    match view.phase {
        HostPhase::Running(_) | HostPhase::Ended(_) => true,
        HostPhase::Gone(_) => false,
    }
}

/// Whether an attempt may still write output, by its phase; it may not have a process yet.
fn may_write(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => true,
        AttemptPhase::Released(_) => false,
    }
}
