//! Records on disk, which survive the supervisor: one small file for each attempt, and the last renewal of
//! leases.
//!
//! A record is written when the attempt has a process, *before* that process may become the step's program,
//! and again when it ends. So no step ever runs without a record, and an attempt without a record never ran.
//! Each new state of an attempt is a line at the end of its file, because a new file and a rename for each cost
//! more than all else that is written for a short step. The last line counts, or the one before it if the last was cut.
//! The other files are replaced atomically by a rename. None is synced: a crash of the host ends every step and changes
//! the boot id, and a crash of the supervisor loses no written page.
//!
//! Environment and command are not stored, because they may contain secrets and are not needed again; hooks
//! after the step have a file of their own ([`after_hooks`]).

pub mod after_hooks;
pub mod reader;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_common::id::{AttemptId, BootId, UserName};
use sluice_common::supervision::{
    BootMillis, FrozenTime, HostPhase, LaunchRecord, StorageExceeded,
};
use tracing::error;

use crate::atomic_file::{self, FileError};
use crate::gpu_move::StoredMove;
use crate::lease::Lease;

const DIRECTORY: &str = "spool";
const SUFFIX: &str = ".json";
/// Cannot be an attempt's file, because ids do not begin with a dot.
const NEW: &str = ".new";
/// Cannot be an attempt's file, because their names have a number before the suffix.
const RENEWAL: &str = "renewal.json";
/// Suffix of the note that a keeper has killed the attempt.
const KEPT_SUFFIX: &str = ".kept";

/// Cannot be an attempt's file. If it is missing, the version is 1.
const FORM_FILE: &str = "form";
/// Version of all files here, incremented with each change that an earlier supervisor could not read or would
/// misread. A new optional field is no such change. Version 1 had one state in each file; it is read too.
const FORM: u32 = 2;
const EARLIER_FORM: &str = "1";
/// Size in bytes from which a record's file is replaced by one that has its last state alone.
const MAX_RECORD_FILE: u64 = 64 << 10;

/// The stored state of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Also the file's name.
    pub attempt: AttemptId,
    /// The boot that the process belongs to.
    pub boot_id: BootId,
    /// Details from the spawn order.
    pub memo: LaunchRecord,
    pub lease: Option<Lease>,
    pub phase: HostPhase,
    /// Variables that the admin's hooks get.
    #[serde(
        rename = "hook_words",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub hook_variables: BTreeMap<String, String>,
    /// The attempt's own user id, if no user was configured for it; kept after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user who submitted the step, if this host's config requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter: Option<UserName>,
    /// GPU memory that is in host memory, or on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<StoredMove>,
    /// Total time for which the attempt was frozen.
    #[serde(default)]
    pub frozen: FrozenTime,
    /// Storage grant, and whether it was exceeded.
    #[serde(default)]
    pub storage: StorageUse,
    /// Whether the agent may know that the main process has ended.
    #[serde(
        rename = "end_told",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub end_reported: bool,
}

/// Storage grant of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageUse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<u64>,
    /// Number of files that come with the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u64>,
    /// Project id of the attempt's directories, if the file system has project quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<u32>,
    /// The bound that the attempt was killed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<StorageExceeded>,
}

/// The deadline of all leases by the last renewal. One file for the host, because otherwise each heartbeat
/// would rewrite every record.
#[derive(Serialize, Deserialize)]
struct Renewal {
    boot_id: BootId,
    until: BootMillis,
}

/// Records found on disk.
#[derive(Debug, Default)]
pub struct LoadedRecords {
    pub records: Vec<Record>,
    /// Attempts with unreadable records, whose files were set aside.
    pub damaged: Vec<AttemptId>,
}

/// Why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A file or the directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A newer supervisor wrote the spool.
    #[error(
        "{} has format {found:?}, and this supervisor reads format {FORM}: install the release that wrote it, or empty the directory when no step of it runs any more", dir.display()
    )]
    Form {
        dir: PathBuf,
        /// The version in the spool.
        found: String,
    },
}

