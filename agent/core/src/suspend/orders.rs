//! What orders and timers do to an attempt by its state: only one that runs can be frozen, and only one that is frozen,
//! or on its way, goes on by what is in [`super`].

use super::{Holding, Suspension};
use crate::attempt::{Attempt, Effects};
use crate::input::Now;

impl Attempt {
    /// It is to be frozen. Only what runs can be. Always reports.
    pub(crate) fn on_suspend(&mut self, now: Now, holding: Option<Holding>) -> Effects {
        match self {
            Self::Running {
                process,
                timeout_at,
                grace,
            } => {
                let (process, timeout_at, grace) = (*process, *timeout_at, *grace);
                self.turn(Suspension::begin(now, process, timeout_at, grace, holding))
            }
            Self::Frozen(suspension) => {
                let suspension = suspension.clone();
                self.turn(suspension.on_suspend(holding))
            }
            Self::Starting { .. }
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => self.reporting(Effects::new()),
        }
    }

    /// It is to run again, where it is frozen. Always reports.
    pub(crate) fn on_resume(&mut self, now: Now) -> Effects {
        match self {
            Self::Frozen(suspension) => {
                let suspension = suspension.clone();
                self.turn(suspension.on_resume(now))
            }
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => self.reporting(Effects::new()),
        }
    }

    /// The timer of what freezes or thaws has fired.
    pub(crate) fn on_suspension_timer(&mut self, now: Now) -> Effects {
        match self {
            Self::Frozen(suspension) => {
                let suspension = suspension.clone();
                self.turn(suspension.on_timer(now))
            }
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Ended { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => Effects::new(),
        }
    }
}
