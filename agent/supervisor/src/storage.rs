//! Disk usage of attempts, and free space. A child of the supervisor counts the files of attempts ([`count`]) in
//! rounds, with pauses nine times as long as the round; this module starts the child, collects the results, and
//! reports attempts that exceed a bound. `table` stops them.
//!
//! ```text
//! idle --(time; an attempt has a bound, or the disk is short)--> a child counts, a line an attempt --(its end)--> idle
//! ```
//!
//! Two bounds: an attempt's own grant, with a proportional number of files, and the space that the host keeps free for
//! its daemons (`min_free`). While less than that is free there is a *shortage*: nothing new starts, and the largest
//! attempts without a grant are stopped, as many as end the shortage, or none if stopping all would not be enough.
//!
//! If the file system has project quotas, it enforces the grant itself ([`projects`]), and its usage numbers are treated
//! like a count.

pub mod count;
mod count_round;
mod projects;
mod reserve;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, StorageBound, StorageExceeded};
use sluice_common::time::Span;
use tracing::warn;

use crate::spool::StorageUse;
use crate::{clock, spawn};
use count::DiskUsage;
use count_round::CountRound;
use projects::ProjectQuotas;
use reserve::{Reserve, Shortage};

/// Time between two checks of the free space while attempts run.
const CHECK_INTERVAL: Span = Span::from_secs(1);

/// Time between two checks of the free space while none run.
const IDLE_CHECK_INTERVAL: Span = Span::from_secs(10);

/// Shortest time between two counts.
const COUNT_INTERVAL: Span = Span::from_secs(1);

/// Length of the pause after a count, relative to the count: it uses at most a tenth of a processor and of
/// the disk.
const REST_FACTOR: u64 = 9;

/// A child without output for longer is blocked by a file system, at the attempt that it was counting.
const SILENCE_LIMIT: Span = Span::from_secs(60);

/// An attempt with a slower count is counted after all faster ones, so that its many files do not delay them.
const SLOW: Duration = Duration::from_secs(1);

/// Monitors the disk that attempts write to.
#[derive(Debug)]
pub struct Storage {
    attempts_dir: PathBuf,
    look_at: BootMillis,
    count_at: BootMillis,
    counting: Option<CountRound>,
    found: BTreeMap<AttemptId, CountResult>,
    /// Attempts whose count has blocked.
    stuck: BTreeSet<AttemptId>,
    reserve: Reserve,
    /// Set if the file system has project quotas.
    projects: Option<ProjectQuotas>,
    trouble_logged: bool,
}

/// An attempt whose files may be counted.
#[derive(Clone, Debug)]
pub struct CountCandidate {
    pub id: AttemptId,
    /// Processes of the attempt, which may hold deleted files open.
    pub pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct CountResult {
    count: DiskUsage,
    is_slow: bool,
    at: BootMillis,
}

impl Storage {
    /// For the attempts below `attempts_dir`; `min_free` overrides the default reserve, in bytes.
    pub fn new(attempts_dir: PathBuf, min_free: Option<u64>) -> Self {
        Self {
            reserve: Reserve::new(attempts_dir.clone(), min_free),
            projects: ProjectQuotas::open(&attempts_dir),
            attempts_dir,
            look_at: BootMillis(0),
            count_at: BootMillis(0),
            counting: None,
            found: BTreeMap::new(),
            stuck: BTreeSet::new(),
            trouble_logged: false,
        }
    }

    /// When to call [`Storage::check_disk`].
    pub fn wake_at(&self) -> BootMillis {
        self.look_at
    }

    /// Checks the disk more often from now on, because an attempt has started.
    pub fn on_begun(&mut self, now: BootMillis) {
        self.look_at = self.look_at.min(clock::after(now, CHECK_INTERVAL));
    }

    /// Readable when a count has results: call [`Storage::on_ready`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.counting.as_ref().map(CountRound::fd)
    }

    /// Bytes that stay free for the daemons.
    pub fn min_free(&self) -> u64 {
        self.reserve.min_free()
    }

