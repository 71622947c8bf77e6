//! Ends a turn: sends signals, reports attempts without processes as gone, writes the spool, and returns the
//! changed views, in this order.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use sluice_common::supervision::{FreezerState, Process};
use sluice_common::time::Span;
use sluice_common::usage::Usage;

use super::{
    Attempt, AttemptId, AttemptView, BTreeSet, BootMillis, Exit, Phase, StopSignal, Table, clock,
    error, error_chain, io, process,
};
use crate::attempt::{AfterHooksState, EpilogState, Origin};
use crate::process::ProcessStat;
use crate::process_scan::{MainProcesses, ProcessScan};

/// Time between two polls for ends that cause no event, and between two kills.
const TICK: Span = Span::from_millis(100);

impl Table {
    /// Ends a turn. Returns the views to send to the agent.
    pub fn finish_turn(&mut self, now: BootMillis) -> Vec<AttemptView> {
        let ticked = self.tick_at.is_some_and(|at| now >= at);
        if ticked {
            self.on_tick();
        }
        self.send_wanted();
        self.report_failed_starts();
        self.report_flushed();
        let undecided = self.look_due && self.check_for_ends();
        self.writer.go_on(now);
        self.look_due = undecided;
        self.save();
        self.tick_at = match self.tick_at.filter(|_| !ticked) {
            _ if !undecided && !self.needs_tick() => None,
            Some(set) => Some(set),
            None => Some(clock::after(now, TICK)),
        };
        self.take_changed_views()
    }

    /// Does what need not be done before the views are sent.
    pub fn clean_up(&mut self) {
        self.sweep.end_turn();
    }

    fn needs_tick(&self) -> bool {
        let unheard = |a: &Attempt| {
            a.freezer == FreezerState::Freezing || a.is_ended() && !self.groups.is_watched()
        };
        let unsent = !self.wanted.is_empty() || self.wanted_of_all.is_some();
        unsent
            || self.owners.is_waiting()
            || self.groups.is_leaving()
            || self.attempts.values().any(|a| needs_tick(a) || unheard(a))
    }

    fn on_tick(&mut self) {
        self.look_due = true;
        self.look_at_freezers();
        self.groups.remove_leaving();
        self.owners.on_tick();
        let mut dead = Vec::new();
        let mut alive = Vec::new();
        for (id, attempt) in &self.attempts {
            match attempt.phase() {
                Phase::Running(main, None)
                    if attempt.origin == Origin::TakenOver && !lives(main) =>
                {
                    dead.push(id.clone());
                }
                Phase::Starting(..) | Phase::Running(..) | Phase::Ended(_) if attempt.killing => {
                    alive.push(id.clone());
                }
                Phase::Starting(..) | Phase::Running(..) | Phase::Ended(_) | Phase::Gone(_) => {}
            }
        }
        for id in alive {
            self.want(id, StopSignal::Kill);
        }
        for id in dead {
            self.on_main_ended(&id, Exit::Unknown, Usage::default());
        }
    }

    fn send_wanted(&mut self) {
        if let Some(signal) = self.wanted_of_all {
            self.signal_everything(signal);
        }
        if self.wanted.is_empty() {
            return;
        }
        let Some(scan) = self.scan() else {
            // Attempts that cannot be scanned now are signalled later; groups are killed without a scan.
            let kills = self.wanted.iter().filter(|(_, s)| *s == StopSignal::Kill);
            return kills.for_each(|(id, _)| self.groups.kill(id));
        };
        for (id, signal) in std::mem::take(&mut self.wanted) {
            let main = self.attempts.get(&id).and_then(Attempt::process);
            let known = scan.members.get(&id).map(Vec::as_slice).unwrap_or_default();
            let members = self.with_group(&id, known);
            if signal == StopSignal::Kill {
                self.groups.kill(&id);
            }
            signal_all(main, &members, signal);
        }
    }

