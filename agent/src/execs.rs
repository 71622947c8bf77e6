//! Programs beside attempts: passes their streams between the coordinator and the supervisor's pipes. If the
//! caller disconnects, the program ends.
//!
//! The pipes are opened for both reading and writing. So opening never blocks, and a stream that the program
//! has not opened yet does not look closed; the supervisor reports the program's end.

mod connections;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_common::attempt_dir::{EXEC_DIR_PREFIX, EXEC_STREAMS};
use sluice_common::error_chain::error_chain;
use sluice_common::exec::{
    ExecId, ExecOrder, ExecProgram, FrameDecoder, FrameError, FrameKind, MAX_FRAME_BYTES,
    encode_frame,
};
use sluice_common::id::AttemptId;
use sluice_common::supervision::Exit;
use sluice_common::wire::LogReply;
use sluice_transport::{FrameReader, FrameWriter, TransportError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use crate::event::{Event, ExecEvent, ExecRefusal, StartedExec};
use crate::inputs::{self, InputError};
use crate::kept::{KeptError, KeptServer};
use crate::logs::WritingAttempts;
use connections::ConnectionCounts;

/// Time between two checks for the pipes, which the supervisor makes within milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Why an exec failed.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the caller sent a frame that cannot be read")]
    Frame(#[from] FrameError),
    #[error("the streams of the program cannot be opened")]
    Streams(#[source] io::Error),
    #[error("what was kept of the step could not be sent")]
    Kept(#[from] KeptError),
    #[error("the caller sent no request, or went away")]
    Nothing,
    #[error("the agent is stopping")]
    Stopping,
}

/// Serves exec streams of the coordinator.
pub(crate) struct ExecServer {
    attempts_dir: PathBuf,
    events: mpsc::Sender<Event>,
    kept: KeptServer,
    connections: ConnectionCounts,
    /// The host's own address, where programs may listen alone.
    address: String,
}

/// This end of a program's three streams.
struct ExecStreams {
    stdin: ExecInput,
    stdout: Receiver,
    stderr: Receiver,
}

/// Way to a program's standard input.
enum ExecInput {
    Pipe(Sender),
    /// To the helper that works its terminal.
    Terminal(UnixStream),
}

impl ExecServer {
    /// For the attempts below `attempts_dir`; `live` tells which may still have processes.
    pub(crate) fn new(
        attempts_dir: PathBuf,
        events: mpsc::Sender<Event>,
        live: Arc<WritingAttempts>,
    ) -> Self {
        Self {
            kept: KeptServer::new(attempts_dir.clone(), live),
            attempts_dir,
            events,
            connections: ConnectionCounts::default(),
            address: String::new(),
        }
    }

    /// Looks for programs that listen at a port at this address of the host too.
    pub(crate) fn with_address(self, address: String) -> Self {
        Self { address, ..self }
    }

    /// Serves one exec, from its command to the end of its stream.
    pub(crate) async fn serve(&self, attempt: AttemptId, reader: FrameReader, writer: FrameWriter) {
        if let Err(error) = self.answer(attempt, reader, writer).await {
            debug!(error = %error_chain(&error), "exec of a program in a step ended early");
        }
    }

    async fn answer(
        &self,
        attempt: AttemptId,
        mut reader: FrameReader,
        mut writer: FrameWriter,
    ) -> Result<(), ExecError> {
        let wanted: Option<ExecOrder> = reader.next().await?;
        let order = wanted.ok_or(ExecError::Nothing)?;
        if let ExecProgram::Connect { port } = &order.program {
            let port = port.clone();
            return self.connect(attempt, &port, order, reader, writer).await;
        }
        let has_terminal = order.terminal().is_some();
        let copies = order.program == ExecProgram::CopyFiles;
        let begun = match self.begin(attempt.clone(), order).await? {
            Ok(begun) => begun,
            Err(ExecRefusal {
                has_ended: true, ..
            }) if copies && self.kept.may_have(&attempt) => {
                return Ok(self.kept.serve(&attempt, reader, writer).await?);
            }
            Err(ExecRefusal { message, .. }) => {
                writer.send(&LogReply::Refused { message }).await?;
                writer.finish();
                return Ok(());
            }
        };
        // Ends the program on every path out of this function.
        let _unwanted = CancelOnDrop {
            exec: begun.exec.clone(),
            events: self.events.clone(),
        };
        writer.send(&LogReply::From { offset: 0 }).await?;
        self.carry(begun, has_terminal, reader, &mut writer).await?;
        writer.finish();
        writer.delivered().await?;
        Ok(())
    }

    /// Runs a program to its end without a caller, and returns its exit and the last bytes of its output; `None` if it
    /// cannot run now. Dropping the future ends the program.
    pub(crate) async fn run(
        &self,
        attempt: AttemptId,
        order: ExecOrder,
        most_bytes: usize,
    ) -> Option<(Exit, Vec<u8>)> {
        let StartedExec { exec, mut end } = self.begin(attempt, order).await.ok()?.ok()?;
        let _unwanted = CancelOnDrop {
            exec: exec.clone(),
            events: self.events.clone(),
        };
        let streams = tokio::select! {
            biased;
            exit = &mut end => return Some((exit.ok()?, Vec::new())),
            streams = self.open(&exec, false) => streams.ok()?,
        };
        let ExecStreams {
            stdin,
            mut stdout,
            mut stderr,
        } = streams;
        // It has no input.
        drop(stdin);
        let mut output = Vec::new();
        let (mut out, mut err) = ([0; 4096], [0; 4096]);
        let exit = loop {
            let bytes = tokio::select! {
                biased;
                exit = &mut end => break exit.ok()?,
                read = stdout.read(&mut out) => &out[..read.ok()?],
                read = stderr.read(&mut err) => &err[..read.ok()?],
            };
            output.extend_from_slice(bytes);
            output.drain(..output.len().saturating_sub(most_bytes));
        };
        for pipe in [&stdout, &stderr] {
            if let Ok(count) = read_now(pipe, &mut out) {
                output.extend_from_slice(&out[..count]);
            }
        }
        output.drain(..output.len().saturating_sub(most_bytes));
        Some((exit, output))
    }

    async fn begin(
        &self,
        attempt: AttemptId,
        order: ExecOrder,
    ) -> Result<Result<StartedExec, ExecRefusal>, ExecError> {
        let (answer, answered) = oneshot::channel();
        let wanted = ExecEvent::Wanted {
            attempt,
            order,
            answer,
        };
        let sent = self.events.send(Event::Exec(wanted)).await;
        sent.map_err(|_| ExecError::Stopping)?;
        answered.await.map_err(|_| ExecError::Stopping)
    }

    async fn carry(
        &self,
        StartedExec { exec, mut end }: StartedExec,
        has_terminal: bool,
        reader: FrameReader,
        writer: &mut FrameWriter,
    ) -> Result<(), ExecError> {
        let streams = tokio::select! {
            // A program that could not start may have no pipes.
            biased;
            exit = &mut end => return say_end(exit.ok(), writer).await,
            streams = self.open(&exec, has_terminal) => streams?,
        };
        let ExecStreams {
            stdin,
            mut stdout,
            mut stderr,
        } = streams;
        let input = async {
            match stdin {
                ExecInput::Pipe(stdin) => feed(reader, stdin).await,
                ExecInput::Terminal(socket) => type_in(reader, socket).await,
            }
        };
        tokio::pin!(input);
        let (mut out, mut err) = (vec![0; MAX_FRAME_BYTES], vec![0; MAX_FRAME_BYTES]);
        let exit = loop {
            tokio::select! {
                read = stdout.read(&mut out) => pass_on(FrameKind::Stdout, read, &out, writer).await?,
                read = stderr.read(&mut err) => pass_on(FrameKind::Stderr, read, &err, writer).await?,
                exit = &mut end => break exit.ok(),
                gone = &mut input => return gone,
                () = writer.reader_gone() => return Ok(()),
            }
        };
        drain(FrameKind::Stdout, &stdout, &mut out, writer).await?;
        drain(FrameKind::Stderr, &stderr, &mut err, writer).await?;
        say_end(exit, writer).await
    }

    /// Opens the pipes once they exist.
    async fn open(&self, exec: &ExecId, has_terminal: bool) -> Result<ExecStreams, ExecError> {
        let name = format!("{EXEC_DIR_PREFIX}{}", exec.number);
        let dir = self.attempts_dir.join(exec.attempt.to_string()).join(name);
        let [stdin, stdout, stderr] = EXEC_STREAMS.map(|stream| dir.join(stream));
        let mut both = OpenOptions::new();
        both.read_write(true);
        let opened = async || -> io::Result<ExecStreams> {
            Ok(ExecStreams {
                stdin: match has_terminal {
                    true => ExecInput::Terminal(inputs::connect(&dir).await?),
                    false => ExecInput::Pipe(both.open_sender(&stdin)?),
                },
                stdout: both.open_receiver(&stdout)?,
                stderr: both.open_receiver(&stderr)?,
            })
        };
        loop {
            match opened().await {
                Ok(streams) => return Ok(streams),
                // The pipe exists but is not this user's yet: the supervisor changes the owner after
                // creation.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound
                            | io::ErrorKind::PermissionDenied
                            // The socket of a terminal exists before it listens.
                            | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(e) => return Err(ExecError::Streams(e)),
            }
        }
    }
}

/// Reports on drop that the program is not wanted any more, however its caller disconnected.
struct CancelOnDrop {
    exec: ExecId,
    events: mpsc::Sender<Event>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let event = Event::Exec(ExecEvent::Unwanted(self.exec.clone()));
        let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event) else {
            return;
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let _nobody_is_left_to_hear_it = events.send(event).await;
        });
    }
}