    /// The shortage, if there is one.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.reserve.short()
    }

    /// Checks the free space if that is due; returns whether a count may begin.
    pub fn check_disk(&mut self, now: BootMillis, is_idle: bool) -> bool {
        if now < self.look_at {
            return false;
        }
        let pause = if is_idle {
            IDLE_CHECK_INTERVAL
        } else {
            CHECK_INTERVAL
        };
        self.look_at = clock::after(now, pause);
        self.reserve.check(now);
        let hangs = |c: &mut CountRound| now > clock::after(c.heard_at, SILENCE_LIMIT);
        if let Some(hung) = self.counting.take_if(hangs) {
            self.give_up(&hung, now);
        }
        self.counting.is_none() && now >= self.count_at
    }

    /// Checks the free space now.
    pub fn look_at_once(&mut self, now: BootMillis) {
        self.reserve.check(now);
    }

    /// Starts a count of the attempts' files, the fastest ones first.
    pub fn begin(&mut self, mut candidates: Vec<CountCandidate>, now: BootMillis) {
        candidates.retain(|candidate| !self.stuck.contains(&candidate.id));
        if candidates.is_empty() {
            return;
        }
        candidates.sort_by_key(|candidate| match self.found.get(&candidate.id) {
            None => (false, BootMillis(0)),
            Some(found) => (found.is_slow, found.at),
        });
        match CountRound::begin(&self.attempts_dir, candidates, now) {
            Ok(counting) => {
                self.trouble_logged = false;
                self.counting = Some(counting);
            }
            Err(e) => {
                self.count_at = clock::after(now, COUNT_INTERVAL);
                if !std::mem::replace(&mut self.trouble_logged, true) {
                    warn!("the files of attempts cannot be counted, trying again: {e}");
                }
            }
        }
    }

    /// Collects results from the child.
    pub fn on_ready(&mut self, now: BootMillis) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        for (id, count, took) in counting.read(now) {
            let is_slow = took >= SLOW;
            let at = counting.began_at;
            self.found.insert(id, CountResult { count, is_slow, at });
        }
    }

    /// Handles the end of a child; returns whether it was this one's.
    pub fn on_child_ended(&mut self, pid: u32, now: BootMillis) -> bool {
        if self
            .counting
            .as_ref()
            .is_none_or(|counting| counting.pid != pid)
        {
            return false;
        }
        self.on_ready(now);
        if let Some(over) = self.counting.take() {
            self.rest(&over, now);
        }
        true
    }

    fn rest(&mut self, over: &CountRound, now: BootMillis) {
        let took = now.0.saturating_sub(over.began_at.0);
        let rest = Span::from_millis(took.saturating_mul(REST_FACTOR)).max(COUNT_INTERVAL);
        self.count_at = clock::after(now, rest);
    }

    /// A process that is blocked in the kernel cannot be killed and is left behind; the attempt is not
    /// counted again.
    fn give_up(&mut self, hung: &CountRound, now: BootMillis) {
        spawn::kill_child(hung.pid);
        if let Some(id) = hung.next() {
            warn!(step = %id.step, attempt = id.number, "its files cannot be counted: the file system does not answer");
            self.stuck.insert(id.clone());
        }
        self.rest(hung, now);
    }

    /// Whether steps must be prevented from changing the project of a file.
    pub fn has_projects(&self) -> bool {
        self.projects.is_some()
    }

    /// The storage bounds of an attempt that waits at its gate, with a proportional number of files. Sets a
    /// project quota if the file system has them.
    pub fn hold(&mut self, id: &AttemptId, granted: Option<u64>) -> StorageUse {
        let mut held = StorageUse {
            granted,
            max_files: granted.and_then(|bytes| self.reserve.files_for(bytes)),
            project: None,
            exceeded: None,
        };
        if let (Some(bytes), Some(projects)) = (granted, &mut self.projects) {
            held.project = projects.hold(&id.to_string(), bytes, held.max_files);
        }
        held
    }

    /// Releases an attempt's quota, because it does not start or is gone.
    pub fn release(&self, held: &mut StorageUse) {
        let project = held.project.take();
        if let (Some(project), Some(projects)) = (project, &self.projects) {
            projects.release(project);
        }
    }

    /// Forgets an attempt of which no process is left.
    pub fn on_gone(&mut self, id: &AttemptId) {
        self.found.remove(id);
        self.stuck.remove(id);
    }

    /// The bound that an attempt exceeds, by the last count or by its project quota.
    pub fn exceeded(&self, id: &AttemptId, held: &StorageUse) -> Option<StorageExceeded> {
        let count = self.found.get(id).map(|found| found.count);
        count
            .and_then(|count| passed(count, held))
            .or_else(|| self.exceeded_quota(held))
    }

    /// The bound that an attempt exceeds by its project quota now.
    pub fn exceeded_quota(&self, held: &StorageUse) -> Option<StorageExceeded> {
        let used = self.projects.as_ref()?.used(held.project?).ok()?;
        let count = DiskUsage {
            bytes: used.bytes,
            files: used.files,
            too_deep: false,
        };
        passed(count, held)
    }

    /// The attempts to stop because of a shortage: the largest of `candidates`, as many as end it. Empty
    /// until all of them were counted since it began.
    pub fn over_reserve<'a>(
        &self,
        candidates: impl Iterator<Item = &'a AttemptId>,
    ) -> Vec<(AttemptId, StorageExceeded)> {
        let Some(shortage) = self.reserve.short() else {
            return Vec::new();
        };
        let mut counted = Vec::new();
        for id in candidates.filter(|id| !self.stuck.contains(*id)) {
            match self
                .found
                .get(id)
                .filter(|found| found.at >= shortage.since)
            {
                Some(found) => counted.push((id.clone(), found.count)),
                None => return Vec::new(),
            }
        }
        shortage.cured_by(counted)
    }
}

/// The bound of its own that an attempt with this usage exceeds.
fn passed(count: DiskUsage, held: &StorageUse) -> Option<StorageExceeded> {
    let granted = held.granted?;
    let bytes = (count.bytes > granted).then_some(StorageBound::Granted(granted));
    let files = held.max_files.filter(|most| count.files > *most);
    let depth = count.too_deep.then_some(StorageBound::Depth);
    let bound = bytes.or(files.map(StorageBound::Files)).or(depth);
    bound.map(|bound| exceeded(count, bound))
}

fn exceeded(count: DiskUsage, bound: StorageBound) -> StorageExceeded {
    StorageExceeded {
        bound,
        used_bytes: count.bytes,
        used_files: count.files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reserve::FreeSpace;

    #[test]
    fn nobody_is_judged_by_a_count_from_before_the_shortage() {
        let id: AttemptId = "a.1".parse().unwrap();
        let mut storage = Storage::new("/nowhere".into(), None);
        let kept = FreeSpace {
            bytes: 10,
            files: 0,
        };
        let found = |at| CountResult {
            count: DiskUsage {
                bytes: 50,
                files: 1,
                too_deep: false,
            },
            is_slow: false,
            at: BootMillis(at),
        };
        storage.found.insert(id.clone(), found(4));
        storage
            .reserve
            .on_free(FreeSpace::default(), kept, BootMillis(5));
        let over = |storage: &Storage| storage.over_reserve([id.clone()].iter()).len();
        assert_eq!(over(&storage), 0);
        storage.found.insert(id.clone(), found(6));
        assert_eq!(over(&storage), 1);
    }
}
