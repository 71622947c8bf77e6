//! Notifies the init system that the agent is ready, reloads, stops, and that its loop runs, by
//! `sd_notify(3)`. Without an init system nothing is sent. `main` decides when.

use std::convert::Infallible;

use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::event::Event;

/// Reports the agent as ready, even if coordinator and supervisor are not reachable yet.
pub(crate) fn notify_ready() {
    tell(NotifyState::Ready);
}

/// Reports a reload with its start time, as `sd_notify(3)` requires.
pub(crate) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(since) => tell_all(&[NotifyState::Reloading, since]),
        Err(error) => warn!("the clock cannot be read: {error}"),
    }
}

/// Reports that the agent stops.
pub(crate) fn notify_stopping() {
    tell(NotifyState::Stopping);
}

/// Notifies the watchdog twice within its limit while the loop answers. If the loop hangs, the init system
/// restarts the agent; a loop that has ended is handled elsewhere.
pub(crate) async fn notify_alive(events: mpsc::Sender<Event>) -> Infallible {
    if let Some(limit) = sd_notify::watchdog_enabled() {
        while answers(&events).await {
            tell(NotifyState::Watchdog);
            tokio::time::sleep(limit / 2).await;
        }
    }
    std::future::pending().await
}

async fn answers(events: &mpsc::Sender<Event>) -> bool {
    let (answer, answered) = oneshot::channel();
    events.send(Event::Asked(answer)).await.is_ok() && answered.await.is_ok()
}

/// If the notification is lost, the init system restarts this agent; its steps keep running.
fn tell(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the init system could not be notified: {error}");
    }
}
