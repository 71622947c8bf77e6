//! Applies suspend and resume orders, and their timers, to an attempt in any state: only a running attempt
//! can be suspended, and [`super`] handles the others.

use super::{GpuHolding, Suspension};
use crate::attempt::{Attempt, Effects};
use crate::input::Now;

impl Attempt {
    /// Suspends an attempt if it runs. Always reports.
    pub(crate) fn on_suspend(&mut self, now: Now, holding: Option<GpuHolding>) -> Effects {
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

    /// Resumes an attempt if it is suspended. Always reports.
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

    /// Handles the timer of a suspend or resume.
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
