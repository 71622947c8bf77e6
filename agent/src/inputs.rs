//! Passes the input of callers to steps: from a stream of the coordinator to the socket of the helper on this host, which
//! counts what it takes. One caller at a time: a new one takes the input over, because the old one's link may have died
//! unnoticed.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sluice_common::attempt_dir::{INPUT_DIR, INPUT_ENDED, INPUT_SOCKET};
use sluice_common::error_chain::error_chain;
use sluice_common::exec::{FrameKind, MAX_FRAME_BYTES, encode_frame};
use sluice_common::id::AttemptId;
use sluice_common::wire::LogReply;
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tracing::debug;

/// Why passing on input failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the socket of its input broke")]
    Socket(#[source] io::Error),
}

/// Serves callers who send input.
#[derive(Default)]
pub(crate) struct InputServer {
    /// The present caller of each attempt. Dropping the sender ends its connection.
    present: Mutex<BTreeMap<AttemptId, (u64, oneshot::Sender<()>)>>,
}

impl InputServer {
    /// Serves one caller, to the end of its stream. `dir` is the attempt's directory.
    pub(crate) async fn serve(
        &self,
        attempt: AttemptId,
        dir: &Path,
        reader: FrameReader,
        writer: FrameWriter,
    ) {
        let (number, superseded) = self.enter(&attempt);
        if let Err(error) = answer(&attempt, dir, superseded, reader, writer).await {
            debug!(error = %error_chain(&error), "the input of a step ended early");
        }
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if present.get(&attempt).is_some_and(|(now, _)| *now == number) {
            present.remove(&attempt);
        }
    }

    /// Makes a caller the present one. The receiver ends when another one comes.
    fn enter(&self, attempt: &AttemptId) -> (u64, oneshot::Receiver<()>) {
        let (sender, superseded) = oneshot::channel();
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let number = present.get(attempt).map_or(0, |(last, _)| last + 1);
        present.insert(attempt.clone(), (number, sender));
        (number, superseded)
    }
}

async fn answer(
    attempt: &AttemptId,
    dir: &Path,
    superseded: oneshot::Receiver<()>,
    reader: FrameReader,
    mut writer: FrameWriter,
) -> Result<(), InputError> {
    let (from_helper, to_helper) = match connect(dir).await {
        Ok(socket) => socket.into_split(),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            writer
                .send(&LogReply::From {
                    offset: INPUT_ENDED,
                })
                .await?;
            return finish(&mut writer).await;
        }
        Err(e) => {
            let message = match e.kind() {
                io::ErrorKind::NotFound => format!(
                    "{attempt} takes no input from callers: only a step that `sluice run` or `stdin: \"-\"` starts does"
                ),
                _ => format!("the input of {attempt} cannot be reached: {e}"),
            };
            writer.send(&LogReply::Refused { message }).await?;
            return finish(&mut writer).await;
        }
    };
    let ended = tokio::select! {
        ended = carry(from_helper, to_helper, reader, &mut writer) => ended,
        _ = superseded => {
            writer.send_bytes(&encode_frame(FrameKind::TakenOver, &[])).await?;
            Ok(())
        }
    };
    ended?;
    finish(&mut writer).await
}

async fn finish(writer: &mut FrameWriter) -> Result<(), InputError> {
    writer.finish();
    Ok(writer.delivered().await?)
}

/// Connects to the socket in a directory of an attempt or of a program beside it.
pub(crate) async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(dir.join(INPUT_DIR))?;
    // The whole path may be too long for the address of a socket.
    let dir = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    UnixStream::connect(dir.join(INPUT_SOCKET)).await
}

/// Carries frames up, and the helper's numbers down, until either side has gone. The first number is the answer.
async fn carry(
    from_helper: OwnedReadHalf,
    to_helper: OwnedWriteHalf,
    reader: FrameReader,
    writer: &mut FrameWriter,
) -> Result<(), InputError> {
    let mut numbers = NumberReader::new(from_helper);
    let offset = numbers.next().await?.unwrap_or(INPUT_ENDED);
    writer.send(&LogReply::From { offset }).await?;
    if offset == INPUT_ENDED {
        return Ok(());
    }
    let up = pass_frames(reader, to_helper);
    tokio::pin!(up);
    let mut is_sending = true;
    loop {
        tokio::select! {
            biased;
            next = numbers.next() => match next? {
                Some(INPUT_ENDED) | None => {
                    let ended = encode_frame(FrameKind::InputEnded, &[]);
                    return Ok(writer.send_bytes(&ended).await?);
                }
                Some(taken) => {
                    let frame = encode_frame(FrameKind::Taken, &taken.to_be_bytes());
                    writer.send_bytes(&frame).await?;
                }
            },
            sent = &mut up, if is_sending => match sent {
                // The helper has closed: what it said last comes first.
                Err(InputError::Socket(_)) => is_sending = false,
                Ok(()) | Err(InputError::Transport(_)) => return sent,
            },
        }
    }
}

/// Writes the caller's frames to the helper until the caller is gone. The helper checks them.
pub(crate) async fn pass_frames(
    mut reader: FrameReader,
    mut helper: OwnedWriteHalf,
) -> Result<(), InputError> {
    while let Some(bytes) = reader.read_bytes(MAX_FRAME_BYTES).await? {
        helper.write_all(&bytes).await.map_err(InputError::Socket)?;
    }
    Ok(())
}

/// Reads numbers of 8 bytes. Cancelled reads lose nothing.
struct NumberReader {
    from: OwnedReadHalf,
    bytes: [u8; 8],
    length: usize,
}

impl NumberReader {
    fn new(from: OwnedReadHalf) -> Self {
        Self {
            from,
            bytes: [0; 8],
            length: 0,
        }
    }

    /// The next number; `None` if the other side has gone.
    async fn next(&mut self) -> Result<Option<u64>, InputError> {
        while self.length < self.bytes.len() {
            let read = self.from.read(&mut self.bytes[self.length..]).await;
            match read.map_err(InputError::Socket)? {
                0 => return Ok(None),
                count => self.length += count,
            }
        }
        self.length = 0;
        Ok(Some(u64::from_be_bytes(self.bytes)))
    }
}
