//! What the init system is told: that this supervisor is ready, and, where a watchdog is set, that its loop turns.
//! `server` says when; `sd_notify(3)` is the protocol. Started by hand there is nobody to tell, and nothing is told.

use sd_notify::NotifyState;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use tracing::warn;

use crate::clock;

/// The init system that started this supervisor, if one did.
#[derive(Debug)]
pub struct InitSystem {
    watchdog: Option<Watchdog>,
}

/// A sign of life is due.
#[derive(Debug)]
struct Watchdog {
    every: Span,
    next: BootMillis,
}

impl InitSystem {
    /// Says that attempts are taken: whoever is ordered after this supervisor may start now.
    pub fn notify_ready(now: BootMillis) -> Self {
        tell(NotifyState::Ready);
        let limit = sd_notify::watchdog_enabled();
        let limit = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        Self::with_watchdog(limit.map(Span::from_millis), now)
    }

    /// Twice within the limit, as `sd_watchdog_enabled(3)` recommends.
    fn with_watchdog(limit: Option<Span>, now: BootMillis) -> Self {
        let every = limit.map(|limit| Span::from_millis((limit.millis() / 2).max(1)));
        Self {
            watchdog: every.map(|every| Watchdog { every, next: now }),
        }
    }

    /// Says that the loop turns, where that is due.
    pub fn notify_alive(&mut self, now: BootMillis) {
        if self.is_due(now) {
            tell(NotifyState::Watchdog);
        }
    }

    fn is_due(&mut self, now: BootMillis) -> bool {
        let Some(watchdog) = self.watchdog.as_mut().filter(|w| w.next <= now) else {
            return false;
        };
        watchdog.next = clock::after(now, watchdog.every);
        true
    }

    /// When the loop must turn at the latest.
    pub fn wake_at(&self) -> Option<BootMillis> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }
}

/// An init system that does not listen will restart this supervisor; its steps run on.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("the init system could not be told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_hears_twice_within_its_limit() {
        let mut init = InitSystem::with_watchdog(Some(Span::from_secs(10)), BootMillis(1_000));
        assert!(init.is_due(BootMillis(1_000)));
        assert_eq!(init.wake_at(), Some(BootMillis(6_000)));
        assert!(!init.is_due(BootMillis(5_999)));
        assert!(init.is_due(BootMillis(6_500)));
        assert_eq!(init.wake_at(), Some(BootMillis(11_500)));
    }

    #[test]
    fn without_a_watchdog_nothing_is_due() {
        let mut init = InitSystem::with_watchdog(None, BootMillis(0));
        assert!(!init.is_due(BootMillis(u64::MAX)));
        assert_eq!(init.wake_at(), None);
    }
}
