//! User ids for attempts without a configured user. Each id belongs to one attempt of this host at a time, across all
//! supervisors, and is reused only when nothing that the attempt left can be accessed with it.
//!
//! ```text
//! free --(claim)--> held --(no process of the attempt is left)--> unclean --(checked, cleaned)--> free
//! ```
//!
//! An id in use is a symbolic link in [`REGISTRY`]: its name is the id, its target names the attempt and the state
//! directory. The kernel creates links atomically and rejects a duplicate. So an id is recorded before any process has
//! it, and several supervisors of a host never assign the same. The links disappear at a reboot, as all processes do.
//! The attempt's record has its id too.
//!
//! `uid_range` of `sluice-common` defines the range, [`clean`] removes what an attempt has left outside of its own
//! directory. `table` drives it.

mod clean;
mod ipc;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink,
};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, geteuid};
use sluice_common::attempt_dir::{OWN_WORKDIR, STEP_DIR};
use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::uid_range::UidRange;
use tracing::{error, warn};

use crate::helper_program::HelperProgram;
use crate::trust::untrusted_reason;
use crate::{background, clock};

/// Directory of the ids in use, for all supervisors of the host.
pub const REGISTRY: &str = "/run/sluice/uids";

/// Time between two cleanings, so that several ids are cleaned together.
const CLEAN_INTERVAL: Span = Span::from_secs(1);

/// Time between two cleanings if something cannot be cleaned.
const RETRY_INTERVAL: Span = Span::from_secs(30);

/// Most ids in one cleaning.
const MAX_CLEANED: usize = 1_024;

/// Most ids that are tried for one attempt, so that a range taken by others does not delay deadlines.
const MAX_TRIES: u32 = 8_192;

/// The user of the output writer: the last id of a range, which no attempt gets.
pub fn writer_uid(range: Option<UidRange>) -> Option<Uid> {
    range.map(|range| Uid::from_raw(range.last))
}

/// Why no id can be assigned.
#[derive(Debug, thiserror::Error)]
pub enum UidError {
    /// The registry cannot be used.
    #[error("cannot {action} {}", path.display())]
    Registry {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Other users could have written to the registry.
    #[error("cannot use {}: {reason}: {way_out}", path.display())]
    Untrusted {
        path: PathBuf,
        reason: String,
        way_out: String,
    },
    /// No id is free, or there is no range.
    #[error("no user id of uid_range is free, of {count}: let steps end, or write a longer range")]
    NoneFree {
        /// Number of ids in the range.
        count: u32,
    },
}

/// Assigns and releases user ids.
#[derive(Debug)]
pub struct UidAllocator {
    helper: HelperProgram,
    registry: PathBuf,
    state_dir: PathBuf,
    attempts_dir: PathBuf,
    range: Option<UidRange>,
    /// The id to try next, as an offset from the first. Increases, so that an id is reused late.
    next: u32,
    unclean: BTreeSet<u32>,
    cleaning: Option<Cleaning>,
    clean_at: BootMillis,
    /// Whether the last cleaning left some ids, which was logged.
    is_stuck: bool,
}

#[derive(Debug)]
struct Cleaning {
    pid: u32,
    cleaned: PipeReader,
}

impl UidAllocator {
    /// For the attempts of a state directory. Ids of this directory that no living attempt has are cleaned.
    /// `held` are the ids in records, each with whether the attempt lives.
    ///
    /// # Errors
    /// If the registry cannot be used. A supervisor that is not root needs none.
    pub fn open<'a>(
        helper: HelperProgram,
        registry: &Path,
        state_dir: &Path,
        attempts_dir: &Path,
        range: Option<UidRange>,
        held: impl Iterator<Item = (u32, &'a AttemptId, bool)>,
    ) -> Result<Self, UidError> {
        let mut allocator = Self {
            helper,
            registry: registry.to_owned(),
            state_dir: state_dir.to_owned(),
            attempts_dir: attempts_dir.to_owned(),
            range,
            next: 0,
            unclean: BTreeSet::new(),
            cleaning: None,
            clean_at: BootMillis(0),
            is_stuck: false,
        };
        if !geteuid().is_root() {
            return Ok(allocator);
        }
        allocator.prepare()?;
        // Differs from the start of the previous supervisor, whose ids were used last.
        let now = u32::try_from(clock::boot_now().0 % u64::from(u32::MAX)).unwrap_or(0);
        allocator.next = range.map_or(0, |range| now % range.count());
        allocator.take_over(held)?;
        Ok(allocator)
    }

