//! Removes the directories of forgotten attempts: after `output_retention`, and the oldest first if all directories
//! together exceed `output_total_max`. Their output can be read until then; working directories are removed at the
//! attempt's end, or after `keep_work`. `table` drives it.
//!
//! ```text
//! idle --(time)--> a child empties the trash, and lists overdue directories --(names)--> they are moved to the trash
//! idle --(something was moved to the trash)--> a child empties it --> idle
//! ```
//!
//! Listing and removing many files is slow, so a child of the supervisor does both. The child only reports names; the
//! supervisor, which knows which attempts have started meanwhile, moves the directories to the trash by a rename.
//! The next child empties the trash. Small empty directories, which most steps leave, are removed at once.

mod trash;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use sluice_common::attempt_dir::{ENV_FILE, OWN_WORKDIR, STEP_DIR};
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;
use sluice_common::supervisor_config::OutputRetention;
use sluice_common::time::Span;
use tracing::{info, warn};

use crate::storage::count::DiskUsageCounter;
use crate::{background, clock};

/// Cannot be an attempt's directory, because ids do not begin with a dot.
const TRASH: &str = ".removed";

/// Follows an attempt's name if only its working directories are removed.
const WORK_SUFFIX: &str = "/work";

/// Time between two sweeps if nothing is urgent.
const CHECK_INTERVAL: Span = Span::from_secs(600);

/// Time from the end of an attempt to the next look at what all directories take.
const RECOUNT_AFTER: Span = Span::from_secs(10);

/// Shortest time between two sweeps, however short the retention.
const MIN_PAUSE: Span = Span::from_secs(1);

/// Most bytes of a directory that may be removed without a child. A step can make its directory so large that the
/// kernel searches it for long, even if nothing is left in it.
const SMALL_DIR_BYTES: u64 = 4096;

/// Most bytes of names in one sweep. They fit into a pipe, so the child never blocks; the next sweep does the
/// rest.
const MAX_NAMES_BYTES: usize = 60 * 1024;

/// Removes the directories of forgotten attempts.
#[derive(Debug)]
pub struct OutputSweep {
    attempts_dir: PathBuf,
    rules: OutputRetention,
    /// When directories are listed again.
    next_at: BootMillis,
    /// Whether something was moved to the trash since the last sweep.
    trash_filled: bool,
    /// When the trash may be emptied again.
    trash_at: BootMillis,
    looking: Option<SweepChild>,
    /// Attempts whose working directories are removed at the end of the turn.
    gone: Vec<AttemptId>,
    /// Start time and number of moves to the trash. Names there never repeat, even if a supervisor keeps its
    /// pid in an upgrade.
    binned: (BootMillis, u64),
    /// Whether a failure was logged.
    trouble_logged: bool,
}

#[derive(Debug)]
struct SweepChild {
    pid: u32,
    names: PipeReader,
}

impl OutputSweep {
    /// The first sweep is due at once.
    pub fn new(attempts_dir: PathBuf, rules: OutputRetention) -> Self {
        Self {
            attempts_dir,
            rules,
            next_at: BootMillis(0),
            trash_filled: false,
            trash_at: BootMillis(0),
            looking: None,
            gone: Vec::new(),
            binned: (clock::boot_now(), 0),
            trouble_logged: false,
        }
    }

    /// When to call [`OutputSweep::on_time`].
    pub fn wake_at(&self) -> Option<BootMillis> {
        let trash = self.trash_filled.then_some(self.trash_at);
        let next = trash.map_or(self.next_at, |trash| trash.min(self.next_at));
        self.looking.is_none().then_some(next)
    }

