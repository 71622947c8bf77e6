//! Serves the output of attempts from the supervisor's files, by offset.
//!
//! A follower gets what exists and then what is written, until no process of the attempt is left. The files
//! do not depend on this process.

mod live;
mod output_start;
mod times;
mod watch;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_common::error_chain::error_chain;
use sluice_common::id::AttemptId;
use sluice_common::wire::{LogReply, LogRequest, LogStream};
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::task::spawn_blocking;
use tracing::debug;

use crate::execs::ExecServer;
use crate::inputs::InputServer;
pub(crate) use live::WritingAttempts;
use output_start::OutputStart;
use times::{StampWriter, TimeReader};
pub(crate) use watch::FileWatcher;

/// Bytes that are read and sent at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Interval of checks for growth if the kernel does not notify (a network file system, no inotify watch
/// left).
const RECHECK: Duration = Duration::from_secs(1);
/// Longest time by which a request may precede the order that starts its attempt: the two use different streams.
const AHEAD: Duration = Duration::from_secs(2);

/// Answer to a request for output since a time, if the host has output without times.
const NO_TIMES: &str = "its host kept no times of this output: read it without `since`";

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("cannot read {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The reader retries, and learns the new start of the output.
    #[error(
        "the oldest output was dropped before it could be read: it begins at {first_kept} now, not at {wanted}"
    )]
    Overtaken { wanted: u64, first_kept: u64 },
}

/// State that transfers need.
pub(crate) struct Logs {
    /// Directory of the attempts' directories.
    attempts_dir: PathBuf,
    live: Arc<WritingAttempts>,
    watcher: Option<FileWatcher>,
    execs: ExecServer,
    inputs: InputServer,
}

impl Logs {
    /// `live` tells which attempts may still write.
    pub(crate) fn new(
        attempts_dir: PathBuf,
        live: Arc<WritingAttempts>,
        watcher: Option<FileWatcher>,
        execs: ExecServer,
    ) -> Self {
        Self {
            attempts_dir,
            live,
            watcher,
            execs,
            inputs: InputServer::default(),
        }
    }