    fn prepare(&self) -> Result<(), UidError> {
        let parent = self.registry.parent().unwrap_or(Path::new("/"));
        for (dir, mode) in [(parent, 0o755), (self.registry.as_path(), 0o700)] {
            let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
            made.map_err(|e| failed("make", dir, e))?;
            let found = fs::symlink_metadata(dir).map_err(|e| failed("look at", dir, e))?;
            if let Some((reason, way_out)) = untrusted_reason(&found, 0, dir) {
                let path = dir.to_owned();
                return Err(UidError::Untrusted {
                    path,
                    reason,
                    way_out,
                });
            }
        }
        Ok(())
    }

    fn take_over<'a>(
        &mut self,
        held: impl Iterator<Item = (u32, &'a AttemptId, bool)>,
    ) -> Result<(), UidError> {
        let mut living = BTreeSet::new();
        for (uid, attempt, lives) in held {
            if lives {
                living.insert(uid);
                // The registry was lost; the link prevents others from assigning the id.
                match symlink(self.text(attempt), self.path_of(uid)) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(failed("make", &self.path_of(uid), e));
                    }
                    Ok(()) | Err(_) => {}
                }
            } else {
                self.hand_over(uid, attempt);
            }
        }
        let listing = |e| failed("list", &self.registry, e);
        for entry in fs::read_dir(&self.registry).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name();
            let uid = name.to_str().and_then(|name| name.parse::<u32>().ok());
            if let Some(uid) =
                uid.filter(|uid| !living.contains(uid) && self.holder(*uid).is_some())
            {
                self.unclean.insert(uid);
            }
        }
        Ok(())
    }

    fn path_of(&self, uid: u32) -> PathBuf {
        self.registry.join(uid.to_string())
    }

    fn text(&self, attempt: &AttemptId) -> String {
        format!("{attempt} {}", self.state_dir.display())
    }

    /// The attempt of this state directory that has an id.
    fn holder(&self, uid: u32) -> Option<AttemptId> {
        let text = fs::read_link(self.path_of(uid)).ok()?;
        let (attempt, dir) = text.to_str()?.split_once(' ')?;
        (dir == self.state_dir.display().to_string()).then(|| attempt.parse().ok())?
    }

    /// Claims an id for an attempt.
    ///
    /// # Errors
    /// If none is free.
    pub fn claim(&mut self, attempt: &AttemptId) -> Result<Uid, UidError> {
        let Some(range) = self.range else {
            return Err(UidError::NoneFree { count: 0 });
        };
        let text = self.text(attempt);
        // The last id is the writer's.
        let count = range.count() - 1;
        for _ in 0..count.min(MAX_TRIES) {
            let uid = range.first + self.next % count;
            self.next = (self.next + 1) % count;
            let path = self.path_of(uid);
            match symlink(&text, &path) {
                Ok(()) => return Ok(Uid::from_raw(uid)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed("make", &path, e)),
            }
        }
        Err(UidError::NoneFree { count })
    }

    /// Releases the id of an attempt without processes: root takes over its directory, and the id is free
    /// after it is cleaned.
    pub fn on_gone(&mut self, uid: Uid, attempt: &AttemptId) {
        self.hand_over(uid.as_raw(), attempt);
        if self.unclean.is_empty() {
            self.clean_at = self
                .clean_at
                .max(clock::after(clock::boot_now(), CLEAN_INTERVAL));
        }
        self.unclean.insert(uid.as_raw());
    }

    /// Gives the attempt's directories to root, so that a later attempt with the id cannot enter them. Their
    /// content needs no change, because only root can reach it.
    fn hand_over(&self, uid: u32, attempt: &AttemptId) {
        let dir = self.attempts_dir.join(attempt.to_string());
        for (name, mode) in [(OWN_WORKDIR, 0o700), (STEP_DIR, 0o711)] {
            let path = dir.join(name);
            match give_to_root(&path, uid, mode) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    error!(path = %path.display(), "its owner cannot be changed to root: {e}");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// When to call [`UidAllocator::on_time`].
    pub fn wake_at(&self) -> Option<BootMillis> {
        (self.cleaning.is_none() && !self.unclean.is_empty()).then_some(self.clean_at)
    }

    /// Whether everything that can be cleaned is clean.
    pub fn is_settled(&self) -> bool {
        self.cleaning.is_none() && (self.unclean.is_empty() || self.is_stuck)
    }

    /// Starts a cleaning if one is due.
    pub fn on_time(&mut self, now: BootMillis) {
        if self.wake_at().is_none_or(|at| now < at) {
            return;
        }
        self.clean_at = clock::after(now, CLEAN_INTERVAL);
        match self.clean() {
            Ok(cleaning) => self.cleaning = Some(cleaning),
            Err(e) => self.on_stuck(now, &format!("no process can be made to clean: {e}")),
        }
    }

    fn clean(&self) -> io::Result<Cleaning> {
        let (cleaned, mut told) = io::pipe()?;
        let uids: BTreeSet<u32> = self.unclean.iter().copied().take(MAX_CLEANED).collect();
        // The child must not run beside the next supervisor, which may assign an id to another attempt.
        let keep = [told.as_raw_fd(), self.helper.as_raw_fd()];
        let pid = background::start(&keep, || {
            let clean = clean::clean(&self.helper, &uids, &clean::SHARED_DIRS.map(Path::new));
            let lines: String = clean.iter().map(|uid| format!("{uid}\n")).collect();
            let _the_next_one_finds_it_again = told.write_all(lines.as_bytes());
        })?;
        Ok(Cleaning { pid, cleaned })
    }

    /// Handles the end of a child; returns whether it was the one that cleans.
    pub fn on_child_ended(&mut self, pid: u32, now: BootMillis) -> bool {
        let Some(mut cleaning) = self.cleaning.take_if(|cleaning| cleaning.pid == pid) else {
            return false;
        };
        let mut text = String::new();
        // A killed child may have written a partial number at the end.
        let _what_was_read_counts = cleaning.cleaned.read_to_string(&mut text);
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let cleaned: Vec<u32> = whole.lines().filter_map(|line| line.parse().ok()).collect();
        for uid in &cleaned {
            self.free(*uid);
        }
        let left = self.unclean.len();
        match cleaned.is_empty() && left > 0 {
            true => self.on_stuck(now, "something of attempts that have ended is left"),
            false => self.is_stuck = false,
        }
        true
    }

    fn on_stuck(&mut self, now: BootMillis, why: &str) {
        // A killed process may need a moment to die.
        let again = if self.is_stuck {
            RETRY_INTERVAL
        } else {
            CLEAN_INTERVAL
        };
        self.clean_at = clock::after(now, again);
        if !std::mem::replace(&mut self.is_stuck, true) {
            warn!(ids = ?self.unclean.iter().take(8).collect::<Vec<_>>(), "user ids cannot be reused yet: {why}");
        }
    }

    fn free(&mut self, uid: u32) {
        if !self.unclean.remove(&uid) {
            return;
        }
        // Without its record, nothing else has released the attempt's directory.
        if let Some(attempt) = self.holder(uid) {
            self.hand_over(uid, &attempt);
        }
        let path = self.path_of(uid);
        if let Err(e) = fs::remove_file(&path) {
            error!(path = %path.display(), "cannot be removed, so its user id is not reused: {e}");
        }
    }
}

/// Gives a directory to root if `uid` owns it; with another owner it belongs to a later attempt of the same
/// id.
fn give_to_root(path: &Path, uid: u32, mode: u32) -> io::Result<()> {
    let dir = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(path)?;
    if dir.metadata()?.uid() != uid {
        return Ok(());
    }
    fchown(&dir, Some(0), Some(0))?;
    dir.set_permissions(Permissions::from_mode(mode))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> UidError {
    UidError::Registry {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
