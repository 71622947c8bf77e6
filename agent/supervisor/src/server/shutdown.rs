//! How a server leaves: with its steps running on, with every step stopped before, or because the host goes down.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use sluice_common::supervision::{BootMillis, StopSignal};
use sluice_common::time::Span;
use tracing::info;

use super::{EventSource, Server};
use crate::clock;
use crate::reap::EndedChild;

/// Between SIGTERM and SIGKILL when everything is stopped. Whoever asks for that is leaving, and does not wait long.
const STOP_GRACE: Span = Span::from_secs(2);

/// Between two kills of what does not die.
const KILL_INTERVAL: Span = Span::from_millis(100);

/// Where the kernel says what the first process is called.
pub(super) const INIT_NAME_FILE: &str = "/proc/1/comm";

/// What it is called while systemd ends everything, in as many letters as the kernel keeps.
const SHUTDOWN: &str = "systemd-shutdow";

/// Whether the host goes down. A forced reboot stops no unit: it kills steps and supervisor alike, in any order, and a step
/// that dies so has not ended by itself.
pub(super) fn host_goes_down(first_process: &Path) -> bool {
    fs::read_to_string(first_process).is_ok_and(|name| name.trim_end() == SHUTDOWN)
}

/// Whether a turn may find that an attempt has ended. A signal tells of children alone: what an earlier supervisor has
/// started is watched by a descriptor, its group by another, and what has neither is looked at by the clock.
pub(super) fn may_tell_of_an_end(ready: &[EventSource], ended: &[EndedChild]) -> bool {
    let tells = |source: &EventSource| match source {
        EventSource::Signals
        | EventSource::Clock
        | EventSource::Groups
        | EventSource::Attempt(_) => true,
        EventSource::Stdin | EventSource::Listener | EventSource::Agent => false,
        EventSource::Storage | EventSource::Writer => false,
    };
    !ended.is_empty() || ready.iter().any(tells)
}

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
        self.stop_listening();
        self.stop = Some(clock::after(now, STOP_GRACE));
        self.table.signal_everything(StopSignal::Terminate);
    }

    pub(super) fn continue_stopping(&mut self, now: BootMillis) -> ControlFlow<()> {
        let Some(kill_at) = self.stop else {
            return ControlFlow::Continue(());
        };
        if self.table.is_empty() {
            info!("every step has ended");
            return ControlFlow::Break(());
        }
        if now >= kill_at {
            self.table.signal_everything(StopSignal::Kill);
            self.stop = Some(clock::after(now, KILL_INTERVAL));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::ChildExit;
    use sluice_common::usage::Usage;

    /// One that ran before this supervisor did is no child of it, and raises no signal when it is killed.
    #[test]
    fn whatever_may_tell_of_an_end_has_the_first_process_looked_at() {
        let taken_over = EventSource::Attempt("a.1".parse().unwrap());
        for source in [
            EventSource::Signals,
            EventSource::Clock,
            EventSource::Groups,
            taken_over,
        ] {
            assert!(
                may_tell_of_an_end(std::slice::from_ref(&source), &[]),
                "{source:?}"
            );
        }
        let others = [
            EventSource::Stdin,
            EventSource::Listener,
            EventSource::Agent,
        ];
        assert!(!may_tell_of_an_end(&others, &[]));
        let killed_meanwhile = EndedChild {
            pid: 7,
            ending: ChildExit::Signal(15),
            usage: Usage::default(),
        };
        assert!(may_tell_of_an_end(&others, &[killed_meanwhile]));
    }

    #[test]
    fn a_host_goes_down_once_systemd_has_become_its_shutdown() {
        assert!(
            !host_goes_down(INIT_NAME_FILE.as_ref()),
            "this one does not"
        );
        let dir = tempfile::tempdir().unwrap();
        let comm = dir.path().join("comm");
        assert!(!host_goes_down(&comm));
        for (name, down) in [("systemd\n", false), ("systemd-shutdow\n", true)] {
            fs::write(&comm, name).unwrap();
            assert_eq!(host_goes_down(&comm), down, "{name}");
        }
    }
}
