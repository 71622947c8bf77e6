//! State of one stop sequence: ask, wait for the grace, kill, and repeat the kill until no process is left.
//!
//! ```text
//!   grace > 0 --> Asked --- grace has passed, or was shortened to nothing ---> Killing --+
//!   grace = 0 ----------------------------------------------------------------> ^        | again
//!                                                                               +--------+
//! ```
//! Pure values: [`crate::attempt`] starts a sequence and turns its stages into signals and timers.

use sluice_common::limit::MAX_GRACE;
use sluice_common::supervision::{BootMillis, StopSignal};
use sluice_common::time::Span;

/// Time between two kills of one attempt. Its processes may have forked during the first.
pub(crate) const KILL_INTERVAL: Span = Span::from_secs(1);

/// Stage of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGTERM was sent, or will be as soon as there is a process.
    Asked {
        /// When the grace ends.
        kill_at: BootMillis,
    },
    /// SIGKILL was sent.
    Killing {
        /// When SIGKILL is sent again.
        again_at: BootMillis,
    },
}

/// `span` after `at`.
pub(crate) fn later(at: BootMillis, span: Span) -> BootMillis {
    BootMillis(at.0.saturating_add(span.millis()))
}

impl Stop {
    /// Starts a stop. A grace is limited to [`MAX_GRACE`]; zero kills at once.
    pub(crate) fn begin(now: BootMillis, grace: Span) -> Self {
        match grace.min(MAX_GRACE) {
            Span::ZERO => Self::kill(now),
            grace => Self::Asked {
                kill_at: later(now, grace),
            },
        }
    }

    fn kill(now: BootMillis) -> Self {
        Self::Killing {
            again_at: later(now, KILL_INTERVAL),
        }
    }

    /// Repeats the stop order: the kill may come sooner, never later.
    #[must_use]
    pub(crate) fn shortened(self, now: BootMillis, grace: Span) -> Self {
        match self {
            Self::Asked { kill_at } if later(now, grace) >= kill_at => self,
            Self::Asked { .. } => Self::begin(now, grace),
            Self::Killing { .. } => self,
        }
    }

    /// Handles the timer, which may fire early, late or needlessly.
    #[must_use]
    pub(crate) fn woken(self, now: BootMillis) -> Self {
        if now < self.wake_at() {
            return self;
        }
        Self::kill(now)
    }

    /// The signal of this stage.
    pub(crate) fn signal(self) -> StopSignal {
        match self {
            Self::Asked { .. } => StopSignal::Terminate,
            Self::Killing { .. } => StopSignal::Kill,
        }
    }

    /// When the next stage is due.
    pub(crate) fn wake_at(self) -> BootMillis {
        match self {
            Self::Asked { kill_at } => kill_at,
            Self::Killing { again_at } => again_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootMillis = BootMillis(10_000);

    fn asked(kill_at: u64) -> Stop {
        Stop::Asked {
            kill_at: BootMillis(kill_at),
        }
    }

    fn killing(again_at: u64) -> Stop {
        Stop::Killing {
            again_at: BootMillis(again_at),
        }
    }

    #[test]
    fn a_stop_asks_first_unless_there_is_no_grace() {
        assert_eq!(Stop::begin(NOW, Span::from_secs(5)), asked(15_000));
        assert_eq!(Stop::begin(NOW, Span::ZERO), killing(11_000));
    }

    #[test]
    fn a_grace_is_bounded() {
        let longest = later(NOW, MAX_GRACE);
        let stop = Stop::begin(NOW, Span::from_millis(u64::MAX));
        assert_eq!(stop.wake_at(), longest);
    }

    #[test]
    fn asking_again_only_shortens() {
        for (grace_secs, expected) in [(9, asked(15_000)), (5, asked(15_000)), (2, asked(12_000))] {
            let again = asked(15_000).shortened(NOW, Span::from_secs(grace_secs));
            assert_eq!(again, expected, "{grace_secs}s");
        }
        assert_eq!(asked(15_000).shortened(NOW, Span::ZERO), killing(11_000));
        assert_eq!(
            killing(10_500).shortened(NOW, Span::ZERO),
            killing(10_500),
            "it is being killed already"
        );
    }

    #[test]
    fn the_timer_kills_when_due_and_again_but_never_early() {
        assert_eq!(asked(10_001).woken(NOW), asked(10_001));
        assert_eq!(asked(10_000).woken(NOW), killing(11_000));
        assert_eq!(killing(10_001).woken(NOW), killing(10_001));
        assert_eq!(killing(9_000).woken(NOW), killing(11_000));
    }
}
