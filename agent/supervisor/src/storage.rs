//! How much of the disk attempts take, and how much is left. A child of the supervisor counts the files of attempts
//! ([`count`]), one round at a time, and rests nine times as long as it worked; this room starts it, takes in what it
//! found, and says who has passed a bound. Who is stopped for it, and how, is `table`'s.
//!
//! ```text
//! idle --(time; somebody has a bound, or the disk is short)--> a child counts, a line an attempt --(its end)--> idle
//! ```
//!
//! Two bounds: an attempt's own grant, and what the host keeps free for its daemons (`min_free`). While less than that is
//! free the disk is *short*: nothing new begins, and those attempts without a grant that take most are stopped, as
//! many as cure the shortage and none if all of them would not.

pub mod count;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statvfs::statvfs;
use nix::unistd::getpid;
use sluice_common::amount::show_memory;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, StorageBound, StorageExceeded};
use sluice_common::time::Span;
use tracing::{info, warn};

use crate::hooks::run::stand_alone;
use crate::{clock, spawn, sys};
use count::{Count, Counter};

/// Between two looks at what the disk has left while attempts live.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// The same while none does.
const LOOK_AGAIN_IDLE: Span = Span::from_secs(10);

/// Between two counts at the least.
const COUNT_AGAIN: Span = Span::from_secs(1);

/// A count rests so many times as long as it took: at most a tenth of one processor and of the disk is spent on it.
const RESTS: u64 = 9;

/// The files of one attempt are counted for so long; what was found until then counts.
const COUNT_LIMIT: Duration = Duration::from_secs(20);

/// After this a round begins with no further attempt. Those that were left out are the first of the slow ones next time.
const ROUND_LIMIT: Duration = Duration::from_secs(30);

/// A child that says nothing for longer hangs on a file system, with the attempt that it was counting.
const SILENCE_LIMIT: Span = Span::from_secs(60);

/// An attempt whose count takes longer is counted after all that are quicker, so that its many files delay nobody else.
const SLOW: Duration = Duration::from_secs(1);

/// Kept free by default: so much, or so small a part of the file system, whichever is less.
const KEPT_BYTES: u64 = 1 << 30;
const KEPT_FILES: u64 = 10_000;
const KEPT_PART: u64 = 20;

/// Watches the disk that attempts write to.
#[derive(Debug)]
pub struct Storage {
    attempts_dir: PathBuf,
    min_free: Option<u64>,
    look_at: BootMillis,
    count_at: BootMillis,
    counting: Option<Counting>,
    found: BTreeMap<AttemptId, Found>,
    /// Attempts whose count has hung.
    stuck: BTreeSet<AttemptId>,
    short: Option<Short>,
    trouble_told: bool,
}

/// An attempt whose files may be counted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which.
    pub id: AttemptId,
    /// What it was granted, in bytes.
    pub granted: Option<u64>,
    /// Its processes, which may hold files that have no name any more.
    pub pids: Vec<u32>,
}

/// The disk has less free than is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// For people, as it was when it began.
    pub why: String,
    since: BootMillis,
    missing: Free,
}

/// What a file system has, or lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Free {
    bytes: u64,
    files: u64,
}

#[derive(Debug)]
struct Counting {
    pid: u32,
    lines: PipeReader,
    unread: Vec<u8>,
    order: Vec<AttemptId>,
    /// How many of them were told.
    told: usize,
    began_at: BootMillis,
    heard_at: BootMillis,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    count: Count,
    is_slow: bool,
    at: BootMillis,
}

impl Storage {
    /// For the attempts below `attempts_dir`; `min_free` is what their file system keeps free, if not as by default.
    pub fn new(attempts_dir: PathBuf, min_free: Option<u64>) -> Self {
        Self {
            attempts_dir,
            min_free,
            look_at: BootMillis(0),
            count_at: BootMillis(0),
            counting: None,
            found: BTreeMap::new(),
            stuck: BTreeSet::new(),
            short: None,
            trouble_told: false,
        }
    }

    /// When to call [`Storage::look`].
    pub fn wake_at(&self) -> BootMillis {
        self.look_at
    }

    /// An attempt has begun: the disk is looked at more often from now on.
    pub fn on_begun(&mut self, now: BootMillis) {
        self.look_at = self.look_at.min(clock::after(now, LOOK_AGAIN));
    }

