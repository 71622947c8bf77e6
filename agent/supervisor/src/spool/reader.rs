//! Reads the spool for a keeper ([`crate::keeper`]), while the supervisor writes it. Changes nothing, and
//! sets no damaged file aside. A record is read again only if its file has changed.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sluice_common::id::{AttemptId, BootId};
use sluice_common::supervision::{BootMillis, HostPhase, Process};

use super::{
    DIRECTORY, KEPT_SUFFIX, RENEWAL, Renewal, SUFFIX, implausible, read_json, read_record,
};
use crate::lease::Lease;

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolEntry {
    /// The attempt may have running processes.
    Held {
        /// The main process.
        main: Option<Process>,
        /// The lease when the record was written; `None` if there is none.
        lease: Option<Lease>,
    },
    /// No process is left.
    Over,
    /// The record is damaged.
    Unreadable,
}

/// Identifies the content of a file: each new state makes it longer, or is a new file with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Reads the spool of a state directory.
#[derive(Debug)]
pub struct SpoolReader {
    dir: PathBuf,
    boot_id: BootId,
    seen: BTreeMap<AttemptId, (FileStamp, SpoolEntry)>,
}

impl SpoolReader {
    /// For the boot `boot_id`: attempts of another boot have no processes.
    pub fn new(state_dir: &Path, boot_id: BootId) -> Self {
        Self {
            dir: state_dir.join(DIRECTORY),
            boot_id,
            seen: BTreeMap::new(),
        }
    }

    /// Every record that exists now.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn read(&mut self) -> io::Result<Vec<(AttemptId, SpoolEntry)>> {
        let mut now = BTreeMap::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(id) = stem.and_then(|stem| stem.parse::<AttemptId>().ok()) else {
                continue;
            };
            // A record is never without its file, so a missing one was removed.
            let Ok(found) = fs::metadata(entry.path()) else {
                continue;
            };
            let stamp = FileStamp::of(&found);
            let before = self.seen.get(&id).filter(|(seen, _)| *seen == stamp);
            let what = before.map_or_else(|| self.entry(&id, &entry.path()), |(_, what)| *what);
            now.insert(id, (stamp, what));
        }
        self.seen = now;
        Ok(self
            .seen
            .iter()
            .map(|(id, (_, what))| (id.clone(), *what))
            .collect())
    }

    fn entry(&self, id: &AttemptId, path: &Path) -> SpoolEntry {
        let Ok(record) = read_record(path) else {
            return SpoolEntry::Unreadable;
        };
        if implausible(&record, id).is_some() {
            return SpoolEntry::Unreadable;
        }
        let main = match &record.phase {
            _ if record.boot_id != self.boot_id => return SpoolEntry::Over,
            HostPhase::Gone(_) => return SpoolEntry::Over,
            HostPhase::Running(process) => Some(*process),
            HostPhase::Ended(end) => end.process,
        };
        let lease = record.lease;
        SpoolEntry::Held { main, lease }
    }

    /// The last renewal of this boot. A file that is being written is read the next time.
    pub fn renewal(&self) -> Option<BootMillis> {
        let renewal = read_json::<Renewal>(&self.dir.join(RENEWAL)).ok()?;
        (renewal.boot_id == self.boot_id).then_some(renewal.until)
    }

    /// Writes the note that a keeper has killed an attempt because its lease had expired: see
    /// [`super::Spool::was_ended_by_keeper`].
    ///
    /// # Errors
    /// If the note cannot be written.
    pub fn note(&self, attempt: &AttemptId) -> io::Result<()> {
        fs::write(self.dir.join(format!("{attempt}{KEPT_SUFFIX}")), "")
    }
}

impl FileStamp {
    fn of(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}
