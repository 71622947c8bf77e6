//! Finds the start of a stream's kept output: the supervisor drops the oldest part of large output, and
//! records the new start in a mark before it does. A transfer checks the mark before it begins and after each
//! piece that it has read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sluice_common::output::{MARK_BYTES, MARKS_FILE, read_mark};
use sluice_common::wire::LogStream;

use super::LogError;

/// Reads of a mark that is being written. The writer needs nanoseconds; one that died in between is not
/// waited for.
const LOOKS: usize = 100;

/// The mark of one stream of an attempt.
pub(super) struct OutputStart {
    marks: PathBuf,
    stream: LogStream,
}

impl OutputStart {
    pub(super) fn new(attempt_dir: &Path, stream: LogStream) -> Self {
        Self {
            marks: attempt_dir.join(MARKS_FILE),
            stream,
        }
    }

    /// Offset of the first kept byte; 0 without a mark.
    pub(super) fn first(&self) -> u64 {
        let Ok(marks) = File::open(&self.marks) else {
            return 0;
        };
        let look = || {
            let mut bytes = [0; MARK_BYTES];
            let read = marks.read_exact_at(&mut bytes, self.stream.mark_at());
            read.ok().and_then(|()| read_mark(bytes))
        };
        (0..LOOKS).find_map(|_| look()).unwrap_or(0)
    }

    /// Call *after* reading from `offset`: bytes that were dropped meanwhile read as zeros.
    pub(super) fn check(&self, offset: u64) -> Result<(), LogError> {
        let first_kept = self.first();
        if offset < first_kept {
            return Err(LogError::Overtaken {
                wanted: offset,
                first_kept,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::output::{MARKS_BYTES, mark};

    #[test]
    fn what_was_dropped_is_known_and_a_half_mark_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let [stdout, stderr] = [LogStream::Stdout, LogStream::Stderr]
            .map(|stream| OutputStart::new(dir.path(), stream));
        assert_eq!(stdout.first(), 0, "there are no marks yet");
        let marks = File::create(dir.path().join(MARKS_FILE)).unwrap();
        marks.set_len(MARKS_BYTES as u64).unwrap();
        marks
            .write_all_at(&mark(8192), LogStream::Stderr.mark_at())
            .unwrap();
        assert_eq!((stdout.first(), stderr.first()), (0, 8192));
        assert!(stdout.check(0).is_ok() && stderr.check(8192).is_ok());
        let message = stderr.check(8191).unwrap_err().to_string();
        assert!(
            message.contains("begins at 8192 now, not at 8191"),
            "{message}"
        );
    }
}
