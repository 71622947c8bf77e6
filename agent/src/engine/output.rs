//! Whose output may still grow, which those who follow it ask. What the loop hears goes through here after the core.

use sluice_common::id::AttemptId;
use sluice_common::supervision::{AttemptView, HostPhase};
use sluice_common::wire::AttemptPhase;

use super::Engine;
use super::report::Touched;

impl Engine {
    /// All attempts that write or will, those included whose start waits for the supervisor to come back.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = AttemptId> {
        self.core
            .statuses()
            .filter(|status| may_write(&status.phase))
            .map(|status| status.attempt)
    }

    /// A follower of an attempt whose start must wait has to wait as well, and not be told that there is no output.
    pub(super) fn expect_output(&self, assigned: Option<AttemptId>) {
        let taken = assigned.filter(|id| self.core.status(id).as_ref().is_some_and(may_write));
        if let Some(attempt) = taken {
            self.live.add(attempt);
        }
    }

    /// What is released writes no more. One that was given back had no view that said so.
    pub(super) fn forget_output(&self, touched: &Touched) {
        let is_released = |phase: Option<AttemptPhase>| phase.is_some_and(|it| !may_write(&it));
        match touched {
            Touched::Nobody => {}
            Touched::One(id) if is_released(self.core.status(id)) => self.live.remove(id),
            Touched::One(_) => {}
            Touched::All => self
                .core
                .statuses()
                .filter(|status| !may_write(&status.phase))
                .for_each(|status| self.live.remove(&status.attempt)),
        }
    }
}

/// Whether an attempt may still write output.
pub(super) fn writes(view: &AttemptView) -> bool {
    match view.phase {
        HostPhase::Running(_) | HostPhase::Ended(_) => true,
        HostPhase::Gone(_) => false,
    }
}

/// The same of one that the core knows; it may not have a process yet.
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