    /// Starts a sweep if one is due. Attempts that are `known` stay.
    pub fn on_time<'a>(&mut self, now: BootMillis, known: impl Iterator<Item = &'a AttemptId>) {
        let lists = now >= self.next_at;
        let empties = self.trash_filled && now >= self.trash_at;
        if self.looking.is_some() || !(lists || empties) {
            return;
        }
        self.trash_filled = false;
        self.trash_at = clock::after(now, MIN_PAUSE);
        let known = lists.then(|| {
            let least_often = CHECK_INTERVAL.min(self.rules.keep_for);
            self.next_at = clock::after(now, least_often.max(MIN_PAUSE));
            known.map(ToString::to_string).collect()
        });
        match self.look(known.as_ref()) {
            Ok(looking) => (self.looking, self.trouble_logged) = (Some(looking), false),
            Err(e) => {
                self.trash_filled = true;
                self.tell_trouble(&e);
            }
        }
    }

    fn look(&self, known: Option<&BTreeSet<String>>) -> io::Result<SweepChild> {
        let (names, mut told) = io::pipe()?;
        let pid = background::start(&[told.as_raw_fd()], || {
            trash::empty(&self.attempts_dir.join(TRASH));
            if let Some(known) = known {
                let _the_next_look_finds_it_again = self.tell_names(known, &mut told);
            }
        })?;
        Ok(SweepChild { pid, names })
    }

    /// Runs in the child.
    fn tell_names(&self, known: &BTreeSet<String>, told: &mut impl Write) -> io::Result<()> {
        let mut text = String::new();
        for name in overdue(&self.attempts_dir, known, self.rules, SystemTime::now())? {
            if text.len() + name.len() >= MAX_NAMES_BYTES {
                break;
            }
            text.push_str(&name);
            text.push('\n');
        }
        told.write_all(text.as_bytes())
    }

    /// Handles the end of a child; returns whether it was this one's.
    pub fn on_child_ended(&mut self, pid: u32, is_known: impl Fn(&AttemptId) -> bool) -> bool {
        let Some(mut looking) = self.looking.take_if(|looking| looking.pid == pid) else {
            return false;
        };
        let mut text = String::new();
        // A killed child may have written a partial name, which is no directory.
        let read = looking.names.read_to_string(&mut text);
        let moved = read.and_then(|_| self.move_away(&text, is_known));
        match moved {
            Ok(0) => {}
            Ok(count) => {
                info!(count, "output of forgotten attempts is removed");
                self.next_at = BootMillis(0);
            }
            Err(e) => self.tell_trouble(&e),
        }
        true
    }

    fn move_away(&mut self, names: &str, is_known: impl Fn(&AttemptId) -> bool) -> io::Result<u64> {
        let mut moved = 0;
        for name in names.lines() {
            let (attempt, work) = match name.strip_suffix(WORK_SUFFIX) {
                Some(attempt) => (attempt, true),
                None => (name, false),
            };
            let Some(id) = attempt.parse().ok().filter(|id| !is_known(id)) else {
                continue;
            };
            let dir = self.dir(&id);
            moved += u64::from(match work {
                true => self.bin_work(&dir)?,
                false => self.bin(&dir)?,
            });
        }
        Ok(moved)
    }

    /// The directory keeps its age.
    fn bin_work(&mut self, dir: &Path) -> io::Result<bool> {
        let since = fs::symlink_metadata(dir)?.modified()?;
        let moved = self.bin(&dir.join(OWN_WORKDIR))? | self.bin(&dir.join(STEP_DIR))?;
        fs::File::open(dir)?.set_modified(since)?;
        Ok(moved)
    }

    fn dir(&self, id: &AttemptId) -> PathBuf {
        self.attempts_dir.join(id.to_string())
    }

    /// Whether disk space is being freed.
    pub fn is_removing(&self) -> bool {
        self.looking.is_some() || self.trash_filled || self.next_at == BootMillis(0)
    }

    /// No process of an attempt is left that could use its working directory. [`OutputSweep::end_turn`] removes it.
    pub fn on_gone(&mut self, id: &AttemptId) {
        // The file may contain secrets.
        self.remove_part(id, ENV_FILE);
        if self.rules.keep_work == Span::ZERO {
            self.gone.push(id.clone());
        }
    }

    /// Removes the working directories of attempts that are gone since the last turn. The host's next step waits for the
    /// report of their ends, so that is sent before.
    pub fn end_turn(&mut self) {
        for id in std::mem::take(&mut self.gone) {
            self.remove_part(&id, OWN_WORKDIR);
        }
    }

    /// A part that cannot be moved is removed when the attempt is forgotten.
    fn remove_part(&mut self, id: &AttemptId, part: &str) {
        if let Err(e) = self.bin(&self.dir(id).join(part)) {
            self.tell_trouble(&e);
        }
    }

    /// Moves the directory of a forgotten attempt with the same id to the trash, before a new attempt starts.
    /// Removing it here could delay deadlines, because the step decided how large it is.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn clear_old_directory(&mut self, id: &AttemptId) -> io::Result<()> {
        self.bin(&self.dir(id)).map(drop)
    }

    /// Removes a small empty directory, or moves what else is there to the trash; returns whether there was anything.
    fn bin(&mut self, dir: &Path) -> io::Result<bool> {
        let found = match fs::symlink_metadata(dir) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let is_small = found.is_dir() && found.len() <= SMALL_DIR_BYTES;
        if is_small && fs::remove_dir(dir).is_ok() {
            return Ok(true);
        }
        let bin = self.attempts_dir.join(TRASH);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&bin)?;
        let (since, count) = &mut self.binned;
        *count += 1;
        fs::rename(dir, bin.join(format!("{}.{count}", since.0)))?;
        self.trash_filled = true;
        Ok(true)
    }

    fn tell_trouble(&mut self, e: &io::Error) {
        if !std::mem::replace(&mut self.trouble_logged, true) {
            warn!("output of forgotten attempts cannot be removed, trying again: {e}");
        }
    }

    /// The retention of a forgotten attempt's output begins now.
    pub fn on_forgotten(&mut self, id: &AttemptId) {
        if self.rules.keep_work == Span::ZERO {
            // The agent has read the checkpoint's time from it by now.
            self.remove_part(id, STEP_DIR);
        }
        let recount_at = clock::after(clock::boot_now(), RECOUNT_AFTER);
        self.next_at = self.next_at.min(recount_at);
        let dir = self.dir(id);
        let flags = UtimensatFlags::NoFollowSymlink;
        // Fails if the attempt never had a directory; otherwise its age would count from the last change.
        let _ = utimensat(
            AT_FDCWD,
            &dir,
            &TimeSpec::UTIME_NOW,
            &TimeSpec::UTIME_NOW,
            flags,
        );
    }
}

