//! Finds the attempt that a process of the host belongs to. `table` asks before it signals, and before it reports
//! that no process is left. This module sends no signals.
//!
//! A process belongs to an attempt if one of these holds, checked in this order:
//! 1. it is the attempt's main process, or descends from a process that belongs to it;
//! 2. it is in the session or process group of the attempt's main process;
//! 3. it is a child of ours, as orphans of our attempts are, and its environment carries the attempt's marks
//!    (`SLUICE_STEP_ID`, `SLUICE_ATTEMPT`);
//! 4. an earlier supervisor started the attempt, so its orphans are not children of ours, and the process
//!    carries the marks *and* works or writes in the attempt's own directory. Marks alone are not enough: another
//!    supervisor on the host may know an attempt of the same name.
//!
//! Marks are read only while some attempt has no control group, and by a child ([`mark_reader`]): they are in the memory
//! of another user's process, which can block the reader. Groups list their processes without that.
//!
//! This misses some processes that a control group finds: one that left its session, lost its parent *and* cleared its
//! environment by `exec`; one that left session and parent and whose environment cannot be read (a set-user-id program,
//! if the supervisor is not root, or blocked memory); one that after a supervisor's death also left the attempt's
//! directory; and a process that outlived a supervisor which itself ran inside an attempt.

mod mark_reader;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, Process};
use sluice_common::time::Span;

use crate::process::{self, Mark, ProcessStat};
use crate::{clock, handover};
use mark_reader::{MarkAnswer, MarkReaders};

/// Time during which an orphan without a readable environment counts as possibly an attempt's. The environment is
/// empty for a moment during `exec`, which a slow disk can prolong.
const UNDECIDED_LIMIT: Span = Span::from_secs(1);

/// The attempts that processes may belong to: all that are not gone.
#[derive(Debug, Default)]
pub struct MainProcesses {
    by_pid: BTreeMap<u32, MainProcess>,
    children: BTreeSet<AttemptId>,
    taken_over: BTreeSet<AttemptId>,
    /// Whether some attempt has no control group.
    has_ungrouped: bool,
    /// A child of this process that belongs to no attempt.
    helper: Option<u32>,
}

#[derive(Debug)]
struct MainProcess {
    attempt: AttemptId,
    start_ticks: u64,
    runs: bool,
}

impl MainProcesses {
    /// Excludes a child of this process that belongs to no attempt.
    pub fn exclude_helper(&mut self, helper: Option<u32>) {
        self.helper = helper;
    }

    /// Adds an attempt that this supervisor started.
    pub fn add_child(&mut self, attempt: &AttemptId, main: Option<Process>, runs: bool) {
        self.children.insert(attempt.clone());
        self.add(attempt, main, runs);
    }

    /// Adds an attempt that an earlier supervisor started.
    pub fn add_taken_over(&mut self, attempt: &AttemptId, main: Option<Process>, runs: bool) {
        self.taken_over.insert(attempt.clone());
        self.add(attempt, main, runs);
    }

    /// Records that some attempt has no control group, so strays must be found by their marks.
    pub fn has_ungrouped(&mut self) {
        self.has_ungrouped = true;
    }

    /// The pid of a main process that has ended is reused only after its process group and session are gone.
    fn add(&mut self, attempt: &AttemptId, main: Option<Process>, runs: bool) {
        let Some(main) = main else { return };
        let reused = || process::stat(main.pid).is_some_and(|p| p.start_ticks != main.start_ticks);
        if self.by_pid.get(&main.pid).is_some_and(|other| other.runs) || (!runs && reused()) {
            return;
        }
        let leader = MainProcess {
            attempt: attempt.clone(),
            start_ticks: main.start_ticks,
            runs,
        };
        self.by_pid.insert(main.pid, leader);
    }

    /// Whether a child of this process is the running main process of an attempt. Its pid is not reused before it is
    /// reaped.
    fn is_running_child(&self, pid: u32) -> bool {
        let leader = self.by_pid.get(&pid);
        leader.is_some_and(|leader| leader.runs && self.children.contains(&leader.attempt))
    }

    fn of_main(&self, p: &ProcessStat) -> Option<&AttemptId> {
        let leader = self.by_pid.get(&p.pid)?;
        (leader.start_ticks == p.start_ticks).then_some(&leader.attempt)
    }

    fn of_group(&self, p: &ProcessStat) -> Option<&AttemptId> {
        [p.session, p.group].iter().find_map(|id| {
            let leader = self.by_pid.get(id)?;
            (p.start_ticks >= leader.start_ticks).then_some(&leader.attempt)
        })
    }
}

/// Orphans of the attempts that this supervisor started.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Attempts with a running orphan.
    pub of: BTreeSet<AttemptId>,
    /// Whether some orphan is not identified yet.
    pub undecided: bool,
}

/// Every running process of the host, by attempt.
#[derive(Debug, Default)]
pub struct ProcessScan {
    pub members: BTreeMap<AttemptId, Vec<ProcessStat>>,
    /// Descendants of this supervisor, whether or not they belong to an attempt.
    pub descendants: Vec<ProcessStat>,
}

