//! Applies records of allocations.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::time::Time;

use super::{ApplyResult, Mismatch, need, step_mut};
use crate::record::Renewal;
use crate::state::State;

impl State {
    pub(super) fn on_renewed(&mut self, it: &Renewal) -> ApplyResult {
        let Renewal {
            step: id,
            until,
            lease: span,
            holder,
        } = it;
        let step = step_mut(&mut self.stored.steps, id)?;
        let is_open = !step.state.is_terminal();
        let lease = step.lease.as_mut().filter(|_| is_open);
        need(lease.is_some(), || Mismatch::NotRenewed(id.clone()))?;
        if let Some(lease) = lease {
            (lease.until, lease.span) = (*until, *span);
            lease.holder = holder.or(lease.holder);
        }
        Ok(())
    }

    /// Gives all holders their whole lease again: while no coordinator ran, none of them could renew it.
    pub(super) fn renew_leases(&mut self, now: Time) {
        let steps = self.stored.steps.values();
        let open = steps.filter(|step| step.lease.is_some() && !step.state.is_terminal());
        let open: Vec<StepId> = open.map(|step| step.id.clone()).collect();
        for id in open {
            let Some(step) = self.stored.steps.get_mut(&id) else {
                continue;
            };
            if let Some(lease) = &mut step.lease {
                lease.until = lease.until.max(now + lease.span);
            }
            // Nor could they be told that it is taken back: they have their grace again too.
            step.shift_hostless_stop(|at| at.max(now));
        }
    }
}
