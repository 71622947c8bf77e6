//! The main loop: one `poll` over the socket, the agent's connection, signals, the clock, stdin and the
//! attempts' descriptors. Each turn has a fixed order: ended children, expired leases, events of attempts,
//! messages of the agent, [`Table::finish_turn`]. So a step that ended by itself is never reported as having
//! lost its lease, and an expired deadline is noticed before a renewal that came too late.
//!
//! `table` makes all decisions about attempts.

mod connections;
mod health_report;
mod keeper_monitor;
mod shutdown;
mod startup;
mod upgrade_turn;

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sluice_common::error_chain::error_chain;
use sluice_common::host_health::HostHealth;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, FromSupervisor, ToSupervisor};
use tracing::{error, info, warn};

use crate::connection::{Connection, DisconnectReason};
use crate::handover::{Handover, HandoverError};
use crate::hooks::health::HealthChecker;
use crate::identity::{Identities, IdentityError};
use crate::notify::InitSystem;
use crate::options::Options;
use crate::state_dir::{StateDir, StateDirError};
use crate::table::{Table, TableError, TableOptions};
use crate::upgrade::Upgrade;
use crate::{clock, oom, reap, sys};
use keeper_monitor::KeeperMonitor;
use shutdown::HostStopDetector;
use startup::{StartState, reader_uid};