    /// The known processes of an attempt, and those in its group.
    fn with_group(&self, id: &AttemptId, known: &[ProcessStat]) -> Vec<ProcessStat> {
        let pids: BTreeSet<u32> = known.iter().map(|p| p.pid).collect();
        let others = self
            .groups
            .members(id)
            .into_iter()
            .filter(|pid| !pids.contains(pid));
        let others = others
            .filter_map(process::stat)
            .filter(ProcessStat::is_alive);
        known.iter().copied().chain(others).collect()
    }

    /// Signals every attempt and every descendant of this process. If the host cannot be scanned now, the
    /// rest is signalled as soon as it can.
    pub fn signal_everything(&mut self, signal: StopSignal) {
        self.wanted_of_all = Some(signal);
        let Some(scan) = self.scan() else { return };
        self.wanted_of_all = None;
        let living: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| !attempt.is_gone())
            .map(|(id, _)| id.clone())
            .collect();
        for id in &living {
            let main = self.attempts.get(id).and_then(Attempt::process);
            let known = scan.members.get(id).map(Vec::as_slice).unwrap_or_default();
            let members = self.with_group(id, known);
            if signal == StopSignal::Kill {
                self.groups.kill(id);
            }
            signal_all(main, &members, signal);
        }
        let owned = |p: &&ProcessStat| !scan.members.values().flatten().any(|m| m.pid == p.pid);
        for stray in scan.descendants.iter().filter(owned) {
            signal_one(stray, signal);
        }
    }

    /// Whether no attempt and no child is left.
    pub fn is_empty(&self) -> bool {
        self.attempts.values().all(Attempt::is_gone)
            && self.uids.is_settled()
            && process::own_children().is_ok_and(|children| {
                // The writer exits by itself when this process does.
                children.iter().all(|pid| self.writer.pid() == Some(*pid))
            })
    }

    /// Advances attempts without processes; returns whether some cannot be identified yet.
    fn check_for_ends(&mut self) -> bool {
        let ended =
            |origin| move |attempt: &Attempt| attempt.origin == origin && attempt.is_ended();
        let mut undecided = false;
        if self.attempts.values().any(ended(Origin::Child)) {
            let leaders = self.leaders();
            match self.owners.orphans(&leaders) {
                Ok(orphans) if orphans.undecided => undecided = true,
                Ok(orphans) => self.report_empty(Origin::Child, |id| orphans.of.contains(id)),
                Err(e) => log_blind(&e),
            }
        }
        if self.attempts.values().any(ended(Origin::TakenOver))
            && let Some(scan) = self.scan()
        {
            self.report_empty(Origin::TakenOver, |id| scan.members.contains_key(id));
        }
        undecided
    }

    fn report_empty(&mut self, origin: Origin, is_left: impl Fn(&AttemptId) -> bool) {
        let ended = self
            .attempts
            .iter()
            .filter(|(_, a)| a.origin == origin && a.is_ended());
        let empty = ended.filter(|(id, _)| !is_left(id) && !self.groups.is_populated(id));
        let empty: Vec<AttemptId> = empty.map(|(id, _)| id.clone()).collect();
        empty.iter().for_each(|id| self.on_nothing_left(id));
    }

    /// Advances an attempt without processes: it is gone after all steps of its end are done in order.
    pub(super) fn on_nothing_left(&mut self, id: &AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id).filter(|a| a.is_ended()) else {
            return;
        };
        match attempt.after {
            // The child may not have entered its group yet.
            AfterHooksState::Running => {}
            AfterHooksState::Pending | AfterHooksState::Done if !self.writer.is_done(id) => {
                self.writer.end(id)
            }
            AfterHooksState::Pending => self.start_after_hooks(id),
            AfterHooksState::Done => {
                if !self.hooking.keeps(id, attempt) {
                    attempt.on_empty(self.groups.usage(id));
                    attempt.unsaved = true;
                    self.changed.insert(id.clone());
                }
            }
        }
    }

    /// Handles the end of a child; returns whether it ran an epilog.
    pub(super) fn on_epilog_ended(&mut self, pid: u32) -> bool {
        let Some(id) = self.hooking.on_child_ended(pid) else {
            return false;
        };
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.epilog = EpilogState::Done;
        }
        true
    }

    fn scan(&mut self) -> Option<ProcessScan> {
        let leaders = self.leaders();
        self.owners.scan(&leaders).inspect_err(log_blind).ok()
    }

    fn leaders(&self) -> MainProcesses {
        let mut leaders = MainProcesses::default();
        leaders.exclude_helper(self.writer.pid());
        for (id, attempt) in self.attempts.iter().filter(|(_, a)| !a.is_gone()) {
            if !self.groups.has_group(id) {
                leaders.has_ungrouped();
            }
            let (main, runs) = (attempt.process(), attempt.main_is_running());
            match attempt.origin {
                Origin::Child => leaders.add_child(id, main, runs),
                Origin::TakenOver => leaders.add_taken_over(id, main, runs),
            }
        }
        leaders
    }

    /// Writes outdated records. A failure is retried at each tick and logged once.
    fn save(&mut self) {
        for (id, attempt) in self.attempts.iter_mut().filter(|(_, a)| a.unsaved) {
            match self.spool.save(&attempt.record(id, &self.boot_id)) {
                Ok(()) => (attempt.unsaved, attempt.lag_logged) = (false, false),
                Err(e) => {
                    if !attempt.lag_logged {
                        error!(step = %id.step, attempt = id.number, "its record is out of date, trying again: {}", error_chain(&e));
                    }
                    attempt.lag_logged = true;
                }
            }
        }
    }

    fn take_changed_views(&mut self) -> Vec<AttemptView> {
        let changed = std::mem::take(&mut self.changed);
        for id in &changed {
            if self.attempts.get(id).is_some_and(Attempt::is_gone) {
                self.groups.remove(id);
                self.storage.on_gone(id);
                let uid = self.attempts.get_mut(id).and_then(|attempt| {
                    self.storage.release(&mut attempt.storage);
                    attempt.uid.take()
                });
                self.sweep.on_gone(id);
                self.remove_after_hooks(id);
                self.writer.remove(id);
                if let Some(uid) = uid {
                    self.uids.on_gone(uid, id);
                }
            }
        }
        changed
            .iter()
            .filter_map(|id| Some(self.shown(id, self.attempts.get(id)?.view(id)?)))
            .collect()
    }
}

