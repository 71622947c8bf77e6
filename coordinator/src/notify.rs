//! Notifies the init system (`sd_notify(3)`) that the coordinator is ready, alive, reloading or stopping. Without an
//! init system nothing is sent. `run` decides when.

use std::convert::Infallible;

use sd_notify::NotifyState;

use crate::engine::EngineHandle;

/// Reports that the coordinator is ready, so that units ordered after it start.
pub(crate) fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Reports that the coordinator reloads its config. `sd_notify(3)` requires the time at which it began.
pub(crate) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(since) => tell_all(&[NotifyState::Reloading, since]),
        Err(error) => tracing::warn!("the clock cannot be read: {error}"),
    }
}

/// Reports that the coordinator stops because it was asked to.
pub(crate) fn notify_stopping() {
    notify(NotifyState::Stopping);
}

/// Reports that the engine answers, twice within the watchdog's limit if one is set. Nothing is reported for an engine
/// that hangs, so that the init system restarts the coordinator.
pub(crate) async fn notify_alive(engine: EngineHandle) -> Infallible {
    if let Some(limit) = sd_notify::watchdog_enabled() {
        while engine.read(|_core| ()).await.is_ok() {
            notify(NotifyState::Watchdog);
            tokio::time::sleep(limit / 2).await;
        }
    }
    std::future::pending().await
}

/// Sends a state. If that fails, the init system restarts this coordinator; steps run on.
fn notify(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the init system could not be notified: {error}");
    }
}