/// Writes the caller's input to the program until the caller is gone.
async fn feed(mut reader: FrameReader, stdin: Sender) -> Result<(), ExecError> {
    let mut stdin = Some(stdin);
    let mut frames = FrameDecoder::default();
    while let Some(bytes) = reader.read_bytes(MAX_FRAME_BYTES).await? {
        frames.push(&bytes);
        while let Some((kind, bytes)) = frames.next_frame()? {
            let Some(pipe) = stdin.as_mut().filter(|_| kind == FrameKind::Stdin) else {
                continue;
            };
            if bytes.is_empty() || pipe.write_all(&bytes).await.is_err() {
                stdin = None;
            }
        }
    }
    Ok(())
}

/// Passes what the caller types to the helper that works the terminal, until the caller is gone.
async fn type_in(reader: FrameReader, socket: UnixStream) -> Result<(), ExecError> {
    let (mut numbers, helper) = socket.into_split();
    let carry = async {
        // The numbers of bytes taken: what a lost connection of `exec` held is not sent again.
        let _until_the_program_ends = tokio::io::copy(&mut numbers, &mut tokio::io::sink()).await;
        std::future::pending().await
    };
    tokio::select! {
        passed = inputs::pass_frames(reader, helper) => match passed {
            Err(InputError::Transport(error)) => Err(error.into()),
            // The program has ended, and its exit is on the way.
            Err(InputError::Socket(_)) => std::future::pending().await,
            Ok(()) => Ok(()),
        },
        never = carry => never,
    }
}

