//! What the init system is told: that the coordinator takes work, that its loop answers, that it leaves. `run` says when;
//! `sd_notify(3)` is the protocol. Started by hand there is nobody to tell, and nothing is told.

use std::convert::Infallible;

use sd_notify::NotifyState;

use crate::engine::EngineHandle;

/// The coordinator takes work: whoever is ordered after it may start now.
pub(crate) fn tell_ready() {
    tell(NotifyState::Ready);
}

/// The coordinator reads its config anew, and says that it takes work when it has. `sd_notify(3)` wants to know since
/// when.
pub(crate) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(since) => tell_all(&[NotifyState::Reloading, since]),
        Err(error) => tracing::warn!("the clock cannot be read: {error}"),
    }
}

/// The coordinator leaves, because it was told to.
pub(crate) fn tell_stopping() {
    tell(NotifyState::Stopping);
}

/// Says that the engine answers, twice within the watchdog's limit where one is set. An engine that hangs is not spoken
/// for, so the init system starts another; one that has ended is somebody else's to notice.
pub(crate) async fn tell_alive(engine: EngineHandle) -> Infallible {
    if let Some(limit) = sd_notify::watchdog_enabled() {
        while engine.read(|_core| ()).await.is_ok() {
            tell(NotifyState::Watchdog);
            tokio::time::sleep(limit / 2).await;
        }
    }
    std::future::pending().await
}

/// An init system that does not listen will restart this coordinator; steps run on.
fn tell(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the init system could not be told: {error}");
    }
}
