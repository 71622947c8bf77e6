//! A keeper kills attempts whose lease has expired if their supervisor does not: it may be dead, stopped,
//! unable to start, or removed with its unit.
//!
//! A keeper needs no config, agent or network. It reads what the supervisor writes anyway: records and the
//! last renewal in the spool ([`crate::spool::reader`]), and the roots of the groups ([`GroupRootsFile`]). It
//! kills an attempt [`KEEPER_DELAY`] after the supervisor should have, leaves a note for the next supervisor,
//! and repeats until no process is left. It remembers what it has read, in case the files are lost.
//!
//! Several keepers of one directory do not interfere. `sluice-steps.service` runs one permanently, the init
//! system starts another every few seconds by `sluice-keeper.timer`, and a supervisor that finds neither
//! starts its own. Each writes a [`heartbeat`]. [`command`] is the command line and the loop; `server`
//! decides what a host without a keeper does.

pub mod command;
pub mod group_roots;
pub mod heartbeat;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use sluice_common::id::{AttemptId, BootId};
use sluice_common::limit::KEEPER_DELAY;
use sluice_common::supervision::{BootMillis, Process};
use tracing::{error, warn};

use crate::groups::Groups;
use crate::process;
use crate::process_scan::{MainProcesses, ProcessScanner};
use crate::spool::reader::{SpoolEntry, SpoolReader};
use crate::table::ATTEMPTS;
use crate::{clock, reap};
use group_roots::GroupRootsFile;

/// An attempt that may have running processes.
#[derive(Clone, Copy, Debug)]
struct KeeperAttempt {
    main: Option<Process>,
    /// When the keeper kills the attempt; `None` if it has no lease.
    due_at: Option<BootMillis>,
    /// Whether the keeper killed the attempt and no process is left.
    is_over: bool,
    /// Whether the kill was logged.
    is_told: bool,
}

/// Enforces the leases of one state directory.
#[derive(Debug)]
pub struct Keeper {
    boot_id: BootId,
    spool: SpoolReader,
    group_roots: GroupRootsFile,
    groups: Groups,
    owners: ProcessScanner,
    renewed: Option<BootMillis>,
    held: BTreeMap<AttemptId, KeeperAttempt>,
    cannot_read: bool,
}