async fn pass_on(
    kind: FrameKind,
    read: io::Result<usize>,
    bytes: &[u8],
    writer: &mut FrameWriter,
) -> Result<(), ExecError> {
    let count = read.map_err(ExecError::Streams)?;
    writer
        .send_bytes(&encode_frame(kind, &bytes[..count]))
        .await?;
    Ok(())
}

/// Sends what is in a pipe when the program has ended. Processes that it left may write more, which is not
/// waited for.
async fn drain(
    kind: FrameKind,
    pipe: &Receiver,
    bytes: &mut [u8],
    writer: &mut FrameWriter,
) -> Result<(), ExecError> {
    // At most the capacity of a pipe, because another process may fill it continuously.
    let mut left = PIPE_BYTES;
    while left > 0 {
        let Ok(count @ 1..) = read_now(pipe, bytes) else {
            return Ok(());
        };
        pass_on(kind, Ok(count), bytes, writer).await?;
        left = left.saturating_sub(count);
    }
    Ok(())
}

/// Reads what is in a pipe at this moment. `try_read` would find nothing if the runtime has not heard of it yet.
fn read_now(pipe: &Receiver, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(nix::unistd::read(pipe, bytes)?)
}

/// Capacity of a pipe unless root raised it: see pipe(7).
const PIPE_BYTES: usize = 1024 * 1024;

/// `None` if the supervisor was lost, which kills the program.
async fn say_end(exit: Option<Exit>, writer: &mut FrameWriter) -> Result<(), ExecError> {
    let lost =
        || Exit::HostFailed("the host's supervisor was lost, and the program with it".into());
    let exit = exit.unwrap_or_else(lost);
    let json = serde_json::to_vec(&exit).unwrap_or_default();
    writer
        .send_bytes(&encode_frame(FrameKind::Exit, &json))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::io::Write;

    #[tokio::test]
    async fn what_is_in_a_pipe_is_read_before_the_runtime_has_heard_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let pipe = OpenOptions::new()
            .read_write(true)
            .open_receiver(&path)
            .unwrap();
        let mut program = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        program.write_all(b"HELLO").unwrap();
        let mut bytes = [0; 16];
        // Nothing was awaited since.
        let count = read_now(&pipe, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"HELLO");
        let empty = read_now(&pipe, &mut bytes).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