    /// Becomes readable when a count has something to tell: then call [`Storage::on_ready`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.counting
            .as_ref()
            .map(|counting| counting.lines.as_fd())
    }

    /// Whether the disk has less free than is kept.
    pub fn short(&self) -> Option<&Short> {
        self.short.as_ref()
    }

    /// Looks at what the disk has left, if it is time; says whether a count may begin.
    pub fn look(&mut self, now: BootMillis, is_idle: bool) -> bool {
        if now < self.look_at {
            return false;
        }
        let pause = if is_idle { LOOK_AGAIN_IDLE } else { LOOK_AGAIN };
        self.look_at = clock::after(now, pause);
        self.look_at_once(now);
        let hangs = |c: &mut Counting| now > clock::after(c.heard_at, SILENCE_LIMIT);
        if let Some(hung) = self.counting.take_if(hangs) {
            self.give_up(&hung, now);
        }
        self.counting.is_none() && now >= self.count_at
    }

    /// Looks at what the disk has left now.
    pub fn look_at_once(&mut self, now: BootMillis) {
        let Ok(disk) = statvfs(&self.attempts_dir) else {
            return;
        };
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        let kept = Free {
            bytes: self
                .min_free
                .unwrap_or_else(|| KEPT_BYTES.min(bytes(disk.blocks()) / KEPT_PART)),
            // Some file systems make room for files as they need it, and name no number.
            files: match self.min_free {
                Some(0) => 0,
                Some(_) | None => KEPT_FILES.min(disk.files() / KEPT_PART),
            },
        };
        let free = Free {
            bytes: bytes(disk.blocks_available()),
            files: disk.files_available(),
        };
        self.on_free(free, kept, now);
    }

    fn on_free(&mut self, free: Free, kept: Free, now: BootMillis) {
        // Once short, a quarter more must come free, so that it does not come and go with every file.
        let wanted = match self.short {
            None => kept,
            Some(_) => Free {
                bytes: kept.bytes.saturating_add(kept.bytes / 4),
                files: kept.files.saturating_add(kept.files / 4),
            },
        };
        let missing = Free {
            bytes: wanted.bytes.saturating_sub(free.bytes),
            files: wanted.files.saturating_sub(free.files),
        };
        match &mut self.short {
            _ if missing == Free::default() => {
                if self.short.take().is_some() {
                    info!("the disk of attempts has room again");
                }
            }
            Some(short) => short.missing = missing,
            None => {
                let why = self.told(free, kept);
                warn!("{why}");
                let since = now;
                self.short = Some(Short {
                    why,
                    since,
                    missing,
                });
            }
        }
    }

    fn told(&self, free: Free, kept: Free) -> String {
        let dir = self.attempts_dir.display();
        match free.bytes < kept.bytes {
            true => format!(
                "its disk is nearly full: {} are free at {dir}, and {} are kept free (`min_free`): remove what is not \
                 needed there",
                show_memory(free.bytes),
                show_memory(kept.bytes)
            ),
            false => format!(
                "its disk is nearly full: {} more files can be made at {dir}, and {} are kept free: remove what is not \
                 needed there",
                free.files, kept.files
            ),
        }
    }

    /// Has the files of attempts counted. Whoever was quick is first.
    pub fn begin(&mut self, mut candidates: Vec<Candidate>, now: BootMillis) {
        candidates.retain(|candidate| !self.stuck.contains(&candidate.id));
        if candidates.is_empty() {
            return;
        }
        candidates.sort_by_key(|candidate| match self.found.get(&candidate.id) {
            None => (false, BootMillis(0)),
            Some(found) => (found.is_slow, found.at),
        });
        match count_in_child(&self.attempts_dir, &candidates) {
            Ok((pid, lines)) => {
                self.trouble_told = false;
                self.counting = Some(Counting {
                    pid,
                    lines,
                    unread: Vec::new(),
                    order: candidates.into_iter().map(|c| c.id).collect(),
                    told: 0,
                    began_at: now,
                    heard_at: now,
                });
            }
            Err(e) => {
                self.count_at = clock::after(now, COUNT_AGAIN);
                if !std::mem::replace(&mut self.trouble_told, true) {
                    warn!("the files of attempts cannot be counted, trying again: {e}");
                }
            }
        }
    }

    /// The child has something to tell.
    pub fn on_ready(&mut self, now: BootMillis) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let mut bytes = [0; 4096];
        // It does not wait, and what is not read now is read next time. At its end the child is reaped.
        while let Ok(len @ 1..) = counting.lines.read(&mut bytes) {
            counting.unread.extend(&bytes[..len]);
        }
        counting.heard_at = now;
        while let Some(end) = counting.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = counting.unread.drain(..=end).collect();
            let Some(id) = counting.order.get(counting.told) else {
                return;
            };
            counting.told += 1;
            if let Some((count, took)) = read_line(&line) {
                let is_slow = took >= SLOW;
                let at = counting.began_at;
                self.found.insert(id.clone(), Found { count, is_slow, at });
            }
        }
    }

    /// A child has ended: says whether it was this one's.
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

    fn rest(&mut self, over: &Counting, now: BootMillis) {
        let took = now.0.saturating_sub(over.began_at.0);
        let rest = Span::from_millis(took.saturating_mul(RESTS)).max(COUNT_AGAIN);
        self.count_at = clock::after(now, rest);
    }

    /// What hangs in the kernel cannot be killed and is left behind; the attempt is not counted again.
    fn give_up(&mut self, hung: &Counting, now: BootMillis) {
        spawn::kill_child(hung.pid);
        if let Some(id) = hung.order.get(hung.told) {
            warn!(step = %id.step, attempt = id.number, "its files cannot be counted: the file system does not answer");
            self.stuck.insert(id.clone());
        }
        self.rest(hung, now);
    }

    /// Nothing of an attempt is left.
    pub fn on_gone(&mut self, id: &AttemptId) {
        self.found.remove(id);
        self.stuck.remove(id);
    }

    /// Whether an attempt has passed its own bound by the last count.
    pub fn exceeded(&self, id: &AttemptId, granted: Option<u64>) -> Option<StorageExceeded> {
        let count = self.found.get(id)?.count;
        let granted = granted?;
        if count.bytes > granted {
            return Some(exceeded(count, StorageBound::Granted(granted)));
        }
        count.too_deep.then(|| exceeded(count, StorageBound::Depth))
    }

    /// Those who are to be stopped for the disk is short: of `candidates`, the ones that take most, as many as cure the
    /// shortage. Nobody before all of them were counted since it began.
    pub fn over_reserve<'a>(
        &self,
        candidates: impl Iterator<Item = &'a AttemptId>,
    ) -> Vec<(AttemptId, StorageExceeded)> {
        let Some(short) = &self.short else {
            return Vec::new();
        };
        let mut counted = Vec::new();
        for id in candidates.filter(|id| !self.stuck.contains(*id)) {
            match self.found.get(id).filter(|found| found.at >= short.since) {
                Some(found) => counted.push((id.clone(), found.count)),
                None => return Vec::new(),
            }
        }
        enough(counted, short.missing)
    }
}