    /// Serves one transfer until the end of its stream. An error only breaks that stream.
    pub(crate) async fn serve(&self, mut reader: FrameReader, writer: FrameWriter) {
        let outcome = match reader.next::<LogRequest>().await {
            Ok(Some(request)) if request.stream == LogStream::Exec => {
                return self.execs.serve(request.attempt, reader, writer).await;
            }
            Ok(Some(request)) if request.stream == LogStream::Input => {
                let dir = self.dir(&request.attempt);
                return self
                    .inputs
                    .serve(request.attempt, &dir, reader, writer)
                    .await;
            }
            Ok(Some(request)) => self.send(request, writer).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = outcome {
            debug!(error = %error_chain(&error), "a transfer of output ended early");
        }
    }

    async fn send(&self, request: LogRequest, mut writer: FrameWriter) -> Result<(), LogError> {
        if request.follow {
            self.live
                .known_within(&request.attempt, AHEAD, || {
                    self.dir(&request.attempt).is_dir()
                })
                .await;
        }
        if !self.live.contains(&request.attempt) && !self.dir(&request.attempt).exists() {
            let message = format!(
                "the output of {} is no longer on its host: output_retention or output_total_max removed it",
                request.attempt
            );
            return refuse(message, writer).await;
        }
        let path = self.path(&request);
        let dir = self.dir(&request.attempt);
        let kept = OutputStart::new(&dir, request.stream);
        let mut offset = request.offset;
        // Reading from the start can be answered before the file exists.
        let early = offset == 0 && !path.exists();
        if early {
            writer.send(&LogReply::From { offset }).await?;
        }
        let file = if request.follow {
            self.opened(&request.attempt, &path).await?
        } else {
            open(&path)?
        };
        let mut times = TimeReader::new(&dir, request.stream);
        if !early {
            let end = length(file.as_deref(), &path)?;
            if let Some(since) = request.since {
                if times.read().is_empty() && end > kept.first() {
                    return refuse(NO_TIMES.to_owned(), writer).await;
                }
                let begin = match times.read().begin(times::since(since)) {
                    Some(begin) => line_start(file.as_ref(), begin.min(end)).await,
                    None => end,
                };
                offset = offset.max(begin);
            }
            offset = offset.max(kept.first()).min(end);
            writer.send(&LogReply::From { offset }).await?;
        }
        let Some(file) = file else {
            // An attempt that could not start has empty output.
            writer.finish();
            return Ok(());
        };
        let watch = self
            .watcher
            .as_ref()
            .and_then(|watcher| watcher.watch(&path).ok());
        let mut sent = OutputCopier {
            file: &file,
            path: &path,
            kept: &kept,
            stamper: request.timestamps.then(|| StampWriter::new(times)),
        };
        loop {
            // Armed before the read, so that a later write wakes the wait.
            let grown = watch.as_ref().map(watch::FileWatch::grown);
            let changed = self.live.changed();
            let live = self.live.contains(&request.attempt);
            offset = sent.copy(offset, &mut writer).await?;
            if !(request.follow && live) {
                writer.finish();
                return Ok(());
            }
            tokio::select! {
                () = wait(grown) => {}
                () = changed => {}
                () = tokio::time::sleep(RECHECK) => {}
                // The reader is gone: the transfer of a silent step must not last as long as the step.
                () = writer.reader_gone() => return Ok(()),
            }
        }
    }

    /// The file, once it exists; `None` if the attempt ended without one.
    async fn opened(
        &self,
        attempt: &AttemptId,
        path: &Path,
    ) -> Result<Option<Arc<File>>, LogError> {
        loop {
            let changed = self.live.changed();
            let live = self.live.contains(attempt);
            let file = open(path)?;
            if file.is_some() || !live {
                return Ok(file);
            }
            tokio::select! {
                () = changed => {}
                // The supervisor makes the file within milliseconds of the order.
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
    }

    fn dir(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string())
    }

    fn path(&self, request: &LogRequest) -> PathBuf {
        self.dir(&request.attempt).join(request.stream.file_name())
    }
}

async fn wait(grown: Option<impl Future<Output = ()>>) {
    match grown {
        Some(grown) => grown.await,
        None => std::future::pending().await,
    }
}

fn open(path: &Path) -> Result<Option<Arc<File>>, LogError> {
    match File::open(path) {
        Ok(file) => Ok(Some(Arc::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LogError::Read {
            path: path.into(),
            source,
        }),
    }
}

/// Current length; 0 if there is no file.
fn length(file: Option<&File>, path: &Path) -> Result<u64, LogError> {
    let Some(file) = file else { return Ok(0) };
    let metadata = file.metadata().map_err(|source| LogError::Read {
        path: path.into(),
        source,
    })?;
    Ok(metadata.len())
}

async fn refuse(message: String, mut writer: FrameWriter) -> Result<(), LogError> {
    writer.send(&LogReply::Refused { message }).await?;
    writer.finish();
    Ok(())
}

/// Start of the line that an offset is in, so that a line that was written in pieces is sent as a whole. Of a very long
/// line, the offset itself.
async fn line_start(file: Option<&Arc<File>>, offset: u64) -> u64 {
    let before = offset.saturating_sub(CHUNK_BYTES as u64);
    let Some(file) = file.filter(|_| offset > 0) else {
        return offset;
    };
    let Ok(mut bytes) = read(file, before).await else {
        return offset;
    };
    bytes.truncate(usize::try_from(offset - before).unwrap_or(CHUNK_BYTES));
    let last = bytes.iter().rposition(|byte| *byte == b'\n');
    match last {
        Some(last) => before + last as u64 + 1,
        None if before == 0 => 0,
        None => offset,
    }
}

/// Output that is being sent.
struct OutputCopier<'a> {
    file: &'a Arc<File>,
    path: &'a Path,
    kept: &'a OutputStart,
    /// Adds times to lines, if they are wanted.
    stamper: Option<StampWriter>,
}

impl OutputCopier<'_> {
    /// Sends everything from `offset` on; returns the end offset.
    async fn copy(&mut self, mut offset: u64, writer: &mut FrameWriter) -> Result<u64, LogError> {
        loop {
            let bytes = read(self.file, offset).await;
            let bytes = bytes.map_err(|source| LogError::Read {
                path: self.path.into(),
                source,
            })?;
            if bytes.is_empty() {
                return Ok(offset);
            }
            self.kept.check(offset)?;
            match &mut self.stamper {
                None => writer.send_bytes(&bytes).await?,
                Some(stamper) => writer.send_bytes(&stamper.stamp(offset, &bytes)).await?,
            }
            offset += bytes.len() as u64;
        }
    }
}

/// A piece of the file from `offset` on; empty at its end and beyond.
async fn read(file: &Arc<File>, offset: u64) -> io::Result<Vec<u8>> {
    // The kernel rejects offsets beyond `i64::MAX`.
    if i64::try_from(offset.saturating_add(CHUNK_BYTES as u64)).is_err() {
        return Ok(Vec::new());
    }
    let file = Arc::clone(file);
    let read = spawn_blocking(move || {
        let mut bytes = vec![0u8; CHUNK_BYTES];
        let count = file.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    });
    read.await
        .unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn beyond_the_end_there_is_nothing_however_far() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"four").unwrap();
        let reading = Arc::new(file.reopen().unwrap());
        for offset in [4, 5, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
            let bytes = read(&reading, offset).await.unwrap();
            assert!(bytes.is_empty(), "{offset}");
        }
        assert_eq!(read(&reading, 2).await.unwrap(), b"ur");
        assert_eq!(length(Some(&reading), file.path()).unwrap(), 4);
        assert_eq!(length(None, file.path()).unwrap(), 0);
    }
}
