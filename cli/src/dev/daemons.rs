//! The daemons of `sluice dev`: one loop that handles signals, deaths of children and the coordinator's output,
//! restarts daemons with growing pauses, and finally stops all of them with their steps.
//!
//! Children are reaped only here, so a signalled process id cannot have become another's.

use std::ffi::OsString;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde::Deserialize;
use signal_hook::consts::SIGCHLD;

use super::daemon_process::{DaemonCommand, DaemonProcess, ended};
use crate::client::Backoff;
use crate::failure::Failure;
use crate::out::Out;
use crate::signals;

/// Time that the coordinator may take to listen: it reads its whole log first.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// Interval of looks at daemons that are becoming ready.
const LOOK: Duration = Duration::from_millis(20);
/// Pause before a daemon that has died is started again, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The pause of the installed units (`RestartSec`).
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Age after which a daemon's death does not count as a failed start: the pause begins anew.
const SOUND_AGE: Duration = Duration::from_secs(10);
/// Time that children of a killed `dev` may still hold files and ports.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(10);
/// Time that coordinator, agent and gateway may take to stop.
const DAEMON_STOP_LIMIT: Duration = Duration::from_secs(5);
/// Time that the supervisor may take to stop all steps before it is told to hurry.
const STEPS_STOP_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DaemonKind {
    Coordinator,
    Supervisor,
    Agent,
    Gateway,
}

/// Why `dev` ends.
#[derive(Debug)]
pub(super) enum DevEnd {
    /// A signal asked for it.
    Told(i32),
    /// A failure, with this message.
    Failed(String),
}

/// Addresses of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Addresses {
    pub(super) http: String,
    pub(super) quic: String,
}

enum DaemonEvent {
    Signal(i32),
    Line(String),
}

/// A daemon that is kept running.
struct Daemon {
    member: DaemonKind,
    program: DaemonCommand,
    child: Option<DaemonProcess>,
    backoff: Backoff,
    due: Option<Instant>,
}

/// All daemons of `dev`.
pub(super) struct Daemons {
    out: Out,
    daemons: Vec<Daemon>,
    send: Sender<DaemonEvent>,
    events: Receiver<DaemonEvent>,
    /// Time until which a daemon that dies at its start is restarted.
    lenient_until: Instant,
    raised: bool,
}

impl Daemons {
    /// Starts with none. `unclean` means that a `dev` was killed here and its children may still be ending.
    pub(super) fn new(out: Out, unclean: bool) -> Result<Self, Failure> {
        let (send, events) = mpsc::channel();
        let (tell, mut heard) = (send.clone(), signals::ending());
        heard.push(SIGCHLD);
        signals::forward(&heard, move |signal| {
            tell.send(DaemonEvent::Signal(signal)).is_ok()
        })
        .map_err(|e| Failure::Failed(format!("cannot listen for signals: {e}")))?;
        let leniency = if unclean {
            PREDECESSOR_LIMIT
        } else {
            Duration::ZERO
        };
        Ok(Self {
            out,
            daemons: Vec::new(),
            send,
            events,
            lenient_until: Instant::now() + leniency,
            raised: false,
        })
    }

    /// Starts the coordinator and waits until it listens. Restarts use the arguments that `fixed` makes of its
    /// addresses, so that it keeps them.
    pub(super) fn start_coordinator(
        &mut self,
        program: DaemonCommand,
        fixed: impl FnOnce(&Addresses) -> Vec<OsString>,
    ) -> Result<Addresses, DevEnd> {
        self.start(DaemonKind::Coordinator, program)?;
        let deadline = Instant::now() + LISTEN_LIMIT;
        loop {
            if let Some(DaemonEvent::Line(line)) = self.wait(LOOK)? {
                let addresses = parse_ready(&line).ok_or_else(|| {
                    DevEnd::Failed(format!(
                        "sluice-coordinator printed `{}` instead of its address",
                        line.escape_debug()
                    ))
                })?;
                self.daemon(DaemonKind::Coordinator).program.args = fixed(&addresses);
                return Ok(addresses);
            }
            if Instant::now() > deadline {
                return Err(DevEnd::Failed(format!(
                    "sluice-coordinator did not listen within {}s",
                    LISTEN_LIMIT.as_secs()
                )));
            }
        }
    }

    pub(super) fn start(
        &mut self,
        member: DaemonKind,
        program: DaemonCommand,
    ) -> Result<(), DevEnd> {
        let mut daemon = Daemon {
            member,
            program,
            child: None,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            due: None,
        };
        daemon.child = Some(spawn(&daemon.program, &self.send)?);
        self.daemons.push(daemon);
        Ok(())
    }

    /// Waits a moment while daemons become ready. A death now is final, unless predecessors may still hold what the
    /// daemon needs.
    pub(super) fn pause(&mut self) -> Result<(), DevEnd> {
        self.wait(LOOK).map(drop)
    }

    /// Keeps all of them running until a signal.
    pub(super) fn keep_alive(&mut self) -> Result<(), DevEnd> {
        self.raised = true;
        loop {
            let next = self.daemons.iter().filter_map(|daemon| daemon.due).min();
            let pause = next.map_or(Duration::MAX, |due| {
                due.saturating_duration_since(Instant::now())
            });
            self.wait(pause)?;
        }
    }