fn exceeded(count: Count, bound: StorageBound) -> StorageExceeded {
    StorageExceeded {
        bound,
        used_bytes: count.bytes,
        used_files: count.files,
    }
}

/// The largest of what was counted until nothing is missing any more; none where all of them are not enough.
fn enough(
    mut counted: Vec<(AttemptId, Count)>,
    missing: Free,
) -> Vec<(AttemptId, StorageExceeded)> {
    counted.sort_by_key(|(_, count)| match missing.bytes {
        0 => std::cmp::Reverse(count.files),
        _ => std::cmp::Reverse(count.bytes),
    });
    let mut left = missing;
    let mut chosen = Vec::new();
    for (id, count) in counted {
        if left == Free::default() {
            break;
        }
        left.bytes = left.bytes.saturating_sub(count.bytes);
        left.files = left.files.saturating_sub(count.files);
        let bound = if count.too_deep {
            StorageBound::Depth
        } else {
            StorageBound::Reserve
        };
        // What could not be counted may be all that is missing.
        left = if count.too_deep {
            Free::default()
        } else {
            left
        };
        chosen.push((id, exceeded(count, bound)));
    }
    if left == Free::default() {
        chosen
    } else {
        Vec::new()
    }
}

fn count_in_child(dir: &Path, candidates: &[Candidate]) -> io::Result<(u32, PipeReader)> {
    let (lines, mut tell) = io::pipe()?;
    fcntl(&lines, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let supervisor = getpid();
    let pid = sys::fork_into(|| {
        if stand_alone(supervisor, &[tell.as_raw_fd()]) {
            let _nobody_is_left_to_tell = count_all(dir, candidates, &mut tell);
        }
    })?;
    Ok((pid, lines))
}

/// In the child.
fn count_all(dir: &Path, candidates: &[Candidate], tell: &mut impl Write) -> io::Result<()> {
    let device = std::fs::metadata(dir)?.dev();
    let began = Instant::now();
    for candidate in candidates {
        let now = Instant::now();
        if now.duration_since(began) > ROUND_LIMIT {
            break;
        }
        let mut counter = Counter::until(now + COUNT_LIMIT);
        // One that has no directory takes nothing.
        let _gone = counter.add_tree(&dir.join(candidate.id.to_string()));
        for pid in &candidate.pids {
            counter.add_nameless(*pid, device);
        }
        let Count {
            bytes,
            files,
            too_deep,
        } = counter.count();
        let micros = now.elapsed().as_micros();
        let deep = u8::from(too_deep);
        tell.write_all(format!("{bytes} {files} {deep} {micros}\n").as_bytes())?;
    }
    Ok(())
}

fn read_line(line: &[u8]) -> Option<(Count, Duration)> {
    let text = std::str::from_utf8(line).ok()?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [bytes, files, deep, micros] = numbers.try_into().ok()?;
    let count = Count {
        bytes,
        files,
        too_deep: deep == 1,
    };
    Some((count, Duration::from_micros(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AttemptId {
        text.parse().unwrap()
    }

    fn count(bytes: u64, files: u64) -> Count {
        Count {
            bytes,
            files,
            too_deep: false,
        }
    }

    fn chosen(counted: &[(&str, u64, u64)], bytes: u64, files: u64) -> Vec<String> {
        let counted = counted.iter().map(|(name, b, f)| (id(name), count(*b, *f)));
        let chosen = enough(counted.collect(), Free { bytes, files });
        chosen.into_iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn the_largest_are_stopped_as_many_as_it_takes_and_none_in_vain() {
        let three = [("a.1", 10, 900), ("b.1", 50, 1), ("c.1", 30, 2)];
        assert_eq!(chosen(&three, 40, 0), ["b.1"]);
        assert_eq!(chosen(&three, 60, 0), ["b.1", "c.1"]);
        assert_eq!(chosen(&three, 0, 500), ["a.1"]);
        assert!(chosen(&three, 91, 0).is_empty());
        assert!(chosen(&[], 1, 0).is_empty());
    }

    #[test]
    fn a_shortage_begins_below_what_is_kept_and_ends_a_quarter_above_it() {
        let mut storage = Storage::new("/nowhere".into(), None);
        let kept = Free {
            bytes: 1000,
            files: 100,
        };
        let mut is_short = |bytes, files| {
            storage.on_free(Free { bytes, files }, kept, BootMillis(1));
            storage.short().is_some()
        };
        for (bytes, files, expected) in [
            (1000, 100, false),
            (999, 100, true),
            (1100, 200, true),
            (1250, 125, false),
            (5000, 99, true),
            (5000, 124, true),
            (5000, 125, false),
        ] {
            assert_eq!(is_short(bytes, files), expected, "{bytes} {files}");
        }
    }

    #[test]
    fn nobody_is_judged_by_a_count_from_before_the_shortage() {
        let mut storage = Storage::new("/nowhere".into(), None);
        let kept = Free {
            bytes: 10,
            files: 0,
        };
        let found = |at| Found {
            count: count(50, 1),
            is_slow: false,
            at: BootMillis(at),
        };
        storage.found.insert(id("a.1"), found(4));
        storage.on_free(Free::default(), kept, BootMillis(5));
        let over = |storage: &Storage| storage.over_reserve([id("a.1")].iter()).len();
        assert_eq!(over(&storage), 0);
        storage.found.insert(id("a.1"), found(6));
        assert_eq!(over(&storage), 1);
    }
}
