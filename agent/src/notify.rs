//! What the init system is told: that the agent works, that its loop answers, that it leaves. `main` says when;
//! `sd_notify(3)` is the protocol. Started by hand there is nobody to tell, and nothing is told.

use std::convert::Infallible;

use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::engine::Event;

/// The agent works, whether or not a coordinator or a supervisor can be reached yet.
pub(crate) fn tell_ready() {
    tell(NotifyState::Ready);
}

/// The agent reads its config anew, and says that it works when it has. `sd_notify(3)` wants to know since when.
pub(crate) fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(since) => tell_all(&[NotifyState::Reloading, since]),
        Err(error) => warn!("the clock cannot be read: {error}"),
    }
}

/// The agent leaves, because it was told to.
pub(crate) fn tell_stopping() {
    tell(NotifyState::Stopping);
}

/// Says that the loop answers, twice within the watchdog's limit where one is set. A loop that hangs is not spoken for,
/// so the init system starts another agent; one that has ended is somebody else's to notice.
pub(crate) async fn tell_alive(events: mpsc::Sender<Event>) -> Infallible {
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

/// An init system that does not listen will restart this agent; its steps run on.
fn tell(state: NotifyState<'_>) {
    tell_all(&[state]);
}

fn tell_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the init system could not be told: {error}");
    }
}