/// Data that was read of a process. The marks are those of the program that was seen first, so a process that
/// clears its environment later is still found.
#[derive(Debug)]
struct SeenMark {
    mark: Mark,
    is_tied: bool,
    since: BootMillis,
    /// Whether reading has failed for long enough to stop.
    given_up: bool,
}

/// Finds the attempts of processes, and remembers what was read.
#[derive(Debug)]
pub struct ProcessScanner {
    me: u32,
    attempts_dir: PathBuf,
    seen: BTreeMap<(u32, u64), SeenMark>,
    readers: MarkReaders,
}

impl ProcessScanner {
    /// For the supervisor with the attempts' directories in `attempts_dir`.
    pub fn new(attempts_dir: PathBuf) -> Self {
        Self {
            me: std::process::id(),
            attempts_dir,
            seen: BTreeMap::new(),
            readers: MarkReaders::new(process::mark),
        }
    }

    /// Handles the end of a child; returns whether it was a mark reader.
    pub fn on_child_ended(&mut self, pid: u32) -> bool {
        self.readers.on_child_ended(pid)
    }

    /// Whether an answer about marks is late.
    pub fn is_waiting(&self) -> bool {
        self.readers.is_waiting()
    }

    /// Gives up late answers that are not needed any more.
    pub fn on_tick(&mut self) {
        self.readers.end();
    }

    /// Processes with marks, for the next program in this process.
    pub fn hand_over(&self) -> Vec<handover::KnownProcess> {
        let marked = self.seen.iter().filter_map(|((pid, start_ticks), seen)| {
            let Mark::Of(attempt) = &seen.mark else {
                return None;
            };
            Some(handover::KnownProcess {
                pid: *pid,
                start_ticks: *start_ticks,
                attempt: attempt.clone(),
                is_tied: seen.is_tied,
            })
        });
        marked.collect()
    }

    /// Restores processes with marks after an upgrade.
    pub fn take_over(&mut self, left: Vec<handover::KnownProcess>) {
        for seen in left {
            let known = SeenMark {
                mark: Mark::Of(seen.attempt),
                is_tied: seen.is_tied,
                since: clock::boot_now(),
                given_up: false,
            };
            self.seen.insert((seen.pid, seen.start_ticks), known);
        }
    }

