//! Keeps the output of each stream within its bound: the oldest part is dropped by punching a hole, so that the offsets
//! of what is kept stay what they are. `table` says when to look and at whose files.
//!
//! The mark of what is dropped is written *before* the hole is made. So a reader that reads first and asks for the mark
//! then never takes the zeros of a hole for output.
//!
//! On a file system that cannot do it nothing is dropped: half of an answer would be to stop the step or to lose its
//! newest words. It is said once, when the supervisor starts.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use sluice_common::id::AttemptId;
use sluice_common::output::{MARK_BYTES, MARKS_BYTES, MARKS_FILE, STREAMS, mark, read_mark};
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::LogStream;
use tracing::{info, warn};

use super::growth::Growth;
use super::open_own;
use crate::clock;

/// Between two looks. What a step writes meanwhile is over the bound for as long.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// Attempts looked at in one turn, each by two calls of the kernel: the loop must not be kept from leases.
const LOOKS_A_TURN: usize = 512;

/// No attempt's directory: ids do not begin with a dot.
const PROBE: &str = ".probe";

/// Keeps outputs within their bound.
#[derive(Debug)]
pub struct Cap {
    attempts_dir: PathBuf,
    reader_uid: Option<u32>,
    max_bytes: u64,
    /// `None` where the file system cannot drop what is old.
    growth: Option<Growth>,
    /// When to look next, while there is somebody to look at.
    next_at: BootMillis,
    /// The last one of the last turn.
    cursor: Option<AttemptId>,
    /// Those whose trouble the log has named.
    told: BTreeSet<AttemptId>,
}

impl Cap {
    /// For the attempts below `attempts_dir`, whose files are `reader_uid`'s to read where one is given. Tries out
    /// whether the file system can drop what is old.
    pub fn new(attempts_dir: PathBuf, reader_uid: Option<u32>, max_bytes: u64) -> Self {
        let able = probe(&attempts_dir.join(PROBE));
        if let Err(e) = &able {
            warn!(
                directory = %attempts_dir.display(),
                "output_max is not kept: this file system cannot drop the oldest output ({e})"
            );
        }
        Self {
            attempts_dir,
            reader_uid,
            max_bytes,
            growth: able.ok().map(|()| Growth::new()),
            next_at: BootMillis(0),
            cursor: None,
            told: BTreeSet::new(),
        }
    }

    /// An attempt may write from now on.
    pub fn on_begun(&mut self, id: &AttemptId) {
        if let Some(growth) = &mut self.growth {
            growth.add(id);
        }
    }

    /// When to call [`Cap::on_time`].
    pub fn wake_at(&self) -> Option<BootMillis> {
        let growing = self.growth.as_ref()?.growing().next();
        growing.map(|_| self.next_at)
    }

