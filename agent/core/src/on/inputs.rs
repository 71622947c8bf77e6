//! Inputs of attempts: nothing is started before the host has them.

use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;

use crate::attempt::Attempt;
use crate::core::Core;
use crate::input::{InputsFailure, Now};
use crate::spawn::{LEASE_PASSED, never_started};

impl Core {
    /// Starts an attempt that has its inputs now, or ends one that cannot get them. Ignored if the attempt was given back
    /// meanwhile.
    pub(crate) fn on_inputs(
        &mut self,
        now: Now,
        id: &AttemptId,
        fetched: Result<(), InputsFailure>,
    ) {
        let Some(Attempt::Starting { awaits_inputs, .. }) = self.attempts.get_mut(id) else {
            return;
        };
        if !core::mem::take(awaits_inputs) {
            return;
        }
        let exit = match fetched {
            Ok(()) if self.lease_passed(now) => {
                return self.change(id, |it| it.give_back(now, None, LEASE_PASSED));
            }
            Ok(()) => return self.spawn(id),
            Err(InputsFailure::Step(why)) => Exit::StartFailed(why),
            Err(InputsFailure::Host(why)) => Exit::HostFailed(why),
        };
        self.change(id, |it| it.on_refused(never_started(now, exit, None)));
    }
}
