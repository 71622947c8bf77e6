//! Contents of steps' inputs: uploaded by callers, stored as files below the data directory, and given to the hosts that
//! start the steps.
//!
//! Each caller has uploads of his own: whoever knows the hash of somebody else's file can neither read it by a step nor learn
//! whether it is here. A file is kept while a step that has not ended names it, and for an hour after it was uploaded or asked
//! for, so that its caller can submit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coordinator_core::Core;
use ring::digest::{Context, SHA256};
use sluice_common::amount::format_memory;
use sluice_common::id::{AttemptId, NodeName};
use sluice_common::inputs::{InputFile, InputHash};

use crate::engine::EngineHandle;

/// Most bytes of all inputs together.
const MAX_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Most bytes of one caller's inputs, so that no caller takes the place of all others.
const MAX_CALLER_BYTES: u64 = 1024 * 1024 * 1024;

/// Bytes that a file counts at least, as its place on the disk, so that small ones are bounded in number.
const LEAST_BYTES: u64 = 4096;

/// Time for which a file is kept that no step names.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Time between two removals of files that no step needs.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// Beginning of names of files that have not arrived as a whole.
const PART_PREFIX: &str = "new-";

/// A file: the hash of the caller who uploaded it, and that of its contents.
pub(crate) type InputKey = (InputHash, InputHash);

/// Why an input is not stored.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The contents have another hash than the call names.
    #[error(
        "the bytes that arrived have the SHA-256 {found}, and the path names another: send the file that was hashed"
    )]
    OtherContents {
        /// Hash of the bytes.
        found: InputHash,
    },
    /// All inputs together take the maximum space.
    #[error("the inputs of all steps take {} on the coordinator, and the maximum is {}: wait until steps have ended, or put the file where hosts can read it", format_memory(*used), format_memory(MAX_BYTES))]
    Full {
        /// Bytes in use.
        used: u64,
    },
    /// The caller's inputs take the maximum space.
    #[error("your inputs take {} on the coordinator, and the maximum is {}: wait until your steps have ended and an hour has passed, or put the file where hosts can read it", format_memory(*used), format_memory(MAX_CALLER_BYTES))]
    ShareFull {
        /// Bytes in use.
        used: u64,
    },
    /// The disk failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// Action that failed.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The stored inputs. Clones share them.
#[derive(Clone, Debug)]
pub struct InputStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    parts: AtomicU64,
    contents: Mutex<Contents>,
}

/// The stored files, and the space that they take.
#[derive(Debug, Default)]
struct Contents {
    stored: BTreeMap<InputKey, StoredInput>,
    /// Bytes of each caller's files, also of those that are arriving.
    used: BTreeMap<InputHash, u64>,
}

impl Contents {
    fn add(&mut self, key: InputKey, new: StoredInput) {
        self.take_space(&key.0, new.counted());
        self.forget(&key);
        self.stored.insert(key, new);
    }

    fn forget(&mut self, key: &InputKey) {
        if let Some(old) = self.stored.remove(key) {
            self.free_space(&key.0, old.counted());
        }
    }

    fn take_space(&mut self, by: &InputHash, bytes: u64) {
        *self.used.entry(by.clone()).or_default() += bytes;
    }

    fn free_space(&mut self, by: &InputHash, bytes: u64) {
        if let Some(used) = self.used.get_mut(by) {
            *used -= bytes;
            if *used == 0 {
                self.used.remove(by);
            }
        }
    }

