//! When a step is told that it is being stopped: before each signal that asks, and when its grace was shortened. What it
//! is told stands in a file of its host, which the supervisor writes.

use sluice_common::id::AttemptId;
use sluice_common::supervision::ToSupervisor;

use crate::attempt::{Attempt, Effect};
use crate::stop::Stop;

/// The notice that goes out with these effects of an attempt, if one does; to be said before the first of them.
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
    // A timer is set anew whenever the end of the grace has moved.
    let is_news = |effect: &Effect| effect.is_signal() || matches!(effect, Effect::WakeStop(_));
    effects.iter().any(is_news).then(|| ToSupervisor::Notice {
        attempt: id.clone(),
        why: *why,
        kill_at: *kill_at,
    })
}