impl Keeper {
    /// For the supervisor of `state_dir`, in this boot.
    pub fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            spool: SpoolReader::new(state_dir, boot_id.clone()),
            group_roots: GroupRootsFile::new(state_dir),
            groups: Groups::found(&Default::default()),
            owners: ProcessScanner::new(state_dir.join(ATTEMPTS)),
            boot_id,
            renewed: None,
            held: BTreeMap::new(),
            cannot_read: false,
        }
    }

    /// Checks the deadlines once, and kills expired attempts. Returns whether the deadlines could be read.
    pub fn look(&mut self, now: BootMillis) -> bool {
        self.reap();
        let is_seeing = self.learn(now);
        let is_due =
            |held: &KeeperAttempt| !held.is_over && held.due_at.is_some_and(|at| at <= now);
        let due = self.held.iter().filter(|(_, held)| is_due(held));
        let due: Vec<AttemptId> = due.map(|(id, _)| id.clone()).collect();
        self.end(&due, None);
        let left = |id: &AttemptId| self.held.get(id).is_some_and(|held| !held.is_over);
        let due: Vec<AttemptId> = due.into_iter().filter(left).collect();
        self.tell(&due);
        self.end(&due, Some(Signal::SIGKILL));
        is_seeing
    }

    /// Whether some attempt has a lease and running processes.
    pub fn keeps(&self) -> bool {
        let leased = |held: &KeeperAttempt| held.due_at.is_some() && !held.is_over;
        let mut held = self.held.iter().filter(|(_, held)| leased(held));
        // Without groups, strays are found only by a scan of the whole host, which happens when the kill is
        // due.
        held.any(|(id, held)| !self.groups.are_there() || self.is_left(id, held))
    }

    /// Signals every attempt that has running processes, with or without a lease; `None` only counts. Returns
    /// their number.
    pub fn signal_all(&mut self, signal: Option<Signal>) -> usize {
        self.reap();
        self.learn(clock::boot_now());
        let all: Vec<AttemptId> = self.held.keys().cloned().collect();
        self.end(&all, signal);
        self.held.values().filter(|held| !held.is_over).count()
    }

    fn learn(&mut self, now: BootMillis) -> bool {
        if let Some(found) = self.group_roots.changed(&self.boot_id) {
            self.groups = Groups::found(&found);
        }
        self.renewed = self.renewed.max(self.spool.renewal());
        let entries = match self.spool.read() {
            Ok(entries) => {
                self.cannot_read = false;
                entries
            }
            // No supervisor has used this directory yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.held.is_empty() => Vec::new(),
            Err(e) => {
                if !std::mem::replace(&mut self.cannot_read, true) {
                    error!(
                        "the records of attempts cannot be read, those that are known are kept: {e}"
                    );
                }
                Vec::new()
            }
        };
        let mut before = std::mem::take(&mut self.held);
        for (id, entry) in entries {
            let known = before.remove(&id);
            if let Some(held) = self.judge(entry, known, now) {
                self.held.insert(id, held);
            }
        }
        // If the supervisor removed these records, no process of the attempts is left.
        before.retain(|id, held| self.is_left(id, held));
        self.held.append(&mut before);
        !self.cannot_read
    }

    fn judge(
        &self,
        entry: SpoolEntry,
        known: Option<KeeperAttempt>,
        now: BootMillis,
    ) -> Option<KeeperAttempt> {
        let fresh = |main, due_at| KeeperAttempt {
            main,
            due_at,
            is_over: false,
            is_told: false,
        };
        match entry {
            SpoolEntry::Over => None,
            SpoolEntry::Held { main, lease } => {
                let due_at = lease.map(|mut lease| {
                    lease.renew(self.renewed.unwrap_or(BootMillis(0)));
                    clock::after(lease.kill_at(), KEEPER_DELAY)
                });
                // An attempt that never began may be started again under its id.
                let known = known.filter(|known| known.main == main);
                let seen = known.unwrap_or_else(|| fresh(main, due_at));
                Some(KeeperAttempt { due_at, ..seen })
            }
            // The next supervisor would kill the attempt at its start. No lease on this host expired before
            // the last renewal.
            SpoolEntry::Unreadable => Some(known.unwrap_or_else(|| {
                let at = self.renewed.unwrap_or(now);
                fresh(None, Some(clock::after(at, KEEPER_DELAY)))
            })),
        }
    }

    fn end(&mut self, ids: &[AttemptId], signal: Option<Signal>) {
        let strays = self.strays(ids);
        for id in ids {
            let Some(mut held) = self.held.get(id).copied() else {
                continue;
            };
            let strays = strays.get(id).map(Vec::as_slice).unwrap_or_default();
            held.is_over = !self.is_left(id, &held) && strays.is_empty();
            if let Some(signal) = signal.filter(|_| !held.is_over) {
                self.send(id, &held, strays, signal);
            }
            self.held.insert(id.clone(), held);
        }
    }

    fn send(&self, id: &AttemptId, held: &KeeperAttempt, strays: &[u32], signal: Signal) {
        if signal == Signal::SIGKILL {
            self.groups.kill(id);
        }
        // A process that has ended meanwhile needs no signal.
        if let Some(main) = held.main.filter(is_there) {
            let _ = killpg(Pid::from_raw(main.pid.cast_signed()), signal);
        }
        for pid in self.groups.members(id).iter().chain(strays) {
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Before the kill, so that the note exists when the end is seen.
    fn tell(&mut self, due: &[AttemptId]) {
        for id in due {
            let Some(held) = self.held.get_mut(id) else {
                continue;
            };
            if !std::mem::replace(&mut held.is_told, true) {
                warn!(
                    step = %id.step, attempt = id.number,
                    "its lease has expired and its supervisor has not killed it: killed by the keeper"
                );
                if let Err(e) = self.spool.note(id) {
                    warn!(step = %id.step, attempt = id.number, "the kill cannot be recorded for the next supervisor: {e}");
                }
            }
        }
    }

    fn is_left(&self, id: &AttemptId, held: &KeeperAttempt) -> bool {
        self.groups.is_populated(id) || held.main.is_some_and(|main| lives(&main))
    }

    /// Scans the whole host for processes of attempts that have no group.
    fn strays(&mut self, ids: &[AttemptId]) -> BTreeMap<AttemptId, Vec<u32>> {
        if ids.is_empty() || self.groups.are_there() {
            return BTreeMap::new();
        }
        let mut leaders = MainProcesses::default();
        leaders.has_ungrouped();
        for id in ids {
            let main = self.held.get(id).and_then(|held| held.main);
            leaders.add_taken_over(id, main, main.is_some_and(|main| lives(&main)));
        }
        match self.owners.scan(&leaders) {
            Ok(census) => {
                let members = census.members.into_iter();
                members
                    .map(|(id, found)| (id, found.iter().map(|p| p.pid).collect()))
                    .collect()
            }
            Err(e) => {
                error!("cannot scan the processes of this host, retrying soon: {e}");
                BTreeMap::new()
            }
        }
    }

    /// Reaps the children that read marks.
    fn reap(&mut self) {
        for child in reap::ended_children().children {
            self.owners.on_child_ended(child.pid);
        }
        self.owners.on_tick();
    }
}

/// Whether the pid is still the process's own, running or not.
fn is_there(main: &Process) -> bool {
    process::stat(main.pid).is_some_and(|p| p.start_ticks == main.start_ticks)
}

fn lives(main: &Process) -> bool {
    process::stat(main.pid).is_some_and(|p| p.start_ticks == main.start_ticks && p.is_alive())
}
