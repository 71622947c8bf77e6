//! Exits of a server: with its steps still running, after stopping every step, or because the host shuts
//! down.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sluice_common::supervision::{BootMillis, StopSignal};
use sluice_common::time::Span;
use tracing::info;

use super::{EventSource, Server};
use crate::clock;
use crate::reap::EndedChild;

/// Time between SIGTERM and SIGKILL if everything is stopped. The caller is exiting, and does not wait long.
const STOP_GRACE: Span = Span::from_secs(2);

/// Time between two kills of processes that do not die.
const KILL_INTERVAL: Span = Span::from_millis(100);

/// The file with the name of process 1.
const INIT_NAME_FILE: &str = "/proc/1/comm";

/// Name of process 1 while systemd shuts down, truncated as the kernel does.
const SHUTDOWN: &str = "systemd-shutdow";

/// Tells whether the host shuts down, by the name of process 1. The file stays open, because it is read whenever an
/// attempt may have ended.
#[derive(Debug)]
pub(super) struct HostStopDetector(Option<File>);

impl HostStopDetector {
    pub(super) fn new() -> Self {
        Self::of(INIT_NAME_FILE.as_ref())
    }

    fn of(name_file: &Path) -> Self {
        Self(File::open(name_file).ok())
    }

    /// Whether the host shuts down. A forced reboot stops no unit: it kills steps and supervisor in any order, and such
    /// a step has not ended by itself.
    pub(super) fn host_goes_down(&self) -> bool {
        let mut name = [0; SHUTDOWN.len() + 2];
        let read = self.0.as_ref().map(|file| file.read_at(&mut name, 0));
        let Some(Ok(length)) = read else {
            return false;
        };
        name[..length].trim_ascii_end() == SHUTDOWN.as_bytes()
    }
}

/// Whether the events of a turn may mean that an attempt has ended. Signals report children; a pidfd reports
/// processes that an earlier supervisor started, inotify their groups; the timer finds the rest.
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
            info!("asked to stop a second time: killing every step now");
            self.stop = Some(now);
            return ControlFlow::Continue(());
        }
        if self.options.stop_on_exit {
            self.begin_to_stop("asked to stop", now);
            return ControlFlow::Continue(());
        }
        info!("stopping: steps run on, and the next supervisor takes them over");
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
    use std::fs;

    use crate::sys::ChildExit;
    use sluice_common::usage::Usage;

    /// A process that ran before this supervisor is no child, and its kill raises no signal.
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
            !HostStopDetector::new().host_goes_down(),
            "this one does not"
        );
        let dir = tempfile::tempdir().unwrap();
        let comm = dir.path().join("comm");
        assert!(!HostStopDetector::of(&comm).host_goes_down());
        fs::write(&comm, "systemd\n").unwrap();
        let detector = HostStopDetector::of(&comm);
        for (name, down) in [
            ("systemd\n", false),
            ("systemd-shutdow\n", true),
            ("systemd-shutdown\n", false),
        ] {
            fs::write(&comm, name).unwrap();
            assert_eq!(detector.host_goes_down(), down, "{name}");
        }
    }
}