    /// Fails if the files of a caller, or all together, take the maximum.
    fn check_space(&self, by: &InputHash) -> Result<(), InputError> {
        let (own, all) = (self.used.get(by).copied(), self.used.values().sum());
        match own.filter(|used| *used > MAX_CALLER_BYTES) {
            Some(used) => Err(InputError::ShareFull { used }),
            None if all > MAX_BYTES => Err(InputError::Full { used: all }),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct StoredInput {
    size: u64,
    /// Time at which somebody wanted it last.
    wanted_at: Instant,
}

impl InputStore {
    /// Opens the directory of a data directory, and removes what has not arrived as a whole. What is there counts as wanted
    /// now.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn open(data_dir: &Path) -> Result<Self, InputError> {
        let dir = data_dir.join("inputs");
        let failed = |source| disk("read", &dir, source);
        make_dir(&dir)?;
        let mut contents = Contents::default();
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            match name.and_then(|name| name.parse::<InputHash>().ok()) {
                Some(by) => add_all(&path, &by, &mut contents).map_err(failed)?,
                None if name.is_some_and(|name| name.starts_with(PART_PREFIX)) => {
                    fs::remove_file(&path).map_err(failed)?;
                }
                None => {}
            }
        }
        Ok(Self(Arc::new(Shared {
            dir,
            parts: AtomicU64::new(0),
            contents: Mutex::new(contents),
        })))
    }

    /// The size of a file, which is then kept for a while.
    pub(crate) fn want(&self, key: &InputKey) -> Option<u64> {
        let mut contents = self.lock();
        let found = contents.stored.get_mut(key)?;
        found.wanted_at = Instant::now();
        Some(found.size)
    }

    /// Begins a file of a caller.
    ///
    /// # Errors
    /// If there is no space left for it, or the file cannot be made.
    pub(crate) fn begin(&self, by: &InputHash) -> Result<InputPart, InputError> {
        self.lock().check_space(by)?;
        let number = self.0.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.0.dir.join(format!("{PART_PREFIX}{number}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path);
        let file = file.map_err(|source| disk("make", &path, source))?;
        Ok(InputPart {
            store: self.clone(),
            by: by.clone(),
            path,
            file,
            size: 0,
            hash: Context::new(&SHA256),
        })
    }

    /// Completes a file that is to have the hash in `key`: it is durable when this returns.
    ///
    /// # Errors
    /// If it has another hash, there is no space for it, or it cannot be written.
    pub(crate) fn complete(&self, part: InputPart, key: InputKey) -> Result<u64, InputError> {
        let found = part.hash.clone().finish();
        let found = InputHash::of_digest(found.as_ref());
        if found != key.1 {
            return Err(InputError::OtherContents { found });
        }
        let size = part.size;
        let path = self.path(&key);
        let dir = path.parent().unwrap_or(&self.0.dir);
        make_dir(dir)?;
        let synced = part.file.sync_all();
        synced.map_err(|source| disk("write", &part.path, source))?;
        let mut contents = self.lock();
        let named = fs::rename(&part.path, &path).and_then(|()| File::open(dir)?.sync_all());
        named.map_err(|source| disk("write", &path, source))?;
        let wanted_at = Instant::now();
        contents.add(key, StoredInput { size, wanted_at });
        drop(contents);
        Ok(size)
    }

    /// Opens a file for reading; `None` if it is not here, or of another size.
    pub(crate) fn read(&self, by: &InputHash, input: &InputFile) -> Option<File> {
        let key = (by.clone(), input.sha256.clone());
        self.want(&key).filter(|size| *size == input.size)?;
        let file = File::open(self.path(&key)).ok()?;
        let length = file.metadata().ok()?.len();
        (length == input.size).then_some(file)
    }

    /// Removes a file that cannot be read, so that its caller uploads it again.
    pub(crate) fn discard(&self, by: &InputHash, input: &InputFile) {
        let key = (by.clone(), input.sha256.clone());
        self.remove(&mut self.lock(), &key);
    }

    /// Removes files that are not in use and that nobody has wanted for a while.
    pub(crate) fn sweep(&self, in_use: &BTreeSet<InputKey>, now: Instant) {
        let mut contents = self.lock();
        let stored = contents.stored.iter();
        let unwanted = stored.filter(|(key, it)| {
            let is_recent = now.saturating_duration_since(it.wanted_at) < KEPT_FOR;
            !is_recent && !in_use.contains(*key)
        });
        let unwanted: Vec<InputKey> = unwanted.map(|(key, _)| key.clone()).collect();
        for key in unwanted {
            self.remove(&mut contents, &key);
        }
    }

    fn remove(&self, contents: &mut Contents, key: &InputKey) {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {e}", path.display());
            }
            Ok(()) | Err(_) => contents.forget(key),
        }
    }

    fn path(&self, (by, hash): &InputKey) -> PathBuf {
        self.0.dir.join(by.as_str()).join(hash.as_str())
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        let contents = &self.0.contents;
        contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredInput {
    /// Bytes that count.
    fn counted(&self) -> u64 {
        self.size.max(LEAST_BYTES)
    }
}

/// A file that is arriving; it is removed unless it is completed.
pub(crate) struct InputPart {
    store: InputStore,
    by: InputHash,
    path: PathBuf,
    file: File,
    size: u64,
    hash: Context,
}

impl InputPart {
    /// Appends bytes.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), InputError> {
        let count = bytes.len() as u64;
        self.size += count;
        let mut contents = self.store.lock();
        contents.take_space(&self.by, count);
        contents.check_space(&self.by)?;
        drop(contents);
        let written = self.file.write_all(bytes);
        written.map_err(|source| disk("write", &self.path, source))?;
        self.hash.update(bytes);
        Ok(())
    }
}

impl Drop for InputPart {
    fn drop(&mut self) {
        self.store.lock().free_space(&self.by, self.size);
        let _it_has_its_name = fs::remove_file(&self.path);
    }
}

fn make_dir(dir: &Path) -> Result<(), InputError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| disk("make", dir, source))
}

