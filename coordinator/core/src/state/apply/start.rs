//! Applies records of coordinator starts: the epoch, and clock jumps.

use sluice_common::epoch::MAX_EPOCH;
use sluice_common::id::Epoch;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};

use crate::state::State;

use super::{ApplyResult, Mismatch, need};

impl State {
    pub(super) fn on_coordinator_started(
        &mut self,
        at: Time,
        epoch: &Epoch,
        lost_after: Span,
    ) -> ApplyResult {
        let before = self.epoch().map_or(0, |epoch| epoch.counter);
        // An epoch that hosts made up is too high to continue from: a repair begins below it.
        need(epoch.counter > before || before >= MAX_EPOCH, || {
            Mismatch::Epoch {
                epoch: epoch.counter,
                before,
            }
        })?;
        self.stored.epoch = Some(epoch.clone());
        // Earlier coordinators' leases run on under their terms, even if ours are shorter.
        let earlier = at + self.stored.lost_after;
        self.stored.no_loss_before = self.stored.no_loss_before.max(earlier);
        self.stored.lost_after = lost_after;
        self.renew_leases(at);
        self.renew_rollouts();
        Ok(())
    }

    /// Moves the times of queued steps and of drains by the jump, because that time did not pass.
    pub(super) fn on_clock_jumped(&mut self, by: Span) -> ApplyResult {
        // A coordinator that starts after the jump has given holders their whole time already.
        let now = self.stored.clock;
        for step in self.stored.steps.values_mut() {
            if matches!(step.state, StepState::Queued | StepState::Suspended) || step.is_hostless()
            {
                step.not_waited = step.not_waited + by;
            }
            step.shift_hostless_stop(|at| (at + by).min(now));
            if let Some(lease) = &mut step.lease {
                lease.until = (lease.until + by).min(now + lease.span);
            }
        }
        let cordons = self
            .stored
            .nodes
            .values_mut()
            .filter_map(|node| node.cordon.as_mut());
        for drain in cordons.filter_map(|cordon| cordon.drain.as_mut()) {
            drain.deadline = drain.deadline.map(|deadline| deadline + by);
        }
        Ok(())
    }
}