fn needs_tick(attempt: &Attempt) -> bool {
    let unheard = attempt.origin == Origin::TakenOver
        && matches!(attempt.phase(), Phase::Ended(_) | Phase::Running(_, None));
    attempt.unsaved || unheard || (attempt.killing && !attempt.is_gone())
}

fn lives(main: &Process) -> bool {
    process::stat(main.pid).is_some_and(|p| p.start_ticks == main.start_ticks && p.is_alive())
}

fn log_blind(e: &io::Error) {
    error!("cannot scan the processes of this host, retrying soon: {e}");
}

/// Signals the process group in one call, so that a process that is just forking is not missed, and the other
/// processes one by one.
fn signal_all(main: Option<Process>, members: &[ProcessStat], signal: StopSignal) {
    let group = main.map(|main| main.pid);
    let (inside, outside): (Vec<&ProcessStat>, Vec<&ProcessStat>) =
        members.iter().partition(|p| Some(p.group) == group);
    if let Some(first) = inside.first() {
        report(killpg(
            Pid::from_raw(first.group.cast_signed()),
            number(signal),
        ));
    }
    for p in outside {
        signal_one(p, signal);
    }
}

fn signal_one(p: &ProcessStat, signal: StopSignal) {
    let same = process::stat(p.pid).is_some_and(|now| now.start_ticks == p.start_ticks);
    if same {
        report(kill(Pid::from_raw(p.pid.cast_signed()), number(signal)));
    }
}

fn number(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Terminate => Signal::SIGTERM,
        StopSignal::Kill => Signal::SIGKILL,
    }
}

fn report(sent: Result<(), Errno>) {
    match sent {
        // A process that has ended meanwhile needs no signal.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(e) => error!(
            "a process of an attempt could not be signalled: {}",
            e.desc()
        ),
    }
}
