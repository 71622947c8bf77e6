//! Invariants of a [`Core`] between two inputs. Tests and the simulator check them after every input; the
//! product never does.

use sluice_common::id::AttemptId;
use sluice_common::limit::MAX_GRACE;

use crate::attempt::Attempt;
use crate::core::{Core, Supervisor};
use crate::link::LinkStage;
use crate::stop::{KILL_INTERVAL, Stop, later};

/// A violated invariant: a bug in the core, whatever it was fed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// After a welcome, the epoch is stored and the coordinator has granted a lease.
    #[error("a coordinator was accepted without {missing}")]
    WelcomeWithout { missing: &'static str },
    /// Before the supervisor's first answer, nothing is sent to a coordinator except its absence, and nothing
    /// starts.
    #[error("{what} though the supervisor has not reported what runs")]
    BeforeSupervisor { what: &'static str },
    /// A start order is for the attempt under which it is stored, and can be executed.
    #[error("what is to be spawned for {attempt} {fault}")]
    SpawnUnfit {
        attempt: AttemptId,
        fault: &'static str,
    },
    /// No stop waits longer than the longest grace, and no kill longer than its repeat.
    #[error("the stop of {attempt} waits longer than the maximum")]
    StopTooLate { attempt: AttemptId },
    /// Attempts that wait for GPUs have some, and do not wait longer than allowed.
    #[error("{attempt} {fault}")]
    ReleaseUnfit {
        attempt: AttemptId,
        fault: &'static str,
    },
}

/// Checks every invariant.
///
/// # Errors
/// The first violated one.
pub fn check(core: &Core) -> Result<(), Violation> {
    a_welcome_has_an_epoch_and_a_lease(core)?;
    nothing_comes_before_the_supervisor(core)?;
    for (id, attempt) in &core.attempts {
        a_spawn_is_fit(id, attempt)?;
        a_stop_comes_in_time(core, id, attempt)?;
        a_release_is_under_way(core, id, attempt)?;
    }
    for id in core.releases.keys() {
        if !matches!(core.attempts.get(id), Some(Attempt::Releasing { .. })) {
            let fault = "waits for GPUs and is not being released";
            return Err(unfit(id, fault));
        }
    }
    Ok(())
}

fn a_welcome_has_an_epoch_and_a_lease(core: &Core) -> Result<(), Violation> {
    let stage = core.link.as_ref().map(|link| link.stage);
    let Some(LinkStage::Welcomed { .. }) = stage else {
        return Ok(());
    };
    for (missing, is_there) in [
        ("an epoch", core.highest_epoch.is_some()),
        ("a lease", core.lease_until.is_some()),
    ] {
        if !is_there {
            return Err(Violation::WelcomeWithout { missing });
        }
    }
    Ok(())
}

fn nothing_comes_before_the_supervisor(core: &Core) -> Result<(), Violation> {
    if core.supervisor != Supervisor::Unheard {
        return Ok(());
    }
    let stage = core.link.as_ref().map(|link| link.stage);
    let is_greeted = match stage {
        None | Some(LinkStage::Waiting) => false,
        Some(LinkStage::Greeted { .. } | LinkStage::Welcomed { .. }) => true,
    };
    if is_greeted && !core.is_absence_reported() {
        return Err(Violation::BeforeSupervisor {
            what: "a coordinator was greeted",
        });
    }
    Ok(())
}

fn a_spawn_is_fit(id: &AttemptId, attempt: &Attempt) -> Result<(), Violation> {
    let Attempt::Starting {
        spec,
        was_sent,
        awaits_inputs,
    } = attempt
    else {
        return Ok(());
    };
    let step = spec.env.get("SLUICE_STEP_ID");
    for (fault, is_fit) in [
        ("is another attempt", spec.attempt == *id),
        (
            "was sent before its inputs came",
            !(*was_sent && *awaits_inputs),
        ),
        (
            "carries another step's id",
            step.is_some_and(|step| step == id.step.as_str()),
        ),
    ] {
        if !is_fit {
            let attempt = id.clone();
            return Err(Violation::SpawnUnfit { attempt, fault });
        }
    }
    Ok(())
}

fn a_stop_comes_in_time(core: &Core, id: &AttemptId, attempt: &Attempt) -> Result<(), Violation> {
    let (Attempt::Stopping { stop, .. } | Attempt::Ended { stop, .. }) = attempt else {
        return Ok(());
    };
    let longest = match stop {
        Stop::Asked { .. } => MAX_GRACE,
        Stop::Killing { .. } => KILL_INTERVAL,
    };
    if stop.wake_at() > later(core.clock, longest) {
        let attempt = id.clone();
        return Err(Violation::StopTooLate { attempt });
    }
    Ok(())
}

fn a_release_is_under_way(core: &Core, id: &AttemptId, attempt: &Attempt) -> Result<(), Violation> {
    let Attempt::Releasing { .. } = attempt else {
        return Ok(());
    };
    let Some(release) = core.releases.get(id) else {
        return Err(unfit(id, "is being released and waits for nothing"));
    };
    if release.awaited.is_empty() {
        return Err(unfit(id, "waits for no GPU"));
    }
    if release.until > later(core.clock, core.settings.gpu_release_timeout) {
        return Err(unfit(id, "waits for its GPUs longer than the maximum"));
    }
    Ok(())
}

fn unfit(id: &AttemptId, fault: &'static str) -> Violation {
    let attempt = id.clone();
    Violation::ReleaseUnfit { attempt, fault }
}

#[cfg(test)]
mod tests;
