//! Makes a data directory from a backup. Existing files are moved aside, never overwritten, and the store is put in
//! place last, so that a crash leaves no half-restored store.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use coordinator_core::RecoveryCause;
use sluice_common::api::timestamp;

use super::check::{BackupVisitor, Summary, read};
use super::{BackupError, Header, KEY_DIR, KeyFile, io_error};
use crate::clock::wall;
use crate::seal::KEY_FILE;
use crate::store::{DirLock, JOURNAL_FILE, StoreBuilder, StorePart};

/// Parts of a coordinator's directory, besides its lock and its socket.
const PARTS: [&str; 5] = ["store.redb", JOURNAL_FILE, "tip", KEY_DIR, KEY_FILE];

/// Temporary directory beside the target.
const DRAFT: &str = "restore.new";

/// Result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// Contents of the backup.
    pub summary: Summary,
    /// Directory with the files that were there before.
    pub aside: Option<PathBuf>,
    /// Whether the directory has the cluster's keys.
    pub has_keys: bool,
}

/// Restores `backup` into `dir`; `force` moves an existing store aside.
///
/// # Errors
/// If the backup is incomplete, there is a store, a coordinator runs on it, or the directory cannot be written.
pub fn restore(backup: &Path, dir: &Path, force: bool) -> Result<Restored, BackupError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(io_error("make", dir))?;
    let _lock = DirLock::take(dir)?;
    let restored = restore_locked(backup, dir, force);
    if restored.is_err() {
        let _why_it_is_refused_is_told = clear(&dir.join(DRAFT));
    }
    // Also after a refusal, because the lock may be new.
    let handed_over = hand_over(dir);
    let restored = restored?;
    handed_over?;
    Ok(restored)
}

fn restore_locked(backup: &Path, dir: &Path, force: bool) -> Result<Restored, BackupError> {
    let occupied = ["store.redb", JOURNAL_FILE, "tip"]
        .iter()
        .any(|name| dir.join(name).exists());
    if occupied && !force {
        return Err(BackupError::Occupied {
            dir: dir.to_owned(),
        });
    }
    let draft = dir.join(DRAFT);
    clear(&draft)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&draft);
    made.map_err(io_error("make", &draft))?;
    let summary = fill(backup, &draft)?;
    let aside = occupied
        .then(|| move_aside(dir, summary.header.keys))
        .transpose()?;
    put_in_place(&draft, dir)?;
    clear(&draft)?;
    Ok(Restored {
        has_keys: dir.join(KEY_DIR).join("ca.pem").exists() && dir.join(KEY_FILE).exists(),
        summary,
        aside,
    })
}

fn clear(draft: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", draft)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn fill(backup: &Path, draft: &Path) -> Result<Summary, BackupError> {
    let file = File::open(backup).map_err(io_error("read", backup))?;
    let mut making = PartialRestore {
        dir: draft,
        store: None,
    };
    let summary = read(BufReader::new(file), backup, &mut making)?;
    let store = making.store.expect("a backup begins with its header");
    store.finish(RecoveryCause::Restored)?;
    Ok(summary)
}

struct PartialRestore<'a> {
    dir: &'a Path,
    store: Option<StoreBuilder>,
}

impl PartialRestore<'_> {
    fn add(&mut self, piece: StorePart<'_>) -> Result<(), BackupError> {
        let store = self
            .store
            .as_mut()
            .expect("a backup begins with its header");
        Ok(store.add(piece)?)
    }
}

impl BackupVisitor for PartialRestore<'_> {
    fn header(&mut self, header: &Header) -> Result<(), BackupError> {
        let file = self.dir.join("store.redb");
        self.store = Some(StoreBuilder::create(&file, &header.cluster)?);
        Ok(())
    }

    fn key(&mut self, key: &KeyFile) -> Result<(), BackupError> {
        let path = self.dir.join(&key.path);
        let parent = path.parent().unwrap_or(self.dir);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(io_error("make", parent))?;
        let write = || -> io::Result<()> {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(if key.private { 0o600 } else { 0o644 })
                .open(&path)?;
            file.write_all(key.text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(io_error("write", &path))
    }

    fn snapshot(&mut self, seq: u64, text: &[u8]) -> Result<(), BackupError> {
        self.add(StorePart::Snapshot { seq, text })
    }

    fn record(&mut self, seq: u64, text: &[u8]) -> Result<(), BackupError> {
        self.add(StorePart::Record { seq, text })
    }

    fn variables(&mut self, step: &str, text: &[u8]) -> Result<(), BackupError> {
        self.add(StorePart::Variables { step, text })
    }
}

/// Moves existing files aside. Keys stay if the backup contains none.
fn move_aside(dir: &Path, keys_come: bool) -> Result<PathBuf, BackupError> {
    let name = format!("before-restore-{}", timestamp(wall())).replace(':', "");
    let aside = dir.join(name);
    let made = DirBuilder::new().mode(0o700).create(&aside);
    made.map_err(io_error("make", &aside))?;
    let is_key = |name: &str| name == KEY_DIR || name == KEY_FILE;
    for name in PARTS.into_iter().filter(|name| keys_come || !is_key(name)) {
        let from = dir.join(name);
        if from.exists() {
            fs::rename(&from, aside.join(name)).map_err(io_error("move", &from))?;
        }
    }
    Ok(aside)
}

/// Moves the restored files in place, the store last.
fn put_in_place(draft: &Path, dir: &Path) -> Result<(), BackupError> {
    for name in PARTS.into_iter().rev() {
        let (from, to) = (draft.join(name), dir.join(name));
        if !from.exists() {
            continue;
        }
        // Keys of a directory without a store are replaced by those of the backup.
        if to.is_dir() {
            let aside = dir.join(format!("{name}.before-restore"));
            clear(&aside)?;
            fs::rename(&to, &aside).map_err(io_error("move", &to))?;
        }
        fs::rename(&from, &to).map_err(io_error("write", &to))?;
    }
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io_error("sync", dir))
}

/// Gives the files to the directory's owner if root restored them. The owner may write in the directory, so a link
/// there may lead anywhere: ownership is changed of the link itself, never of its target.
fn hand_over(dir: &Path) -> Result<(), BackupError> {
    let owner = fs::metadata(dir).map_err(io_error("read", dir))?;
    if !nix::unistd::geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let mut paths: Vec<PathBuf> = PARTS.iter().map(|name| dir.join(name)).collect();
    paths.push(dir.join("lock"));
    let keys = dir.join(KEY_DIR);
    let is_folder = fs::symlink_metadata(&keys).is_ok_and(|found| found.is_dir());
    let keys = is_folder.then(|| fs::read_dir(keys));
    let keys = keys.into_iter().flatten().flatten().flatten();
    paths.extend(keys.map(|entry| entry.path()));
    for path in paths.iter().filter(|path| path.symlink_metadata().is_ok()) {
        lchown(path, Some(owner.uid()), Some(owner.gid())).map_err(io_error("give away", path))?;
    }
    Ok(())
}