/// The directory of records.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    /// Opens the directory below `state_dir`, and makes it if it is missing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(state_dir: &Path) -> Result<Self, SpoolError> {
        let dir = state_dir.join(DIRECTORY);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|e| failed("make", &dir, e))?;
        let spool = Self { dir };
        spool.check_form()?;
        Ok(spool)
    }

    /// Rejects another version before any file is considered damaged.
    fn check_form(&self) -> Result<(), SpoolError> {
        let path = self.dir.join(FORM_FILE);
        match fs::read_to_string(&path) {
            Ok(found) if found.trim() == FORM.to_string() => Ok(()),
            // A crash of the host may leave a file that was not synced empty.
            Ok(found) if found.is_empty() || found.trim() == EARLIER_FORM => {
                self.write_json(&path, &FORM)
            }
            Ok(found) => Err(SpoolError::Form {
                dir: self.dir.clone(),
                found: found.trim().escape_debug().to_string(),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.write_json(&path, &FORM),
            Err(e) => Err(failed("read", &path, e)),
        }
    }

    /// Reads every record. A damaged one is logged and set aside.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn load(&self) -> Result<LoadedRecords, SpoolError> {
        let listing = |e| failed("list", &self.dir, e);
        let mut loaded = LoadedRecords::default();
        for entry in fs::read_dir(&self.dir).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            if let Some(id) = stem.and_then(|stem| stem.parse::<AttemptId>().ok()) {
                self.load_one(id, &mut loaded);
            }
        }
        Ok(loaded)
    }

    fn load_one(&self, id: AttemptId, loaded: &mut LoadedRecords) {
        let path = self.path_of(&id);
        match read_record(&path) {
            Ok(record) => match implausible(&record, &id) {
                None => return loaded.records.push(record),
                Some(why) => set_aside(&path, &why),
            },
            Err(why) => set_aside(&path, &why.to_string()),
        }
        loaded.damaged.push(id);
    }

    /// Writes an attempt's record, which counts instead of an earlier one.
    ///
    /// # Errors
    /// If it cannot be written; the earlier one counts then.
    pub fn save(&self, record: &Record) -> Result<(), SpoolError> {
        let path = self.path_of(&record.attempt);
        match atomic_file::append_line(&path, &to_json(record), MAX_RECORD_FILE)? {
            true => Ok(()),
            false => self.write_json(&path, record),
        }
    }

    /// Removes an attempt's record, if there is one.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, attempt: &AttemptId) -> Result<(), SpoolError> {
        self.delete_after_hooks(attempt)?;
        remove_file(&self.dir.join(format!("{attempt}{KEPT_SUFFIX}")))?;
        remove_file(&self.path_of(attempt))
    }

    /// Whether a keeper has killed an attempt because its lease had expired.
    pub fn was_ended_by_keeper(&self, attempt: &AttemptId) -> bool {
        self.dir.join(format!("{attempt}{KEPT_SUFFIX}")).exists()
    }

    /// Writes the last renewal.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save_renewal(&self, boot_id: &BootId, until: BootMillis) -> Result<(), SpoolError> {
        let renewal = Renewal {
            boot_id: boot_id.clone(),
            until,
        };
        let path = self.dir.join(RENEWAL);
        self.write_json(&path, &renewal)
            .or_else(|e| self.overwrite(&path, &renewal).map_err(|_| e))
    }

    /// Overwrites the file in place, which needs no new block on a full disk: a keeper that missed the
    /// renewal would kill every renewed step.
    fn overwrite<T: Serialize>(&self, path: &Path, value: &T) -> io::Result<()> {
        let bytes = to_json(value);
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&bytes, 0)?;
        file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    /// Reads the last renewal of this boot. If it is damaged, leases end as without it.
    pub fn load_renewal(&self, boot_id: &BootId) -> Option<BootMillis> {
        let path = self.dir.join(RENEWAL);
        if !path.exists() {
            return None;
        }
        match read_json::<Renewal>(&path) {
            Ok(renewal) => (renewal.boot_id == *boot_id).then_some(renewal.until),
            Err(why) => {
                set_aside(&path, &why.to_string());
                None
            }
        }
    }

    fn path_of(&self, attempt: &AttemptId) -> PathBuf {
        self.dir.join(format!("{attempt}{SUFFIX}"))
    }

    fn write_json<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), SpoolError> {
        Ok(atomic_file::replace(
            path,
            &self.dir.join(NEW),
            &to_json(value),
        )?)
    }
}

fn remove_file(path: &Path) -> Result<(), SpoolError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> SpoolError {
    FileError::new(action, path, source).into()
}

fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("records have string keys only")
}