/// Adds the files of one caller.
fn add_all(dir: &Path, by: &InputHash, contents: &mut Contents) -> io::Result<()> {
    let wanted_at = Instant::now();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let hash = name.to_str().and_then(|name| name.parse().ok());
        let metadata = entry.metadata()?;
        if let Some(hash) = hash.filter(|_| metadata.is_file()) {
            let size = metadata.len();
            contents.add((by.clone(), hash), StoredInput { size, wanted_at });
        }
    }
    Ok(())
}

fn disk(action: &'static str, path: &Path, source: io::Error) -> InputError {
    let path = path.to_owned();
    InputError::Disk {
        action,
        path,
        source,
    }
}

/// The inputs of an attempt that runs, or is to run, on a node, with the hash of their caller.
pub(crate) fn inputs_of(
    core: &Core,
    attempt: &AttemptId,
    node: &NodeName,
) -> Option<(InputHash, Vec<InputFile>)> {
    let step = core.state().find(&attempt.step)?;
    let latest = step.latest()?;
    let is_there = latest.parts.iter().any(|part| part.node == *node);
    if latest.number != attempt.number || !is_there || step.state.is_terminal() {
        return None;
    }
    Some((step.spec.inputs_by.clone()?, step.spec.inputs.clone()))
}

/// Files that steps need which have not ended.
fn in_use(core: &Core) -> BTreeSet<InputKey> {
    let steps = core.state().steps().values();
    let live = steps.filter(|step| !step.state.is_terminal());
    let keys = live.flat_map(|step| {
        let by = step.spec.inputs_by.iter();
        by.flat_map(|by| {
            step.spec
                .inputs
                .iter()
                .map(|it| (by.clone(), it.sha256.clone()))
        })
    });
    keys.collect()
}