/// The directories that are overdue, oldest first; and of the others, the working directories that are.
fn overdue(
    attempts_dir: &Path,
    known: &BTreeSet<String>,
    rules: OutputRetention,
    now: SystemTime,
) -> io::Result<Vec<String>> {
    let keep_for = Duration::from_millis(rules.keep_for.millis());
    let (mut taken, mut forgotten) = (0, Vec::new());
    for entry in fs::read_dir(attempts_dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let room = room_of(&entry.path());
        taken += room;
        if !known.contains(&name) && name.parse::<AttemptId>().is_ok() {
            // A directory that is gone by now needs nothing.
            let since = entry.metadata().and_then(|found| found.modified());
            forgotten.extend(since.map(|since| (since, name, room)));
        }
    }
    forgotten.sort();
    let is_old = |since, most| now.duration_since(since).is_ok_and(|age| age >= most);
    let keep_work = Duration::from_millis(rules.keep_work.millis());
    let goes = |(since, name, room): (SystemTime, String, u64)| {
        let goes = is_old(since, keep_for) || taken > rules.total_bytes;
        taken -= if goes { room } else { 0 };
        match goes {
            true => Some(name),
            false if is_old(since, keep_work) && has_work(&attempts_dir.join(&name)) => {
                Some(name + WORK_SUFFIX)
            }
            false => None,
        }
    };
    Ok(forgotten.into_iter().filter_map(goes).collect())
}

fn has_work(dir: &Path) -> bool {
    [OWN_WORKDIR, STEP_DIR]
        .iter()
        .any(|part| fs::symlink_metadata(dir.join(part)).is_ok())
}

/// Most time to count one tree; a partial count is used then.
const COUNT_LIMIT: Duration = Duration::from_secs(60);