    /// What is to be waited for besides: [`Cap::on_ready`] when it becomes readable.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.growth.as_ref()?.fd()
    }

    /// Some who were silent have written.
    pub fn on_ready(&mut self) {
        if let Some(growth) = &mut self.growth {
            growth.on_ready();
        }
    }

    /// Looks at those that grow, if it is time; at no more than a turn bears, and at the next ones next time.
    pub fn on_time(&mut self, now: BootMillis) {
        if now < self.next_at {
            return;
        }
        let Some(growth) = &self.growth else { return };
        let after = |id: &&AttemptId| self.cursor.as_ref().is_none_or(|last| *id > last);
        let growing = growth.growing();
        let mut due: Vec<AttemptId> = growing
            .clone()
            .filter(after)
            .take(LOOKS_A_TURN)
            .cloned()
            .collect();
        let rest = LOOKS_A_TURN - due.len();
        due.extend(growing.filter(|id| !after(id)).take(rest).cloned());
        if due.is_empty() {
            return;
        }
        self.next_at = clock::after(now, LOOK_AGAIN);
        self.cursor = due.last().cloned();
        for id in due {
            self.look(&id);
            let dir = self.dir(&id);
            if let Some(growth) = &mut self.growth {
                growth.on_looked(&id, written(&dir), &dir, || written(&dir));
            }
        }
    }

    /// Nothing of an attempt is left: the last look.
    pub fn on_gone(&mut self, id: &AttemptId) {
        if let Some(growth) = &mut self.growth {
            growth.remove(id);
            self.look(id);
        }
        self.told.remove(id);
    }

    fn dir(&self, id: &AttemptId) -> PathBuf {
        self.attempts_dir.join(id.to_string())
    }

    fn look(&mut self, id: &AttemptId) {
        let dir = self.dir(id);
        for stream in STREAMS {
            match self.trim(&dir, stream) {
                Ok(None) => {}
                Ok(Some(first_kept)) if self.told.insert(id.clone()) => info!(
                    step = %id.step, attempt = id.number, first_kept,
                    "its {} has passed output_max: the oldest part is dropped, now and from now on", stream.file_name()
                ),
                Ok(Some(_)) => {}
                // It was never made, or was removed by whoever may.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if self.told.insert(id.clone()) => warn!(
                    step = %id.step, attempt = id.number,
                    "its {} cannot be kept within output_max: {e}", stream.file_name()
                ),
                Err(_) => {}
            }
        }
    }

    /// Drops what is over the bound: the offset of what is kept now, where that has changed.
    fn trim(&self, dir: &Path, stream: LogStream) -> io::Result<Option<u64>> {
        let path = dir.join(stream.file_name());
        // One call for most files at most times.
        if fs::symlink_metadata(&path)?.len() <= self.max_bytes {
            return Ok(None);
        }
        let file = open_own(&path, OpenOptions::new().write(true))?;
        let found = file.metadata()?;
        let over = found.len().saturating_sub(self.max_bytes);
        // Whole blocks: of a part of one nothing would come free.
        let first_kept = over - over % found.blksize().max(1);
        let marks = self.open_marks(dir)?;
        if first_kept <= dropped(&marks, stream)? {
            return Ok(None);
        }
        marks.write_all_at(&mark(first_kept), stream.mark_at())?;
        punch(&file, first_kept)?;
        Ok(Some(first_kept))
    }

    fn open_marks(&self, dir: &Path) -> io::Result<File> {
        let path = dir.join(MARKS_FILE);
        match open_own(&path, OpenOptions::new().read(true).write(true)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => make_marks(dir, self.reader_uid),
            opened => opened,
        }
    }
}

/// What an attempt has written so far; the dropped part counts.
fn written(dir: &Path) -> u64 {
    let len = |stream: LogStream| {
        fs::symlink_metadata(dir.join(stream.file_name())).map_or(0, |found| found.len())
    };
    STREAMS.map(len).iter().sum()
}

/// Makes the file of marks, with room for all that will ever be written to it.
///
/// # Errors
/// Where it cannot be made.
pub fn make_marks(dir: &Path, reader_uid: Option<u32>) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(MARKS_FILE))?;
    let nothing = [mark(0); MARKS_BYTES / MARK_BYTES].concat();
    file.write_all_at(&nothing, 0)?;
    // Whoever may look at output may see how much of it there is.
    file.set_permissions(Permissions::from_mode(0o644))?;
    reader_uid.map_or(Ok(()), |uid| fchown(&file, Some(uid), None))?;
    Ok(file)
}

fn dropped(marks: &File, stream: LogStream) -> io::Result<u64> {
    let mut bytes = [0; MARK_BYTES];
    marks.read_exact_at(&mut bytes, stream.mark_at())?;
    // Nobody else writes it: a half one is left by a supervisor that died, and is written anew.
    Ok(read_mark(bytes).unwrap_or(0))
}

fn punch(file: &File, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let len = i64::try_from(len).map_err(io::Error::other)?;
    Ok(fallocate(file.as_fd(), flags, 0, len)?)
}