    /// Whether all of them were ready; a signal then is the normal end.
    pub(super) fn were_ready(&self) -> bool {
        self.raised
    }

    /// Waits for one event up to `limit`; handles deaths and restarts meanwhile.
    fn wait(&mut self, limit: Duration) -> Result<Option<DaemonEvent>, DevEnd> {
        let event = match self
            .events
            .recv_timeout(limit.min(Duration::from_secs(3600)))
        {
            Ok(DaemonEvent::Signal(SIGCHLD)) | Err(RecvTimeoutError::Timeout) => None,
            Ok(DaemonEvent::Signal(signal)) => return Err(DevEnd::Told(signal)),
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender"),
        };
        self.note_deaths()?;
        self.restart_due()?;
        Ok(event)
    }

    fn note_deaths(&mut self) -> Result<(), DevEnd> {
        let lenient = self.raised || Instant::now() < self.lenient_until;
        for daemon in &mut self.daemons {
            let Some(child) = &mut daemon.child else {
                continue;
            };
            let Some(status) = child.ended() else {
                continue;
            };
            let words = child.last_words(status);
            let name = daemon.program.name;
            if !lenient {
                return Err(DevEnd::Failed(format!("{name} could not start: {words}")));
            }
            if child.age() > SOUND_AGE {
                daemon.backoff.reset();
            }
            if self.raised {
                let how = ended(status);
                let why = if words == how {
                    how
                } else {
                    format!("{how}: {words}")
                };
                self.out
                    .notice(&format!("{name} died ({why}); starting it again"));
            }
            daemon.child = None;
            daemon.due = Some(Instant::now() + daemon.backoff.next());
        }
        Ok(())
    }

    fn restart_due(&mut self) -> Result<(), DevEnd> {
        let now = Instant::now();
        for daemon in self
            .daemons
            .iter_mut()
            .filter(|daemon| daemon.due.is_some_and(|due| due <= now))
        {
            match spawn(&daemon.program, &self.send) {
                Ok(child) => (daemon.child, daemon.due) = (Some(child), None),
                Err(halt) if !self.raised => return Err(halt),
                // The program may be just being replaced by a newer one.
                Err(_) => daemon.due = Some(now + daemon.backoff.next()),
            }
        }
        Ok(())
    }

    fn daemon(&mut self, member: DaemonKind) -> &mut Daemon {
        let daemon = self
            .daemons
            .iter_mut()
            .find(|daemon| daemon.member == member);
        daemon.expect("only members that were started are asked for")
    }

    /// Stops all of them: coordinator, agents and gateway first, then the supervisors with every step.
    pub(super) fn stop(&mut self) {
        for daemon in &mut self.daemons {
            daemon.due = None;
            if daemon.member != DaemonKind::Supervisor
                && let Some(child) = &mut daemon.child
            {
                child.close_stdin();
            }
        }
        let daemons = [
            DaemonKind::Coordinator,
            DaemonKind::Agent,
            DaemonKind::Gateway,
        ];
        if !self.wait_for_end(&daemons, DAEMON_STOP_LIMIT) {
            self.each(&daemons, DaemonProcess::kill);
            self.wait_for_end(&daemons, DAEMON_STOP_LIMIT);
        }
        self.stop_supervisor();
    }

    fn stop_supervisor(&mut self) {
        let supervisor = [DaemonKind::Supervisor];
        self.revive_supervisors();
        self.each(&supervisor, DaemonProcess::close_stdin);
        if self.wait_for_end(&supervisor, STEPS_STOP_LIMIT) {
            return;
        }
        self.out.notice("steps are still ending; killing them");
        self.each(&supervisor, DaemonProcess::terminate);
        if !self.wait_for_end(&supervisor, STEPS_STOP_LIMIT) {
            self.out.warning(
                "sluice-supervisor does not stop and is killed: look for steps that it left behind",
            );
            self.each(&supervisor, DaemonProcess::kill);
            self.wait_for_end(&supervisor, DAEMON_STOP_LIMIT);
        }
    }

    /// Restarts killed supervisors, because steps outlive them and only a supervisor can stop them.
    fn revive_supervisors(&mut self) {
        let send = self.send.clone();
        let supervisors = self
            .daemons
            .iter_mut()
            .filter(|daemon| daemon.member == DaemonKind::Supervisor);
        for daemon in supervisors {
            if daemon
                .child
                .as_mut()
                .is_none_or(|child| child.ended().is_some())
            {
                daemon.child = spawn(&daemon.program, &send).ok();
            }
        }
    }

    fn each(&mut self, members: &[DaemonKind], act: impl Fn(&mut DaemonProcess)) {
        let daemons = self
            .daemons
            .iter_mut()
            .filter(|daemon| members.contains(&daemon.member));
        daemons
            .filter_map(|daemon| daemon.child.as_mut())
            .for_each(act);
    }