/// Disk usage of a tree, as far as it can be read.
fn room_of(top: &Path) -> u64 {
    let mut counter = DiskUsageCounter::until(Instant::now() + COUNT_LIMIT);
    let _gone_by_now = counter.add_tree(top);
    counter.count().bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(keep_secs: u64, total_bytes: u64) -> OutputRetention {
        OutputRetention {
            keep_for: Span::from_secs(keep_secs),
            total_bytes,
            ..OutputRetention::default()
        }
    }

    /// Three directories with 64 KiB each, forgotten 30, 20 and 10 seconds ago.
    fn three(dir: &Path, now: SystemTime) {
        for (name, age) in [("old.1", 30), ("mid.1", 20), ("new.1", 10)] {
            let made = dir.join(name);
            fs::create_dir(&made).unwrap();
            fs::write(made.join("stdout"), vec![b'x'; 64 * 1024]).unwrap();
            let since = now - Duration::from_secs(age);
            fs::File::open(made).unwrap().set_modified(since).unwrap();
        }
    }

    #[test]
    fn what_is_old_goes_and_of_too_much_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        three(dir.path(), now);
        fs::create_dir(dir.path().join(TRASH)).unwrap();
        let much = u64::MAX;
        for (rules, known, expected) in [
            (rules(31, much), vec![], vec![]),
            (rules(15, much), vec![], vec!["old.1", "mid.1"]),
            (rules(15, much), vec!["old.1"], vec!["mid.1"]),
            (rules(99, 150 * 1024), vec![], vec!["old.1"]),
            (rules(99, 100 * 1024), vec!["old.1"], vec!["mid.1", "new.1"]),
            (rules(0, much), vec!["old.1", "mid.1", "new.1"], vec![]),
        ] {
            let known: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
            let found = overdue(dir.path(), &known, rules, now).unwrap();
            assert_eq!(found, expected, "{rules:?} {known:?}");
        }
    }

    #[test]
    fn working_directories_go_sooner_than_output_and_change_no_age() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        three(dir.path(), now);
        for name in ["old.1/work", "mid.1/step", "new.1/work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        for (name, age) in [("old.1", 30), ("mid.1", 20), ("new.1", 10)] {
            let since = now - Duration::from_secs(age);
            let made = fs::File::open(dir.path().join(name)).unwrap();
            made.set_modified(since).unwrap();
        }
        let rules = OutputRetention {
            keep_work: Span::from_secs(15),
            ..rules(25, u64::MAX)
        };
        let found = overdue(dir.path(), &BTreeSet::new(), rules, now).unwrap();
        assert_eq!(found, ["old.1", "mid.1/work"]);
        let mut sweep = OutputSweep::new(dir.path().to_owned(), rules);
        let age = |name: &str| fs::metadata(dir.path().join(name)).unwrap().modified();
        let before = age("mid.1").unwrap();
        assert_eq!(sweep.move_away("mid.1/work\n", |_| false).unwrap(), 1);
        assert!(!dir.path().join("mid.1/step").exists());
        assert!(dir.path().join("mid.1/stdout").exists());
        assert_eq!(age("mid.1").unwrap(), before);
    }

    #[test]
    fn who_is_about_to_begin_finds_nothing_and_waits_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let id: AttemptId = "old.1".parse().unwrap();
        let mut sweep = OutputSweep::new(dir.path().to_owned(), rules(99, u64::MAX));
        sweep.next_at = BootMillis(u64::MAX);
        sweep.clear_old_directory(&id).unwrap();
        fs::create_dir(dir.path().join("old.1")).unwrap();
        sweep.clear_old_directory(&id).unwrap();
        assert!(!dir.path().join("old.1").exists(), "it was empty");
        assert_eq!(
            sweep.wake_at(),
            Some(BootMillis(u64::MAX)),
            "nothing is in the trash"
        );
        for binned in 1..=2 {
            fs::create_dir_all(dir.path().join("old.1/work/deep")).unwrap();
            sweep.clear_old_directory(&id).unwrap();
            assert!(!dir.path().join("old.1").exists());
            let bin = fs::read_dir(dir.path().join(TRASH)).unwrap();
            assert_eq!(
                bin.count(),
                binned,
                "it lies there whole until a child removes it"
            );
        }
        assert_eq!(
            sweep.wake_at(),
            Some(BootMillis(0)),
            "and it is emptied soon"
        );
    }

    #[test]
    fn what_has_begun_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        three(dir.path(), SystemTime::now());
        let mut sweep = OutputSweep::new(dir.path().to_owned(), rules(0, 0));
        let again: AttemptId = "mid.1".parse().unwrap();
        let moved = sweep.move_away("old.1\nmid.1\nno.1\n../x\n", |id| *id == again);
        assert_eq!(moved.unwrap(), 1);
        assert!(dir.path().join("mid.1").exists() && !dir.path().join("old.1").exists());
        let bin = dir.path().join(TRASH);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1);
        trash::empty(&bin);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
    }
}
