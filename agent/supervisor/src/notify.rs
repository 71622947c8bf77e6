//! Notifies the init system that this supervisor is ready and, if a watchdog is set, that its loop runs, by
//! `sd_notify(3)`. Without an init system nothing is sent. `server` decides when.

use sd_notify::NotifyState;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use tracing::warn;

use crate::clock;

/// The init system that started this supervisor, if there is one.
#[derive(Debug)]
pub struct InitSystem {
    watchdog: Option<Watchdog>,
}

/// When the next watchdog notification is due.
#[derive(Debug)]
struct Watchdog {
    every: Span,
    next: BootMillis,
}

impl InitSystem {
    /// Reports that the supervisor is ready: units ordered after it may start.
    pub fn notify_ready(now: BootMillis) -> Self {
        tell(NotifyState::Ready);
        let limit = sd_notify::watchdog_enabled();
        let limit = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        Self::with_watchdog(limit.map(Span::from_millis), now)
    }

    /// Notifies twice within the limit, as `sd_watchdog_enabled(3)` recommends.
    fn with_watchdog(limit: Option<Span>, now: BootMillis) -> Self {
        let every = limit.map(|limit| Span::from_millis((limit.millis() / 2).max(1)));
        Self {
            watchdog: every.map(|every| Watchdog { every, next: now }),
        }
    }

    /// Notifies the watchdog if that is due.
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

    /// When the loop must run at the latest.
    pub fn wake_at(&self) -> Option<BootMillis> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }
}

/// If the notification is lost, the init system restarts this supervisor; steps keep running.
fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("the init system could not be notified: {error}");
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