/// The record of the last line; of the one before it if the last is not whole.
fn read_record(path: &Path) -> io::Result<Record> {
    let bytes = fs::read(path)?;
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    let last = serde_json::from_slice(lines.next().unwrap_or_default());
    let mut earlier = lines.filter_map(|line| serde_json::from_slice(line).ok());
    last.or_else(|cut| earlier.next().ok_or(cut))
        .map_err(io::Error::from)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Why no supervisor can have written this record. Signals are sent to the pid in a record, and a number
/// below 2 would reach every process.
fn implausible(record: &Record, id: &AttemptId) -> Option<String> {
    let process = match &record.phase {
        HostPhase::Running(process) => Some(process),
        HostPhase::Ended(end) | HostPhase::Gone(end) => end.process.as_ref(),
    };
    if record.attempt != *id {
        return Some(format!("it names attempt {}", record.attempt));
    }
    let pid = process.map(|p| p.pid)?;
    let is_pid = pid >= 2 && i32::try_from(pid).is_ok();
    (!is_pid).then(|| format!("{pid} is not a process id of a step"))
}

/// Renames a damaged file, so that it is kept for inspection.
fn set_aside(path: &Path, why: &str) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    match fs::rename(path, &aside) {
        Ok(()) => error!(file = %path.display(), "damaged, set aside as `*.damaged`: {why}"),
        Err(e) => error!(file = %path.display(), "damaged, and cannot be set aside ({e}): {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervision::{Exit, Process, ProcessEnd};
    use sluice_common::time::{Span, Time};
    use sluice_common::usage::Usage;

    fn record(id: &str, exit: Exit) -> Record {
        Record {
            attempt: id.parse().unwrap(),
            boot_id: BootId::new("boot").unwrap(),
            memo: LaunchRecord {
                timeout: Some(Span::from_secs(9)),
                grace: Span::from_secs(1),
                gpus: vec!["GPU-a".to_owned()],
                processors: Default::default(),
                is_allocation: false,
            },
            lease: Some(Lease::new(BootMillis(u64::MAX), Span::from_secs(2))),
            phase: HostPhase::Ended(ProcessEnd {
                process: Some(Process {
                    pid: 5,
                    start_ticks: u64::MAX,
                    started_at: Time::from_unix_millis(1),
                    workdir_refused: None,
                }),
                exit,
                ended_at: Time::from_unix_millis(2),
                usage: Usage::default(),
                kept: None,
            }),
            hook_variables: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            uid: None,
            submitter: UserName::new("alice").ok(),
            away: None,
            frozen: FrozenTime::default(),
            storage: StorageUse::default(),
            end_reported: false,
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_what_is_removed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let exits = [
            Exit::Code(3),
            Exit::Signal(9),
            Exit::StartFailed("no `x`".to_owned()),
            Exit::LeaseExpired,
            Exit::HostRebooted,
            Exit::Unknown,
        ];
        for (n, exit) in exits.into_iter().enumerate() {
            let one = record(&format!("a.{}", n + 1), exit);
            spool.save(&one).unwrap();
            let again = Spool::open(dir.path()).unwrap().load().unwrap();
            assert_eq!(again.records, std::slice::from_ref(&one));
            spool.remove(&one.attempt).unwrap();
            spool.remove(&one.attempt).unwrap();
        }
        assert!(spool.load().unwrap().records.is_empty());
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let good = record("good.1", Exit::Code(0));
        spool.save(&good).unwrap();
        let whole = serde_json::to_vec(&good).unwrap();
        fs::write(spool.dir.join("cut.1.json"), &whole[..whole.len() / 2]).unwrap();
        fs::write(spool.dir.join("other.1.json"), &whole).unwrap();
        fs::write(spool.dir.join("empty.1.json"), b"").unwrap();
        let everybody = String::from_utf8(whole.clone())
            .unwrap()
            .replace("\"pid\":5", "\"pid\":1");
        fs::write(
            spool.dir.join("pid.1.json"),
            everybody.replace("good", "pid"),
        )
        .unwrap();
        fs::write(spool.dir.join("noise.1.json"), [0xff, 0, 1]).unwrap();
        fs::write(spool.dir.join(NEW), b"half").unwrap();

        let loaded = spool.load().unwrap();
        assert_eq!(loaded.records, [good]);
        let mut damaged: Vec<_> = loaded.damaged.iter().map(ToString::to_string).collect();
        damaged.sort();
        assert_eq!(damaged, ["cut.1", "empty.1", "noise.1", "other.1", "pid.1"]);
        assert!(spool.dir.join("cut.1.json.damaged").exists());
        assert!(spool.load().unwrap().damaged.is_empty());
    }

    /// A record as the first release wrote it. Steps may outlive the supervisor that wrote theirs.
    const WRITTEN: &str = r#"{"attempt":"a.1","boot_id":"boot","memo":{"timeout":9000,"grace":1000},"lease":{"until":18446744073709551615,"grace":2000,"passed":false},"phase":{"Ended":{"process":{"pid":5,"start_ticks":18446744073709551615,"started_at":1},"exit":{"code":3},"ended_at":2}}}"#;

    #[test]
    fn what_was_written_by_an_earlier_supervisor_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(DIRECTORY)).unwrap();
        let path = dir.path().join("spool/a.1.json");
        fs::write(&path, WRITTEN).unwrap();
        let loaded = Spool::open(dir.path()).unwrap().load().unwrap();
        // That release stored no GPUs, and no variables for hooks.
        let mut wanted = record("a.1", Exit::Code(3));
        wanted.memo.gpus.clear();
        wanted.hook_variables.clear();
        wanted.submitter = None;
        assert_eq!(loaded.records, [wanted]);
    }

    #[test]
    fn a_spool_of_another_form_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        spool.save(&record("a.1", Exit::Code(0))).unwrap();
        Spool::open(dir.path()).unwrap();
        fs::write(spool.dir.join(FORM_FILE), "").unwrap();
        Spool::open(dir.path()).unwrap();
        fs::write(spool.dir.join(FORM_FILE), EARLIER_FORM).unwrap();
        Spool::open(dir.path()).unwrap();
        let form = fs::read_to_string(spool.dir.join(FORM_FILE)).unwrap();
        assert_eq!(form, FORM.to_string());
        for found in ["3", "one"] {
            fs::write(spool.dir.join(FORM_FILE), found).unwrap();
            let told = Spool::open(dir.path()).unwrap_err().to_string();
            assert!(told.contains("install the release that wrote it"), "{told}");
        }
        assert!(spool.path_of(&"a.1".parse().unwrap()).exists());
    }

    #[test]
    fn wherever_a_write_was_cut_the_state_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (before, after) = (record("a.1", Exit::Unknown), record("a.1", Exit::Code(3)));
        let boot = BootId::new("boot").unwrap();
        spool.save(&before).unwrap();
        spool.save_renewal(&boot, BootMillis(7)).unwrap();
        let whole = serde_json::to_vec(&after).unwrap();
        let path = spool.path_of(&before.attempt);
        let old = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            // A supervisor that dies while writing leaves the beginning of a line, or of a file that was to replace
            // another.
            fs::write(&path, [&old, &b"\n"[..], &whole[..cut]].concat()).unwrap();
            fs::write(spool.dir.join(NEW), &whole[..cut]).unwrap();
            let spool = Spool::open(dir.path()).unwrap();
            let loaded = spool.load().unwrap();
            assert_eq!(loaded.records, std::slice::from_ref(&before), "{cut}");
            assert!(loaded.damaged.is_empty(), "{cut}");
            assert_eq!(spool.load_renewal(&boot), Some(BootMillis(7)));
            spool.save(&after).unwrap();
            assert_eq!(spool.load().unwrap().records, std::slice::from_ref(&after));
        }
    }

    #[test]
    fn a_record_of_many_states_stays_small_and_its_last_state_counts() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        for n in 0..500 {
            let one = record("a.1", Exit::Code(n % 100));
            spool.save(&one).unwrap();
            assert_eq!(spool.load().unwrap().records, [one]);
        }
        let bytes = fs::metadata(spool.path_of(&"a.1".parse().unwrap())).unwrap();
        assert!(bytes.len() < 2 * MAX_RECORD_FILE, "{}", bytes.len());
    }

    #[test]
    fn a_state_that_cannot_be_written_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let one = record("a.1", Exit::Code(3));
        let path = spool.path_of(&one.attempt);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let told = spool.save(&one).unwrap_err().to_string();
        assert!(told.contains("a.1.json"), "{told}");
    }

    #[test]
    fn a_file_that_ends_early_is_damaged_at_whichever_byte_and_its_name_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let whole = serde_json::to_vec(&record("a.1", Exit::Code(3))).unwrap();
        let id: AttemptId = "a.1".parse().unwrap();
        // Faulty storage may truncate a file; this process does not.
        for cut in 0..whole.len() {
            fs::write(spool.path_of(&id), &whole[..cut]).unwrap();
            let loaded = spool.load().unwrap();
            assert_eq!(
                (loaded.records.len(), loaded.damaged),
                (0, vec![id.clone()]),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_renewal_counts_for_its_own_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (boot, other) = (BootId::new("a").unwrap(), BootId::new("b").unwrap());
        assert_eq!(spool.load_renewal(&boot), None);
        spool.save_renewal(&boot, BootMillis(7)).unwrap();
        assert_eq!(spool.load_renewal(&boot), Some(BootMillis(7)));
        assert_eq!(spool.load_renewal(&other), None);
        fs::write(spool.dir.join(RENEWAL), b"{").unwrap();
        assert_eq!(spool.load_renewal(&boot), None);
        assert!(spool.load().unwrap().records.is_empty());
    }
}