    /// Waits until all of them have ended; a further signal cuts it short.
    fn wait_for_end(&mut self, members: &[DaemonKind], limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let daemons = self
                .daemons
                .iter_mut()
                .filter(|daemon| members.contains(&daemon.member));
            let mut living = daemons.filter_map(|daemon| daemon.child.as_mut());
            if living.all(|child| child.ended().is_some()) {
                return true;
            }
            match self
                .events
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(DaemonEvent::Signal(SIGCHLD) | DaemonEvent::Line(_)) => {}
                Ok(DaemonEvent::Signal(_)) | Err(_) => return false,
            }
        }
    }
}

fn spawn(program: &DaemonCommand, send: &Sender<DaemonEvent>) -> Result<DaemonProcess, DevEnd> {
    let send = send.clone();
    let tell = move |line| {
        // The loop may have ended.
        let _ = send.send(DaemonEvent::Line(line));
    };
    program
        .spawn(tell)
        .map_err(|e| DevEnd::Failed(e.to_string()))
}

fn parse_ready(line: &str) -> Option<Addresses> {
    serde_json::from_str(line.strip_prefix("ready ")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn shell(script: &str, log: &Path) -> DaemonCommand {
        DaemonCommand {
            name: "sluice-coordinator",
            path: PathBuf::from("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            log: Some(log.to_owned()),
        }
    }

    fn until(daemons: &mut Daemons, what: &str, mut done: impl FnMut(&mut Daemons) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done(daemons) {
            assert!(Instant::now() < deadline, "{what}");
            daemons.wait(LOOK).unwrap();
        }
    }

    #[test]
    fn the_ready_line_is_understood() {
        let line = r#"ready {"http":"127.0.0.1:1","quic":"127.0.0.1:2","more":1}"#;
        let addresses = Addresses {
            http: "127.0.0.1:1".into(),
            quic: "127.0.0.1:2".into(),
        };
        assert_eq!(parse_ready(line), Some(addresses));
        assert_eq!(parse_ready("hello"), None);
    }

    #[test]
    fn one_that_dies_is_started_again_as_it_is_to_be_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let (log, marks) = (dir.path().join("log"), dir.path().join("marks"));
        let mut daemons = Daemons::new(Out::plain(), false).unwrap();
        let ready = r#"echo 'ready {"http":"h","quic":"q"}'"#;
        let again = format!("echo again >> {}; exec cat", marks.display());
        let addresses = daemons
            .start_coordinator(shell(&format!("{ready}; exec cat"), &log), |at| {
                assert_eq!(at.http, "h");
                vec!["-c".into(), again.into()]
            })
            .unwrap();
        assert_eq!(addresses.quic, "q");
        daemons.raised = true;
        daemons.each(&[DaemonKind::Coordinator], DaemonProcess::kill);
        until(&mut daemons, "it was not started again", |_| marks.exists());
        daemons.stop();
        assert!(
            daemons
                .daemon(DaemonKind::Coordinator)
                .child
                .as_mut()
                .unwrap()
                .ended()
                .is_some()
        );
    }

    #[test]
    fn one_that_cannot_start_fails_with_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut daemons = Daemons::new(Out::plain(), false).unwrap();
        let program = shell(
            "echo 'error: the port is in use' >&2; exit 1",
            &dir.path().join("log"),
        );
        match daemons.start_coordinator(program, |_| Vec::new()) {
            Err(DevEnd::Failed(message)) => {
                assert_eq!(
                    message,
                    "sluice-coordinator could not start: the port is in use"
                );
            }
            other => panic!("{other:?}"),
        }
        daemons.stop();
    }

    #[test]
    fn what_a_killed_predecessor_still_holds_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let free = dir.path().join("free");
        let script = format!(
            r#"test -e {0} || {{ touch {0}; exit 1; }}; echo 'ready {{"http":"h","quic":"q"}}'; exec cat"#,
            free.display()
        );
        let mut daemons = Daemons::new(Out::plain(), true).unwrap();
        let program = shell(&script, &dir.path().join("log"));
        daemons.start_coordinator(program, |_| Vec::new()).unwrap();
        daemons.stop();
    }

    #[test]
    fn a_supervisor_that_was_killed_comes_back_to_stop_its_steps() {
        let dir = tempfile::tempdir().unwrap();
        let marks = dir.path().join("marks");
        let script = format!("cat; echo stopped >> {}", marks.display());
        let mut daemons = Daemons::new(Out::plain(), false).unwrap();
        daemons
            .start(
                DaemonKind::Supervisor,
                shell(&script, &dir.path().join("log")),
            )
            .unwrap();
        daemons.each(&[DaemonKind::Supervisor], DaemonProcess::kill);
        until_dead(&mut daemons);
        daemons.stop();
        assert_eq!(std::fs::read_to_string(marks).unwrap(), "stopped\n");
    }

    fn until_dead(daemons: &mut Daemons) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while daemons
            .daemon(DaemonKind::Supervisor)
            .child
            .as_mut()
            .unwrap()
            .ended()
            .is_none()
        {
            assert!(Instant::now() < deadline, "the supervisor lives");
            std::thread::yield_now();
        }
    }
}
