//! How a server leaves: with its steps running on, or with every step stopped before.

use std::ops::ControlFlow;

use sluice_common::supervision::{BootMillis, StopSignal};
use sluice_common::time::Span;
use tracing::info;

use super::Server;
use crate::clock;

/// Between SIGTERM and SIGKILL when everything is stopped. Whoever asks for that is leaving, and does not wait long.
const STOP_GRACE: Span = Span::from_secs(2);

/// Between two kills of what does not die.
const KILL_AGAIN: Span = Span::from_millis(100);

impl Server {
    pub(super) fn on_leave(&mut self, now: BootMillis) -> ControlFlow<()> {
        if self.stop.is_some() {
            info!("told to leave once more: killing now");
            self.stop = Some(now);
            return ControlFlow::Continue(());
        }
        if self.options.stop_on_exit {
            self.begin_to_stop("told to leave", now);
            return ControlFlow::Continue(());
        }
        info!("told to leave: steps run on, and the next supervisor takes them over");
        ControlFlow::Break(())
    }

    pub(super) fn begin_to_stop(&mut self, why: &str, now: BootMillis) {
        if self.stop.is_some() {
            return;
        }
        info!("{why}: stopping every step");
        self.close_door();
        self.stop = Some(clock::after(now, STOP_GRACE));
        self.table.signal_everything(StopSignal::Terminate);
    }

    pub(super) fn go_on_stopping(&mut self, now: BootMillis) -> ControlFlow<()> {
        let Some(kill_at) = self.stop else {
            return ControlFlow::Continue(());
        };
        if self.table.is_empty() {
            info!("every step has ended");
            return ControlFlow::Break(());
        }
        if now >= kill_at {
            self.table.signal_everything(StopSignal::Kill);
            self.stop = Some(clock::after(now, KILL_AGAIN));
        }
        ControlFlow::Continue(())
    }
}