/// A file without a byte is enough to be refused.
fn probe(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let punched = punch(&file, MARK_BYTES as u64);
    fs::remove_file(path)?;
    punched
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MAX: u64 = 64 * 1024;

    struct Rig {
        dir: tempfile::TempDir,
        cap: Cap,
        id: AttemptId,
    }

    impl Rig {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("a.1")).unwrap();
            let cap = Cap::new(dir.path().to_owned(), None, MAX);
            assert!(cap.growth.is_some(), "the tests need holes");
            Self {
                dir,
                cap,
                id: "a.1".parse().unwrap(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join("a.1").join(name)
        }

        fn write(&self, bytes: &[u8]) {
            let mut options = OpenOptions::new();
            let mut file = options
                .append(true)
                .create(true)
                .open(self.path("stdout"))
                .unwrap();
            file.write_all(bytes).unwrap();
        }

        fn dropped(&self, stream: LogStream) -> u64 {
            dropped(&self.cap.open_marks(&self.path("")).unwrap(), stream).unwrap()
        }
    }

    #[test]
    fn the_oldest_part_goes_and_the_rest_stays_where_it_is() {
        let mut rig = Rig::new();
        let mut whole: Vec<u8> = Vec::new();
        for n in 0..10u8 {
            let bytes: Vec<u8> = (0..20_001u32).map(|i| (i % 250) as u8 | n).collect();
            rig.write(&bytes);
            whole.extend(&bytes);
            rig.cap.on_gone(&rig.id.clone());
            let first_kept = rig.dropped(LogStream::Stdout);
            let found = fs::read(rig.path("stdout")).unwrap();
            assert_eq!(found.len(), whole.len(), "offsets stay valid");
            let kept = usize::try_from(first_kept).unwrap();
            assert!(found[..kept].iter().all(|byte| *byte == 0));
            assert_eq!(found[kept..], whole[kept..]);
            assert!(whole.len() as u64 - first_kept >= MAX.min(whole.len() as u64));
        }
        let room = fs::metadata(rig.path("stdout")).unwrap().blocks() * 512;
        assert!(room <= 2 * MAX, "{room} bytes are still taken");
        assert_eq!(rig.dropped(LogStream::Stderr), 0);
    }

    #[test]
    fn what_is_not_the_file_that_was_made_there_is_left_alone() {
        let mut rig = Rig::new();
        let other = rig.dir.path().join("other");
        let whole = vec![1; 3 * MAX as usize];
        fs::write(&other, &whole).unwrap();
        std::os::unix::fs::symlink(&other, rig.path("stdout")).unwrap();
        fs::hard_link(&other, rig.path("stderr")).unwrap();
        rig.cap.on_gone(&rig.id.clone());
        assert_eq!(fs::read(&other).unwrap(), whole);
        assert!(!rig.path(MARKS_FILE).exists());
    }

    #[test]
    fn a_turn_looks_at_no_more_than_it_bears_and_comes_round() {
        let mut rig = Rig::new();
        let ids: Vec<AttemptId> = (0..LOOKS_A_TURN + 5)
            .map(|n| format!("s{n:05}.1").parse().unwrap())
            .collect();
        for id in &ids {
            let dir = rig.dir.path().join(id.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("stdout"), vec![1; 2 * MAX as usize]).unwrap();
        }
        let trimmed = |rig: &Rig| {
            let has = |id: &&AttemptId| {
                rig.dir
                    .path()
                    .join(id.to_string())
                    .join(MARKS_FILE)
                    .exists()
            };
            ids.iter().filter(has).count()
        };
        ids.iter().for_each(|id| rig.cap.on_begun(id));
        rig.cap.on_time(BootMillis(1));
        assert_eq!(trimmed(&rig), LOOKS_A_TURN);
        rig.cap.on_time(BootMillis(2));
        assert_eq!(trimmed(&rig), LOOKS_A_TURN, "it is not time yet");
        rig.cap.on_time(BootMillis(1001));
        assert_eq!(trimmed(&rig), ids.len());
    }
}