    /// Identifies the children of this process that are no main processes. Cheap: without any, one small file
    /// is read.
    ///
    /// That finds everything that is left of attempts that this supervisor started: the supervisor is a
    /// subreaper, so an attempt whose main process has ended lives in orphans of the supervisor or not at
    /// all.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn orphans(&mut self, leaders: &MainProcesses) -> io::Result<Orphans> {
        let mut orphans = Orphans::default();
        let mut kept = BTreeSet::new();
        let children = process::own_children()?.into_iter();
        self.readers.begin();
        let others = children
            .filter(|pid| !leaders.is_running_child(*pid))
            .filter(|pid| !self.readers.has(*pid) && leaders.helper != Some(*pid));
        for p in others.filter_map(process::stat).collect::<Vec<_>>() {
            if !p.is_alive() || leaders.of_main(&p).is_some() {
                continue;
            }
            kept.insert((p.pid, p.start_ticks));
            match leaders.of_group(&p).cloned() {
                Some(attempt) => drop(orphans.of.insert(attempt)),
                None if leaders.has_ungrouped => self.ask_orphan(&p, leaders, &mut orphans),
                None => {}
            }
        }
        if leaders.taken_over.is_empty() {
            self.seen.retain(|key, _| kept.contains(key));
        }
        self.readers.end();
        Ok(orphans)
    }

    fn ask_orphan(&mut self, p: &ProcessStat, leaders: &MainProcesses, orphans: &mut Orphans) {
        let seen = self.look(p);
        match &seen.mark {
            Mark::Of(attempt) if leaders.children.contains(attempt) => {
                orphans.of.insert(attempt.clone());
            }
            Mark::Of(_) | Mark::None => {}
            Mark::Unreadable => {
                orphans.undecided |= clock::boot_now() < clock::after(seen.since, UNDECIDED_LIMIT);
            }
        }
    }

    /// Scans every process of the host.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn scan(&mut self, leaders: &MainProcesses) -> io::Result<ProcessScan> {
        let all: BTreeMap<u32, ProcessStat> =
            process::all()?.into_iter().map(|p| (p.pid, p)).collect();
        self.seen
            .retain(|(pid, ticks), _| all.get(pid).is_some_and(|p| p.start_ticks == *ticks));
        let mut known = BTreeMap::new();
        let mut scan = ProcessScan::default();
        self.readers.begin();
        for p in all.values() {
            let place = self.place(p, &all, leaders, &mut known);
            if !p.is_alive() || self.readers.has(p.pid) || leaders.helper == Some(p.pid) {
                continue;
            }
            if place.is_descendant {
                scan.descendants.push(*p);
            }
            if let Some(attempt) = place.owner {
                scan.members.entry(attempt).or_default().push(*p);
            }
        }
        self.readers.end();
        Ok(scan)
    }

    /// Identifies `p` after its ancestors. A loop and no recursion, because a step decides how deep its
    /// processes nest.
    fn place(
        &mut self,
        p: &ProcessStat,
        all: &BTreeMap<u32, ProcessStat>,
        leaders: &MainProcesses,
        known: &mut BTreeMap<u32, ProcessOwner>,
    ) -> ProcessOwner {
        let mut line = Vec::new();
        let mut next = Some(p);
        while let Some(p) = next.filter(|p| !known.contains_key(&p.pid)) {
            // Pids that were reused during the listing could form a cycle.
            if line.len() > all.len() {
                break;
            }
            line.push(p);
            next = all.get(&p.parent).filter(|parent| parent.pid != self.me);
        }
        for p in line.into_iter().rev() {
            let place = self.place_under(p, known.get(&p.parent), leaders);
            known.insert(p.pid, place);
        }
        known.get(&p.pid).cloned().unwrap_or_default()
    }

    fn place_under(
        &mut self,
        p: &ProcessStat,
        parent: Option<&ProcessOwner>,
        leaders: &MainProcesses,
    ) -> ProcessOwner {
        let own_child = p.parent == self.me;
        let parent = parent.filter(|_| !own_child);
        ProcessOwner {
            is_descendant: own_child || parent.is_some_and(|parent| parent.is_descendant),
            owner: leaders
                .of_main(p)
                .cloned()
                .or_else(|| parent.and_then(|parent| parent.owner.clone()))
                .or_else(|| leaders.of_group(p).cloned())
                .or_else(|| self.marked(p, leaders, own_child)),
        }
    }

    fn marked(
        &mut self,
        p: &ProcessStat,
        leaders: &MainProcesses,
        own_child: bool,
    ) -> Option<AttemptId> {
        let may_be = leaders.has_ungrouped && (own_child || !leaders.taken_over.is_empty());
        if p.pid == self.me || !may_be || self.readers.has(p.pid) {
            return None;
        }
        let attempts_dir = self.attempts_dir.clone();
        let seen = self.look(p);
        let Mark::Of(attempt) = &seen.mark else {
            return None;
        };
        if own_child && leaders.children.contains(attempt) {
            return Some(attempt.clone());
        }
        if !leaders.taken_over.contains(attempt) {
            return None;
        }
        seen.is_tied |= process::is_tied_to(p.pid, &attempts_dir.join(attempt.to_string()));
        seen.is_tied.then(|| attempt.clone())
    }

    fn look(&mut self, p: &ProcessStat) -> &mut SeenMark {
        let seen = self
            .seen
            .entry((p.pid, p.start_ticks))
            .or_insert_with(|| SeenMark {
                mark: Mark::Unreadable,
                is_tied: false,
                since: clock::boot_now(),
                given_up: false,
            });
        if seen.mark == Mark::Unreadable && !seen.given_up {
            match self.readers.ask(p.pid) {
                MarkAnswer::Read(mark) => seen.mark = mark,
                MarkAnswer::Late => {}
                MarkAnswer::GivenUp => seen.given_up = true,
            }
        }
        seen
    }
}

#[derive(Clone, Debug, Default)]
struct ProcessOwner {
    owner: Option<AttemptId>,
    is_descendant: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A child of this process with the marks of `a.1`, in a process group of its own.
    fn marked_child() -> Child {
        use std::os::unix::process::CommandExt;
        let marks = [("SLUICE_STEP_ID", "a"), ("SLUICE_ATTEMPT", "1")];
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").envs(marks).process_group(0);
        sleep.spawn().unwrap()
    }

    fn stat_of(child: &Child) -> ProcessStat {
        // Before its `exec`, the child has no marks.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while process::mark(child.id()) != Mark::Of("a.1".parse().unwrap()) {
            assert!(std::time::Instant::now() < until, "it carries no marks");
            std::thread::yield_now();
        }
        process::stat(child.id()).unwrap()
    }

    /// On a busy machine the first look may end before the reader's answer, which may even be given up.
    fn place_of(
        stray: &ProcessStat,
        leaders: &MainProcesses,
        owners: &mut ProcessScanner,
    ) -> ProcessOwner {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            owners.readers.begin();
            let place = owners.place_under(stray, None, leaders);
            owners.readers.end();
            let given_up = owners.seen.values().any(|seen| seen.given_up);
            if !owners.is_waiting() && !given_up || std::time::Instant::now() > until {
                return place;
            }
            if given_up {
                *owners = ProcessScanner::new(PathBuf::from("/none"));
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_memory_of_a_stray_is_read_only_where_no_group_knows_it() {
        let mut child = marked_child();
        let stray = stat_of(&child);
        let attempt: AttemptId = "a.1".parse().unwrap();
        let mut leaders = MainProcesses::default();
        leaders.add_child(&attempt, None, false);
        for (ungrouped, owner) in [(false, None), (true, Some(attempt))] {
            if ungrouped {
                leaders.has_ungrouped();
            }
            let mut owners = ProcessScanner::new(PathBuf::from("/none"));
            let place = place_of(&stray, &leaders, &mut owners);
            assert_eq!(place.owner, owner);
            assert_eq!(owners.seen.is_empty(), !ungrouped);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
