//! Serves files that were kept of attempts which have ended: speaks the protocol of `sluice-copy` with the caller in place of
//! a helper beside the step. The file was written by the step's user, so nothing in it is trusted.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use sluice_common::attempt_dir::KEPT_FILE;
use sluice_common::exec::{
    FrameDecoder, FrameError, FrameKind, MAX_EXECS_PER_ATTEMPT, MAX_FRAME_BYTES, encode_frame,
};
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use sluice_common::wire::LogReply;
use sluice_copy::{
    CopyError, CopyFailure, CopyReader, CopyReport, CopyRequest, CopyWriter, TreeItem, send_stored,
};
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

use crate::logs::WritingAttempts;

/// Most bytes of a request: a message with a path and a position.
const MAX_REQUEST_BYTES: usize = 2 * MAX_FRAME_BYTES;

/// Frames between the thread that reads the file and the link.
const QUEUED_FRAMES: usize = 4;

/// Why the files could not be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the caller sent a frame that cannot be read")]
    Frame(#[from] FrameError),
    #[error("the caller sent no request that can be read")]
    Request,
}

/// Sends what was kept of attempts.
pub(crate) struct KeptServer {
    /// Directory of the attempts' directories.
    attempts_dir: PathBuf,
    live: Arc<WritingAttempts>,
    /// Bounds the number of threads that read files.
    readers: Semaphore,
}

impl KeptServer {
    /// `live` tells which attempts may still have processes.
    pub(crate) fn new(attempts_dir: PathBuf, live: Arc<WritingAttempts>) -> Self {
        Self {
            attempts_dir,
            live,
            readers: Semaphore::new(MAX_EXECS_PER_ATTEMPT),
        }
    }

    /// Whether files of an attempt that has ended are kept, or may be soon.
    pub(crate) fn may_have(&self, attempt: &AttemptId) -> bool {
        self.live.contains(attempt) || self.path(attempt).exists()
    }

    /// Serves one call of an attempt that has ended, once its files are kept.
    pub(crate) async fn serve(
        &self,
        attempt: &AttemptId,
        mut reader: FrameReader,
        mut writer: FrameWriter,
    ) -> Result<(), KeptError> {
        writer.send(&LogReply::From { offset: 0 }).await?;
        let request = read_request(&mut reader).await?;
        tokio::select! {
            () = self.complete(attempt) => {}
            () = writer.reader_gone() => return Ok(()),
        }
        // The semaphore is never closed.
        let _permit = self.readers.acquire().await;
        let path = self.path(attempt);
        let (frames, mut sent) = mpsc::channel(QUEUED_FRAMES);
        let answering = spawn_blocking(move || answer(request, &path, FrameSink(frames)));
        while let Some(bytes) = sent.recv().await {
            writer
                .send_bytes(&encode_frame(FrameKind::Stdout, &bytes))
                .await?;
        }
        // What failed was told to the caller.
        let _told = answering.await;
        let exit = serde_json::to_vec(&Exit::Code(0)).unwrap_or_default();
        writer
            .send_bytes(&encode_frame(FrameKind::Exit, &exit))
            .await?;
        writer.finish();
        writer.delivered().await?;
        Ok(())
    }

    /// Waits until the files are kept, or no process is left that could keep them.
    async fn complete(&self, attempt: &AttemptId) {
        loop {
            let changed = self.live.changed();
            if self.path(attempt).exists() || !self.live.contains(attempt) {
                return;
            }
            changed.await;
        }
    }

    fn path(&self, attempt: &AttemptId) -> PathBuf {
        self.attempts_dir.join(attempt.to_string()).join(KEPT_FILE)
    }
}

/// Reads the first message of the caller.
async fn read_request(reader: &mut FrameReader) -> Result<CopyRequest, KeptError> {
    let mut frames = FrameDecoder::default();
    let mut message = Vec::new();
    while let Some(bytes) = reader.read_bytes(MAX_FRAME_BYTES).await? {
        frames.push(&bytes);
        while let Some((kind, payload)) = frames.next_frame()? {
            if kind == FrameKind::Stdin {
                message.extend(payload);
            }
        }
        match CopyReader::new(&message[..]).message() {
            Ok(request) => return Ok(request),
            Err(CopyError::Lost(_)) if message.len() < MAX_REQUEST_BYTES => {}
            Err(_) => return Err(KeptError::Request),
        }
    }
    Err(KeptError::Request)
}

/// Passes bytes on to the link, and waits until there is room.
struct FrameSink(mpsc::Sender<Vec<u8>>);

impl Write for FrameSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MAX_FRAME_BYTES);
        let sent = self.0.blocking_send(bytes[..count].to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers a request; the caller is told why it fails.
fn answer(request: CopyRequest, path: &Path, sink: FrameSink) -> Result<(), CopyError> {
    let mut out = CopyWriter::new(BufWriter::with_capacity(MAX_FRAME_BYTES, sink));
    let (wanted, after) = match request {
        CopyRequest::Read { path, after } => (path, after),
        CopyRequest::Write { .. } => {
            let why = "the step has ended, so nothing can be copied to it";
            let failure = CopyFailure::Failed(why.to_owned());
            out.message(&CopyReport::Failed(failure))?;
            return out.flush();
        }
    };
    // Without blocking: whoever may write there could have put a pipe.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match open(path, flags, Mode::empty()).map(File::from) {
        Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => file,
        Ok(_) | Err(_) => {
            let why = "the step has ended, and no files of it were kept: `sluice logs STEP --stderr` may say why";
            let failure = CopyFailure::Failed(why.to_owned());
            out.message(&TreeItem::Failed(failure))?;
            return out.flush();
        }
    };
    let mut stored = CopyReader::new(BufReader::with_capacity(MAX_FRAME_BYTES, file));
    send_stored(&mut stored, &wanted, after.as_ref(), &mut out)
}
