//! When a step gets a stop notice: before each signal that asks it to end, and when its grace is shortened.
//! The notice is a file that the supervisor writes.

use sluice_common::id::AttemptId;
use sluice_common::supervision::ToSupervisor;

use crate::attempt::{Attempt, Effect};
use crate::stop::Stop;

/// The notice to send before these effects of an attempt, if any.
pub(crate) fn notice(
    id: &AttemptId,
    attempt: &Attempt,
    effects: &[Effect],
) -> Option<ToSupervisor> {
    let Attempt::Stopping {
        process: Some(_),
        why,
        stop: Stop::Asked { kill_at },
    } = attempt
    else {
        return None;
    };
    // The timer is set again whenever the end of the grace moves.
    let is_news = |effect: &Effect| effect.is_signal() || matches!(effect, Effect::WakeStop(_));
    effects.iter().any(is_news).then(|| ToSupervisor::Notice {
        attempt: id.clone(),
        why: *why,
        kill_at: *kill_at,
    })
}
