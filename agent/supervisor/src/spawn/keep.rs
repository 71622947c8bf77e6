//! Keeps files of a step's own directory after its end: `sluice-helper` reads them as the step's user, in the step's groups,
//! and writes them to one file of the supervisor, which is beside the attempt's output and lives as long.
//!
//! The step's user gets the open file and no way to its directory. A limit of the kernel bounds the file. It gets its name
//! when it is whole, so whoever dies meanwhile leaves none, and the next supervisor starts over.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, chdir, dup2_stdin, dup2_stdout};
use sluice_common::attempt_dir::{KEPT_FILE, KEPT_PART_FILE, OWN_WORKDIR};
use sluice_common::helper::KEEP_FILES;
use sluice_common::id::AttemptId;
use sluice_common::keep::{KEEP_NOTES_BYTES, KEPT_SUMMARY_BYTES, KeepPattern, KeptFiles};

use super::{SpawnError, Spawner, host};
use crate::helper_program::HelperProgram;
use crate::output::make_own;
use crate::sys;

/// Longest time in which files are kept: the attempt holds its GPUs meanwhile, also if others wait for them.
const MAX_SECONDS: u32 = 120;

/// Time after which the helper is killed. It ends by itself before, unless a file system hangs.
const KILL_SECONDS: u32 = MAX_SECONDS + 30;

/// Tells that keeping failed.
const NOT_KEPT: &str = "no files could be kept: the step's standard error says why";

/// Bounds of the files that are kept of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct KeepBounds {
    /// Most bytes of the file, without notes.
    pub max_bytes: u64,
    /// Bytes that stay free in the file system of attempts.
    pub min_free: u64,
}

/// State of the helper that keeps files.
pub(super) struct KeepRun<'a> {
    stream: File,
    argv: Vec<CString>,
    /// Most bytes of the file, with its notes.
    max_bytes: u64,
    own: PathBuf,
    null: &'a File,
    helper: &'a HelperProgram,
}

impl Spawner {
    /// Makes the file for what is kept; `None` if nothing is to be kept.
    pub(super) fn keep_run(
        &self,
        dir: &Path,
        patterns: &[KeepPattern],
        bounds: KeepBounds,
    ) -> Result<Option<KeepRun<'_>>, SpawnError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let path = dir.join(KEPT_PART_FILE);
        let made = make_stream(&path, self.reader_uid);
        let stream = host(|| format!("make {}", path.display()), made)?;
        let numbers = [bounds.max_bytes, bounds.min_free, MAX_SECONDS.into()];
        let numbers = numbers.map(|number: u64| number.to_string());
        let patterns = patterns.iter().map(|pattern| pattern.as_str().to_owned());
        let arguments = [KEEP_FILES.to_owned()].into_iter();
        let argv = HelperProgram::arguments(arguments.chain(numbers).chain(patterns));
        Ok(Some(KeepRun {
            stream,
            argv: host(|| "name the helper".to_owned(), argv)?,
            max_bytes: bounds.max_bytes.saturating_add(KEEP_NOTES_BYTES),
            own: dir.join(OWN_WORKDIR),
            null: &self.null,
            helper: &self.helper_program,
        }))
    }

    /// Gives the file of what was kept its name if it is whole, and removes it otherwise. Returns what is known of its
    /// contents; `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be renamed or removed.
    pub fn finish_keeping(&self, id: &AttemptId, is_whole: bool) -> io::Result<Option<KeptFiles>> {
        let dir = self.attempt_dir(id);
        let part = dir.join(KEPT_PART_FILE);
        let finished = match is_whole {
            true => {
                let summary = read_summary(&part);
                fs::rename(&part, dir.join(KEPT_FILE)).map(|()| summary)
            }
            false => fs::remove_file(&part).map(|()| Some(KeptFiles::nothing(NOT_KEPT))),
        };
        match finished {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            finished => finished,
        }
    }
}

/// Reads the count at the end of the file. The step's user wrote it, so it may be missing or anything else.
fn read_summary(path: &Path) -> Option<KeptFiles> {
    let file = File::open(path).ok()?;
    let start = file.metadata().ok()?.len();
    let start = start.checked_sub(KEPT_SUMMARY_BYTES as u64)?;
    let mut bytes = [0; KEPT_SUMMARY_BYTES];
    file.read_exact_at(&mut bytes, start).ok()?;
    let summary: KeptFiles = serde_json::from_slice(&bytes).ok()?;
    Some(summary.bounded())
}

/// Makes an empty file that nobody else has open; an earlier supervisor may have left one.
fn make_stream(path: &Path, reader_uid: Option<u32>) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    make_own(path, reader_uid)
}

impl KeepRun<'_> {
    /// Descriptors that the child needs.
    pub(super) fn keeps(&self) -> [RawFd; 3] {
        [
            self.stream.as_raw_fd(),
            self.null.as_raw_fd(),
            self.helper.as_raw_fd(),
        ]
    }

    /// Keeps the files, as the present user; only in a child.
    ///
    /// # Errors
    /// If the file is not whole.
    pub(super) fn run_to_end(&self) -> Result<(), String> {
        let failed = |why: &str| format!("no files of the step were kept: {why}");
        let pid = sys::fork_into(|| {
            if self.prepare().is_ok() {
                self.helper.execute(&self.argv, &[]);
            }
        });
        let pid = pid.map_err(|e| failed(&e.to_string()))?;
        match waitpid(Pid::from_raw(pid.cast_signed()), None) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(WaitStatus::Exited(..)) => Err(failed("its directory could not be read")),
            Ok(_) => Err(failed("the program that keeps them was killed")),
            Err(e) => Err(failed(e.desc())),
        }
    }

    fn prepare(&self) -> nix::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        chdir(&self.own)?;
        dup2_stdin(self.null)?;
        dup2_stdout(&self.stream)?;
        let (_, most) = getrlimit(Resource::RLIMIT_FSIZE)?;
        let most = most.min(self.max_bytes);
        setrlimit(Resource::RLIMIT_FSIZE, most, most)?;
        alarm::set(KILL_SECONDS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_believed_only_in_its_form_and_cut_to_its_bounds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |end: &str| {
            fs::write(file.path(), format!("stream{end:KEPT_SUMMARY_BYTES$}")).unwrap();
            read_summary(file.path())
        };
        let found = read(r#"{"files":2,"bytes":3,"left_out":1,"why":"a\nb"}"#).unwrap();
        assert_eq!((found.files, found.bytes, found.left_out), (2, 3, 1));
        assert_eq!(found.why.as_deref(), Some("a b"));
        let long = format!(
            r#"{{"files":0,"bytes":0,"left_out":0,"why":"{}"}}"#,
            "x".repeat(900)
        );
        assert_eq!(read(&long).unwrap().why.unwrap().len(), 400);
        assert_eq!(read(""), None);
        assert_eq!(read(r#"{"files":-1,"bytes":0,"left_out":0}"#), None);
        fs::write(file.path(), "short").unwrap();
        assert_eq!(read_summary(file.path()), None);
    }
}
