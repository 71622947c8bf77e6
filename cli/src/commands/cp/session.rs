//! Connections of one copy: all to the same attempt, made again while the copy makes progress.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use sluice_common::exec::{FrameKind, MAX_FRAME_BYTES};
use sluice_common::supervision::Exit;
use sluice_common::websocket::ServerMessage;
use sluice_copy::CopyId;

use crate::args::step_id;
use crate::client::{
    self, ApiError, Backoff, Client, ExecConnection, MessageReader, MessageWriter, StreamMessage,
};
use crate::failure::Failure;
use crate::render;
use crate::request_builder::fill_random;

/// Time without progress after which a copy gives up: a restart of a daemon takes seconds, one of a host minutes.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);

/// Time in which a step that ran may be found not to run, while its host's daemons restart.
const ABSENCE_LIMIT: Duration = Duration::from_secs(5);

/// Connections of a copy, one after the other.
pub(super) struct CopySession<'a> {
    client: &'a Client,
    id: String,
    rank: u32,
    attempt: u32,
    /// Id of the copy.
    pub(super) transfer: CopyId,
    /// Time since which the copy makes no progress; `None` before the first connection.
    idle_since: Option<Instant>,
    backoff: Backoff,
}

impl<'a> CopySession<'a> {
    /// Finds the step and its attempt.
    pub(super) fn open(client: &'a Client, step: &str, rank: u32) -> Result<Self, Failure> {
        let step = step_id(step).map_err(Failure::Usage)?;
        let view = client.step_called(&step)?;
        let mut bytes = [0; 8];
        fill_random(&mut bytes)?;
        Ok(Self {
            client,
            id: view.id,
            rank,
            attempt: view.attempt,
            transfer: CopyId(u64::from_le_bytes(bytes)),
            idle_since: None,
            backoff: Backoff::for_calls(),
        })
    }

    /// Connects to the helper, for as long as a broken copy may wait.
    pub(super) fn connect(&mut self) -> Result<ExecConnection, Failure> {
        loop {
            match self.client.copy_files(&self.id, self.rank, self.attempt) {
                Ok(connection) => {
                    self.idle_since.get_or_insert_with(Instant::now);
                    return Ok(connection);
                }
                Err(error) if self.may_pass(&error) => thread::sleep(self.backoff.next()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Notes that bytes have arrived.
    pub(super) fn on_progress(&mut self) {
        self.idle_since = Some(Instant::now());
        self.backoff.reset();
    }

    /// Waits after a broken connection; fails if the copy has made no progress for too long.
    pub(super) fn on_lost(&mut self, why: &str) -> Result<(), Failure> {
        if self.idle_for() >= OUTAGE_LIMIT {
            let limit = OUTAGE_LIMIT.as_secs();
            return Err(Failure::Failed(format!(
                "the copy made no progress for {limit} s: {}",
                render::safe(why)
            )));
        }
        thread::sleep(self.backoff.next());
        Ok(())
    }

    fn idle_for(&self) -> Duration {
        self.idle_since
            .map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether a refused connection may work a moment later. The first one is not repeated.
    fn may_pass(&self, error: &ApiError) -> bool {
        let has_begun = self.idle_since.is_some();
        let limit = match error {
            error if error.is_passing() => OUTAGE_LIMIT,
            error if error.code() == Some("not_running") => ABSENCE_LIMIT,
            _ => return false,
        };
        has_begun && self.idle_for() < limit
    }
}

/// Output of the helper, as bytes.
pub(super) struct HelperOutput {
    reader: MessageReader,
    /// Bytes that were received, and how many of them were read.
    received: (Vec<u8>, usize),
    /// Reason for which no new connection helps.
    refused: Option<Failure>,
}

impl HelperOutput {
    pub(super) fn new(reader: MessageReader) -> Self {
        Self {
            reader,
            received: (Vec::new(), 0),
            refused: None,
        }
    }

    /// Closes the connection for both ends, and returns the reason for which no new connection helps.
    pub(super) fn close(self) -> Option<Failure> {
        self.reader.close();
        self.refused
    }

    fn receive(&mut self) -> io::Result<()> {
        let ended = |why: String| Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        match self.reader.next()? {
            StreamMessage::Data(FrameKind::Stdout, data) => self.received = (data, 0),
            StreamMessage::Data(..) => {}
            StreamMessage::Control(ServerMessage::Exit(exit)) => {
                self.refused = refusal(&exit);
                return ended("the helper on the step's host was killed".to_owned());
            }
            StreamMessage::Control(ServerMessage::Error(error)) => {
                self.refused = Some(client::failed(error).into());
                return ended("the coordinator ended the call".to_owned());
            }
            StreamMessage::Control(_) => {}
            StreamMessage::Closed(reason) => {
                return ended(format!(
                    "the connection was closed: {}",
                    render::safe(&reason)
                ));
            }
        }
        Ok(())
    }
}

impl Read for HelperOutput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.received.1 == self.received.0.len() {
            self.receive()?;
        }
        let (received, at) = &mut self.received;
        let count = bytes.len().min(received.len() - *at);
        bytes[..count].copy_from_slice(&received[*at..*at + count]);
        *at += count;
        Ok(count)
    }
}

/// Why another connection would end in the same way; `None` for a helper that was killed, as with its step or its host's
/// daemons.
fn refusal(exit: &Exit) -> Option<Failure> {
    match exit {
        Exit::StartFailed(why) | Exit::PrologFailed(why) | Exit::NotBegun(why) => {
            Some(Failure::Failed(render::safe(why)))
        }
        Exit::Code(code) => Some(Failure::Failed(format!(
            "sluice-helper on the step's host ended with code {code} before the copy was complete"
        ))),
        Exit::Signal(_)
        | Exit::HostFailed(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::Unknown
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_) => None,
    }
}

/// Input of the helper, as bytes.
pub(super) struct HelperInput(pub(super) MessageWriter);

impl Write for HelperInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MAX_FRAME_BYTES);
        self.0.send_input(&bytes[..count])?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