/// Why the supervisor cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The users of steps cannot be used.
    #[error("the config cannot be applied on this host")]
    Identity(#[from] IdentityError),
    /// The supervisor's own program cannot be found.
    #[error("cannot find the path of this program")]
    Program(#[source] io::Error),
    /// The table cannot be opened.
    #[error("cannot restore the attempts")]
    Table(#[from] TableError),
    /// The handover of an earlier program cannot be read.
    #[error("cannot take over from the supervisor before this one")]
    Handover(#[from] HandoverError),
    /// A descriptor in the handover cannot be used.
    #[error("cannot take over what the supervisor before this one left open")]
    Inherited(#[source] io::Error),
    /// A system call failed.
    #[error("cannot {action}")]
    Kernel { action: &'static str, source: Errno },
}

fn kernel<T>(action: &'static str, result: nix::Result<T>) -> Result<T, ServerError> {
    result.map_err(|source| ServerError::Kernel { action, source })
}

/// The purpose of a polled descriptor.
#[derive(Clone, Debug)]
enum EventSource {
    Signals,
    Clock,
    Stdin,
    Listener,
    Agent,
    Groups,
    Attempt(AttemptId),
    Storage,
    Writer,
}

/// A running supervisor.
#[derive(Debug)]
pub struct Server {
    options: Options,
    state_dir: StateDir,
    table: Table,
    signals: SignalFd,
    clock: TimerFd,
    init: InitSystem,
    shutdown: HostStopDetector,
    stdin: io::Stdin,
    listener: Option<UnixListener>,
    accept_at: Option<BootMillis>,
    agent: Option<Connection>,
    /// When to kill again, while everything is being stopped.
    stop: Option<BootMillis>,
    upgrade: Upgrade,
    health: HealthChecker,
    /// The health that was last reported to the agent.
    reported_health: Option<HostHealth>,
    keeper_monitor: KeeperMonitor,
    /// Whether ended children may be left that no signal reports.
    reap_again: bool,
}

impl Server {
    /// Opens a state directory and adopts its attempts. The socket exists on return.
    ///
    /// # Errors
    /// If another supervisor uses the directory, or the host lacks something essential.
    pub fn open(options: Options) -> Result<Self, ServerError> {
        let handover = options.handover.map(Handover::read).transpose()?;
        let begin = StartState::of(&options, handover)?;
        let state_dir = begin.state_dir;
        kernel("become a subreaper", set_child_subreaper(true))?;
        sys::enable_child_signals();
        let signals = kernel("watch signals", watch_signals())?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let clock = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags);
        let clock = kernel("make a timer", clock)?;
        let upgrade = Upgrade::new(std::env::args_os()).map_err(ServerError::Program)?;
        let reader_uid = reader_uid(&options);
        let identities = Identities::resolve(options.rules.clone(), options.agent_uid)?;
        for warning in &identities.warnings {
            warn!("{warning}");
        }
        let setup = TableOptions {
            reader_uid,
            groups: &options.groups,
            identities,
            output: options.output,
            hooks: options.hooks.clone(),
            cuda: options.cuda.clone(),
            carving: options.carving.clone(),
            leases: options.leases,
            left: begin.left,
        };
        oom::protect(oom::DAEMON);
        let mut table = Table::open(state_dir.path(), setup)?;
        let mut keeper_monitor =
            KeeperMonitor::new(state_dir.path(), table.boot_id(), upgrade.program());
        if options.handover.is_some() {
            keeper_monitor.renew();
        }
        table.has_keeper = keeper_monitor.look(clock::boot_now());
        // No signal reports children that ended before signals were watched.
        let before = reap::ended_children();
        table.on_children_ended(&before.children);
        // No agent is connected yet; the first one gets a full list.
        drop(table.finish_turn(clock::boot_now()));
        let listener = match begin.listener {
            Some(listener) => listener,
            None => state_dir.listen(reader_uid)?,
        };
        let upgraded = options.handover.is_some();
        info!(state_dir = %state_dir.path().display(), upgraded, "ready");
        let init = InitSystem::notify_ready(clock::boot_now());
        let check = options.hooks.health_check.clone();
        let health = HealthChecker::new(check, state_dir.path().to_owned());
        Ok(Self {
            options,
            state_dir,
            table,
            signals,
            clock,
            init,
            shutdown: HostStopDetector::new(),
            stdin: io::stdin(),
            listener: Some(listener),
            accept_at: None,
            agent: None,
            stop: None,
            upgrade,
            health,
            reported_health: None,
            keeper_monitor,
            reap_again: before.is_cut,
        })
    }

    /// Runs until a signal or the end of stdin stops the supervisor.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(mut self) -> Result<(), ServerError> {
        loop {
            self.init.notify_alive(clock::boot_now());
            self.set_clock()?;
            let ready = self.wait()?;
            if self.turn(&ready).is_break() {
                self.stop_listening();
                self.table.groups().close();
                return Ok(());
            }
        }
    }

    fn set_clock(&self) -> Result<(), ServerError> {
        let now = clock::boot_now();
        let wake_at = [
            self.table.wake_at(now),
            self.accept_at,
            self.stop,
            self.init.wake_at(),
            self.upgrade.wake_at(),
            self.health.wake_at().filter(|_| self.stop.is_none()),
            Some(self.keeper_monitor.wake_at()).filter(|_| self.stop.is_none()),
            self.reap_again.then_some(now),
        ];
        let wake_at = wake_at.into_iter().flatten().min();
        let set = match wake_at {
            None => self.clock.unset(),
            Some(at) => {
                // Zero would disarm the timer.
                let at = std::time::Duration::from_millis(at.0.clamp(1, i64::MAX as u64 / 1000));
                let once = Expiration::OneShot(TimeSpec::from_duration(at));
                self.clock.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
        };
        kernel("set the timer", set)
    }

    fn sources(&self) -> Vec<(EventSource, BorrowedFd<'_>, PollFlags)> {
        let mut sources = vec![
            (
                EventSource::Signals,
                self.signals.as_fd(),
                PollFlags::POLLIN,
            ),
            (EventSource::Clock, self.clock.as_fd(), PollFlags::POLLIN),
        ];
        if self.stop.is_none() {
            sources.extend(self.stdin_source());
            let open = self.listener.iter().filter(|_| self.accept_at.is_none());
            sources.extend(open.map(|l| (EventSource::Listener, l.as_fd(), PollFlags::POLLIN)));
        }
        if let Some(agent) = &self.agent {
            let mut wanted = PollFlags::POLLIN;
            wanted.set(PollFlags::POLLOUT, agent.has_unsent());
            sources.push((EventSource::Agent, agent.as_fd(), wanted));
        }
        let groups = self.table.groups().watch().map(AsFd::as_fd);
        sources.extend(groups.map(|fd| (EventSource::Groups, fd, PollFlags::POLLIN)));
        let storage = self.table.storage.fd();
        sources.extend(storage.map(|fd| (EventSource::Storage, fd, PollFlags::POLLIN)));
        let writer = self.table.writer();
        sources.extend(writer.map(|(fd, wanted)| (EventSource::Writer, fd, wanted)));
        let watched = self.table.watched();
        sources.extend(
            watched.map(|(id, fd)| (EventSource::Attempt(id.clone()), fd, PollFlags::POLLIN)),
        );
        sources
    }

    fn stdin_source(&self) -> Option<(EventSource, BorrowedFd<'_>, PollFlags)> {
        self.options
            .exit_with_stdin
            .then(|| (EventSource::Stdin, self.stdin.as_fd(), PollFlags::POLLIN))
    }

    fn wait(&self) -> Result<Vec<EventSource>, ServerError> {
        let sources = self.sources();
        let mut fds: Vec<PollFd> = sources
            .iter()
            .map(|(_, fd, wanted)| PollFd::new(*fd, *wanted))
            .collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return kernel("wait", Err(e)),
        }
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|found| !found.is_empty());
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| is_ready(fd));
        Ok(ready.map(|((source, ..), _)| source.clone()).collect())
    }

    fn turn(&mut self, ready: &[EventSource]) -> ControlFlow<()> {
        let now = clock::boot_now();
        self.accept_at = self.accept_at.filter(|at| now < *at);
        let signalled = ready
            .iter()
            .any(|source| matches!(source, EventSource::Signals));
        // Signals first: a child that ends after this read raises a new SIGCHLD. In the other order, the
        // signal of a child that ended in between would be lost, and its end noticed only at the next event.
        let leaving = if signalled {
            self.on_signals(now)
        } else {
            ControlFlow::Continue(())
        };
        let reap::CollectedChildren {
            children: mut ended,
            is_cut,
        } = reap::ended_children();
        self.reap_again = is_cut;
        // After the reaping: systemd, which kills processes at a shutdown, had its shutdown name before their
        // ends were seen.
        if shutdown::may_tell_of_an_end(ready, &ended) && self.shutdown.host_goes_down() {
            info!(
                "the host is shutting down: attempts that end from now on are reported as ended by that at the next start"
            );
            return ControlFlow::Break(());
        }
        ended.retain(|child| !self.upgrade.on_child_ended(child.pid, &child.exit()));
        ended.retain(|child| !self.health.on_child_ended(child.pid));
        ended.retain(|child| !self.keeper_monitor.on_child_ended(child.pid));
        self.table.on_children_ended(&ended);
        self.table.on_time(now);
        self.upgrade.on_time(now);
        self.on_keeper_time(now);
        if self.stop.is_none() {
            self.health.on_time(now);
        }
        for source in ready {
            match source {
                EventSource::Attempt(id) => self.table.on_ready(id),
                EventSource::Groups => self.table.on_groups(),
                EventSource::Storage => self.table.on_storage(),
                EventSource::Writer => self.table.on_writer(),
                EventSource::Signals | EventSource::Clock => {}
                EventSource::Stdin | EventSource::Listener | EventSource::Agent => {}
            }
        }
        for source in ready {
            match source {
                EventSource::Stdin => self.on_stdin(now),
                EventSource::Agent => self.on_agent(now),
                EventSource::Listener => self.on_caller(now),
                EventSource::Signals
                | EventSource::Clock
                | EventSource::Groups
                | EventSource::Attempt(_) => {}
                EventSource::Storage | EventSource::Writer => {}
            }
        }
        if self.stop.is_none() {
            self.tell_health();
        }
        for view in self.table.finish_turn(now) {
            self.send_to_agent(&FromSupervisor::Attempt(view));
        }
        let execs = self.table.ended_execs();
        for ended in execs.into_iter().chain(self.table.ended_carvings()) {
            self.send_to_agent(&ended);
        }
        self.table.clean_up();
        leaving?;
        self.continue_stopping(now)?;
        self.continue_upgrade();
        ControlFlow::Continue(())
    }

    fn on_signals(&mut self, now: BootMillis) -> ControlFlow<()> {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
            match Signal::try_from(number) {
                // A terminal sends these to parent and child: the parent decides, and closes stdin.
                Ok(Signal::SIGINT) if self.options.exit_with_stdin => {}
                Ok(Signal::SIGTERM | Signal::SIGINT) => self.on_leave(now)?,
                // A terminal that closes sends it as well, which is harmless because stdin is unaffected.
                Ok(Signal::SIGHUP) if self.stop.is_none() => self.upgrade.begin(now),
                // SIGCHLD: children are reaped in each turn. SIGQUIT comes from a key press at a terminal.
                Ok(_) | Err(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn on_stdin(&mut self, now: BootMillis) {
        let mut ignored = [0; 512];
        match self.stdin.read(&mut ignored) {
            Ok(1..) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => self.begin_to_stop("stdin has ended", now),
        }
    }

    /// Removes the socket; open connections stay.
    fn stop_listening(&mut self) {
        if self.listener.take().is_some()
            && let Err(e) = self.state_dir.unlisten()
        {
            warn!("{}", error_chain(&e));
        }
    }

    fn on_agent(&mut self, now: BootMillis) {
        let Some(agent) = &mut self.agent else { return };
        if let Err(e) = agent.flush().and_then(|()| agent.fill()) {
            return self.disconnect(&e);
        }
        loop {
            match self.agent.as_mut().map(Connection::take) {
                None | Some(Ok(None)) => return,
                Some(Ok(Some(message))) => self.on_message(message, now),
                Some(Err(e)) => return self.disconnect(&e),
            }
        }
    }

    fn on_message(&mut self, message: ToSupervisor, now: BootMillis) {
        if self.stop.is_some() && matches!(message, ToSupervisor::Spawn(_)) {
            // The agent repeats the request to the next supervisor.
            return;
        }
        if matches!(&message, ToSupervisor::Spawn(spec) if self.table.needs_keeper(spec)) {
            self.see_keeper(now);
        }
        if let Some(answer) = self.table.on_message(message, now) {
            self.send_to_agent(&answer);
        }
    }

    fn send_to_agent(&mut self, message: &FromSupervisor) {
        if let Some(agent) = &mut self.agent
            && let Err(e) = agent.send(message)
        {
            self.disconnect(&e);
        }
    }

    fn disconnect(&mut self, why: &DisconnectReason) {
        self.agent = None;
        self.table.end_execs();
        match why {
            DisconnectReason::Closed => info!("the agent has disconnected"),
            DisconnectReason::Io(_) => {
                warn!("the agent's connection is closed: {}", error_chain(why))
            }
            DisconnectReason::Protocol(_) | DisconnectReason::Unread { .. } => {
                error!("the agent's connection is closed: {}", error_chain(why));
            }
        }
    }
}

/// Blocks these signals and reads them from a descriptor; children unblock them. Includes those of a closing
/// terminal, which would interrupt the supervisor's work.
fn watch_signals() -> nix::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        mask.add(signal);
    }
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