/// Removes what no step needs, from time to time, until the engine ends.
pub(crate) async fn keep_clean(inputs: InputStore, engine: EngineHandle) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        // Before the steps are read, so that no file is removed that was submitted meanwhile.
        let now = Instant::now();
        let Ok(in_use) = engine.read(in_use).await else {
            return;
        };
        let inputs = inputs.clone();
        let _swept = tokio::task::spawn_blocking(move || inputs.sweep(&in_use, now)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> InputHash {
        let digest = ring::digest::digest(&SHA256, bytes);
        InputHash::of_digest(digest.as_ref())
    }

    fn put(store: &InputStore, by: &str, bytes: &[u8]) -> InputKey {
        let key = (hash(by.as_bytes()), hash(bytes));
        let mut part = store.begin(&key.0).unwrap();
        part.write(bytes).unwrap();
        let size = store.complete(part, key.clone()).unwrap();
        assert_eq!(size, bytes.len() as u64);
        key
    }

    fn input(key: &InputKey, size: u64) -> InputFile {
        InputFile {
            name: "x".to_owned(),
            sha256: key.1.clone(),
            size,
            executable: false,
        }
    }

    #[test]
    fn a_file_is_there_for_its_caller_alone_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let store = InputStore::open(dir.path()).unwrap();
        let key = put(&store, "ada", b"secret");
        drop(store.begin(&key.0).unwrap());
        fs::write(dir.path().join("inputs/new-9"), "half").unwrap();
        for store in [store, InputStore::open(dir.path()).unwrap()] {
            assert_eq!(store.want(&key), Some(6));
            assert_eq!(store.want(&(hash(b"bob"), key.1.clone())), None);
            assert!(store.read(&key.0, &input(&key, 6)).is_some());
            assert!(store.read(&key.0, &input(&key, 7)).is_none());
            assert!(store.read(&hash(b"bob"), &input(&key, 6)).is_none());
        }
        assert!(!dir.path().join("inputs/new-9").exists());
    }

    #[test]
    fn other_contents_are_not_stored_and_nothing_half_done_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = InputStore::open(dir.path()).unwrap();
        let key = (hash(b"ada"), hash(b"wanted"));
        let mut part = store.begin(&key.0).unwrap();
        part.write(b"other").unwrap();
        let why = store.complete(part, key.clone()).unwrap_err();
        assert!(matches!(why, InputError::OtherContents { .. }), "{why}");
        assert_eq!(store.want(&key), None);
        let left = fs::read_dir(dir.path().join("inputs")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn all_files_together_are_bounded_also_while_they_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let store = InputStore::open(dir.path()).unwrap();
        let (ada, bob) = (hash(b"ada"), hash(b"bob"));
        store.lock().take_space(&ada, MAX_CALLER_BYTES - 5);
        let mut part = store.begin(&ada).unwrap();
        part.write(b"12345").unwrap();
        let why = part.write(b"6").unwrap_err();
        assert!(matches!(why, InputError::ShareFull { .. }), "{why}");
        let another = store.begin(&ada);
        assert!(matches!(another, Err(InputError::ShareFull { .. })));
        drop(part);
        assert!(store.begin(&ada).is_ok());
        store
            .lock()
            .take_space(&hash(b"others"), MAX_BYTES - MAX_CALLER_BYTES);
        let mut part = store.begin(&bob).unwrap();
        let why = part.write(b"123456").unwrap_err();
        assert!(matches!(why, InputError::Full { .. }), "{why}");
    }

    #[test]
    fn what_cannot_be_read_is_uploaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = InputStore::open(dir.path()).unwrap();
        let key = put(&store, "ada", b"bytes");
        store.discard(&key.0, &input(&key, 5));
        assert_eq!(store.want(&key), None);
        assert_eq!(put(&store, "ada", b"bytes"), key);
        assert_eq!(store.want(&key), Some(5));
    }

    #[test]
    fn what_no_step_names_is_removed_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let store = InputStore::open(dir.path()).unwrap();
        let (used, unused) = (put(&store, "ada", b"used"), put(&store, "ada", b"unused"));
        let in_use = BTreeSet::from([used.clone()]);
        store.sweep(&in_use, Instant::now());
        assert_eq!(store.want(&unused), Some(6));
        store.sweep(&in_use, Instant::now() + KEPT_FOR + Duration::from_secs(1));
        assert_eq!((store.want(&used), store.want(&unused)), (Some(4), None));
        assert_eq!(store.lock().used.get(&used.0), Some(&LEAST_BYTES));
    }
}
