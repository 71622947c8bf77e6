//! Makes sure that the host has a keeper ([`crate::keeper`]): checks heartbeats, starts a keeper if there is
//! none, and reports the host as unfit if that fails. Without a keeper no attempt with a lease starts.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_common::error_chain::error_chain;
use sluice_common::host_health::HostHealth;
use sluice_common::id::BootId;
use sluice_common::limit::{KEEPER_LIMIT, KEEPER_PERIOD};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use tracing::{info, warn};

use super::Server;
use crate::clock;
use crate::keeper::heartbeat::{self, Heartbeat, KeeperKind};
use crate::keeper::{command, group_roots};

/// Time between two checks of heartbeats.
const LOOK: Span = Span::from_millis(KEEPER_LIMIT.millis() / 2);

/// Log file of a keeper that the supervisor has started, because the keeper outlives the supervisor and the
/// reader of its log.
const LOG: &str = "log";

/// The keeper that this supervisor started, if any, and what is known of others.
#[derive(Debug)]
pub(super) struct KeeperMonitor {
    state_dir: PathBuf,
    boot_id: BootId,
    program: PathBuf,
    /// The keeper that was started last.
    started: Option<u32>,
    /// Earliest time to start another one.
    start_at: BootMillis,
    /// When a keeper was last seen at work; initially, the supervisor's start.
    seen_at: BootMillis,
    next: BootMillis,
    missing: Option<String>,
}

impl KeeperMonitor {
    pub(super) fn new(state_dir: &Path, boot_id: BootId, program: &Path) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            boot_id,
            program: program.to_owned(),
            started: None,
            start_at: BootMillis(0),
            seen_at: clock::boot_now(),
            next: BootMillis(0),
            missing: None,
        }
    }

    /// Makes a permanent keeper execute the installed program, as this supervisor has done.
    pub(super) fn renew(&self) {
        let found = Heartbeat::last(&self.state_dir, KeeperKind::KeeperLoop);
        if let Some(keeper) = found.and_then(|heartbeat| heartbeat.process(&self.boot_id)) {
            // Fails if the keeper has just ended; the next check replaces it.
            let _ = kill(Pid::from_raw(keeper.pid.cast_signed()), Signal::SIGHUP);
        }
    }

    /// Checks for a keeper and starts one if there is none; returns whether the host has one. A keeper
    /// without a heartbeat for [`KEEPER_LIMIT`] does not count.
    pub(super) fn look(&mut self, now: BootMillis) -> bool {
        let has_keeper = heartbeat::is_kept(&self.state_dir, &self.boot_id, now);
        let pause = if has_keeper { LOOK } else { KEEPER_PERIOD };
        self.next = clock::after(now, pause);
        let found = if has_keeper {
            self.seen_at = now;
            Ok(())
        } else {
            self.start(now).and_then(|()| self.within_grace(now))
        };
        match (&found, &self.missing) {
            (Ok(()), Some(_)) => info!("a keeper of leases runs again"),
            (Err(why), None) => warn!("no step with a lease is started: {why}"),
            (Ok(()), None) | (Err(_), Some(_)) => {}
        }
        self.missing = found.err();
        self.missing.is_none()
    }

    /// Whether a keeper that was at work, or was started, still has time for its heartbeat. One that was
    /// missing must have sent it.
    fn within_grace(&self, now: BootMillis) -> Result<(), String> {
        match &self.missing {
            Some(why) => Err(why.clone()),
            None if now <= clock::after(self.seen_at, KEEPER_LIMIT) => Ok(()),
            None => Err(self.sentence()),
        }
    }

    fn sentence(&self) -> String {
        format!(
            "no keeper of leases runs on this host: see `systemctl status sluice-steps.service sluice-keeper.timer` \
             and {}",
            self.log().display()
        )
    }

    /// A started keeper gets the time of one heartbeat before another is started.
    fn start(&mut self, now: BootMillis) -> Result<(), String> {
        if now < self.start_at {
            return Ok(());
        }
        self.start_at = clock::after(now, KEEPER_LIMIT);
        let pid = self
            .spawn()
            .map_err(|e| format!("no keeper of leases could be started on this host: {e}"))?;
        info!(pid, "keeper of leases started");
        self.started = Some(pid);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.state_dir.join(group_roots::DIRECTORY).join(LOG)
    }

    fn spawn(&self) -> io::Result<u32> {
        group_roots::make_directory(&self.state_dir)
            .map_err(|e| io::Error::other(error_chain(&e)))?;
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.log())?;
        // The keeper inherits only the variables of the log. If this supervisor runs inside an attempt,
        // inherited marks would make the keeper a process of that attempt.
        let kept = std::env::vars_os().filter(|(name, _)| name == sluice_log::FILTER_VARIABLE);
        let child = Command::new(&self.program)
            .arg(command::MODE)
            .arg("--state-dir")
            .arg(&self.state_dir)
            .arg(format!("--{}", command::LEAVE))
            .env_clear()
            .envs(kept)
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(child.id())
    }

    /// Handles the end of a child; returns whether it was the keeper. The next one is started shortly after.
    pub(super) fn on_child_ended(&mut self, pid: u32) -> bool {
        let was_it = self.started.take_if(|started| *started == pid).is_some();
        if was_it {
            self.start_at = clock::after(clock::boot_now(), KEEPER_PERIOD);
            self.next = self.start_at;
        }
        was_it
    }

    pub(super) fn wake_at(&self) -> BootMillis {
        self.next
    }
}

impl Server {
    /// Checks for a keeper if that is due, and reports a change to the agent.
    pub(super) fn on_keeper_time(&mut self, now: BootMillis) {
        if self.stop.is_none() && now >= self.keeper_monitor.wake_at() {
            self.look_for_keeper(now);
        }
    }

    /// Checks again before an attempt with a lease starts.
    pub(super) fn see_keeper(&mut self, now: BootMillis) {
        if now > clock::after(self.keeper_monitor.seen_at, KEEPER_PERIOD) {
            self.look_for_keeper(now);
        }
    }

    fn look_for_keeper(&mut self, now: BootMillis) {
        let before = self.keeper_monitor.missing.clone();
        let is_there = self.keeper_monitor.look(now);
        self.table.has_keeper = is_there;
        if self.keeper_monitor.missing != before {
            self.tell_health();
        }
    }

    /// The host's health: a host without a keeper or without disk space takes no work, whatever its own check
    /// says.
    pub(super) fn host_health(&self) -> Option<HostHealth> {
        let missing = self.keeper_monitor.missing.as_deref();
        let unfit = missing.or_else(|| self.table.shortage());
        let unfit = unfit.map(|why| HostHealth::Unfit(why.to_owned()));
        unfit.or_else(|| self.health.found().cloned())
    }
}
