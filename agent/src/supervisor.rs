//! The connection to the supervisor on this host. The agent reconnects after every failure, and the
//! supervisor then lists every attempt, so nothing is missed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::Input;
use serde::Serialize;
use sluice_codec::{CodecError, FrameBuffer, frame};
use sluice_common::error_chain::error_chain;
use sluice_common::supervision::{
    FromSupervisor, MAX_SUPERVISION_FRAME_BYTES, PROBE_NAME, SUPERVISION_VERSION, ToSupervisor,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixSocket, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use crate::clock;
use crate::engine::OUTBOX;
use crate::event::{Event, ExecEvent, UsageEvent};
use crate::log_dedup::LogDedup;
use crate::usage::UsageMeter;

/// Time between two attempts to connect. Constant, because the supervisor is on this host and starts in
/// milliseconds.
const RETRY: Duration = Duration::from_millis(100);
/// Time between two measurements of what attempts use.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);

/// Longest silence of a supervisor before it is asked for a sign of life.
const ASK_AFTER: Duration = Duration::from_secs(2);
/// Most unanswered questions. A loop that does not answer for so long is stopped or stuck: its slowest
/// action, a write to a busy disk, takes a fraction of that.
const MAX_UNANSWERED: u32 = 5;
/// Time limit of a supervisor's hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Time limit of a probe.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// Why a connection ended or could not be made.
#[derive(Debug, thiserror::Error)]
enum SupervisorError {
    #[error("cannot reach the supervisor at {path}", path = path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the connection to the supervisor broke")]
    Io(#[from] io::Error),
    #[error("the supervisor sent a message that cannot be read")]
    Codec(#[from] CodecError),
    #[error(
        "the supervisor speaks version {theirs} of its protocol and this agent {SUPERVISION_VERSION}: install both from one release"
    )]
    Version { theirs: u32 },
    #[error("the supervisor did not say hello")]
    NoHello,
    #[error("the supervisor closed the connection")]
    Closed,
    #[error(
        "the supervisor accepts connections but does not answer: its process is stopped or stuck"
    )]
    Silent,
}

/// Keeps a connection until the engine is gone.
pub(crate) async fn run(socket: PathBuf, events: mpsc::Sender<Event>) {
    let mut told = LogDedup::default();
    while !events.is_closed() {
        let mut found = false;
        let Err(error) = connect_and_serve(&socket, &events, &mut found).await else {
            return;
        };
        let why = error_chain(&error);
        let is_news = tell(found, &why, &mut told);
        if is_news && !say_away(&why, &events).await {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reports the absence to the engine; returns false if the engine is gone.
async fn say_away(why: &str, events: &mpsc::Sender<Event>) -> bool {
    let why = format!("{why}; `sluice doctor` on the host says what to do");
    let down = Input::SupervisorDown { why };
    events.send(Event::Core(down)).await.is_ok()
}

/// Logs the loss once, and each new cause of failed attempts once. Returns whether it logged.
fn tell(was_found: bool, why: &str, told: &mut LogDedup) -> bool {
    if was_found {
        told.reached();
        warn!("supervisor lost: {why}");
        return true;
    }
    let is_new = told.is_new(why);
    if is_new {
        warn!("no supervisor: {why}");
    }
    is_new
}

/// Result of a probe of the supervisor.
#[derive(Debug, Serialize)]
pub(crate) struct ProbeResult {
    /// Path of the socket.
    socket: PathBuf,
    /// `answers`, or the kind of failure.
    state: &'static str,
    /// The failure for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Probes the supervisor at `socket`, without replacing the connected agent.
pub(crate) async fn probe(socket: &Path) -> ProbeResult {
    let asked = timeout(PROBE_WITHIN, ask_once(socket)).await;
    let error = asked.unwrap_or(Err(SupervisorError::Silent)).err();
    ProbeResult {
        socket: socket.to_owned(),
        state: error.as_ref().map_or("answers", state_word),
        why: error.map(|error| error_chain(&error)),
    }
}

async fn ask_once(socket: &Path) -> Result<(), SupervisorError> {
    let connecting = |source| SupervisorError::Connect {
        path: socket.to_owned(),
        source,
    };
    let caller = UnixSocket::new_stream().map_err(connecting)?;
    // An abstract address begins with a zero byte.
    let name = format!("\0{PROBE_NAME}-{}", std::process::id());
    caller.bind(name).map_err(connecting)?;
    let stream = caller.connect(socket).await.map_err(connecting)?;
    let (reading, _writing) = stream.into_split();
    let mut reader = MessageReader {
        stream: reading,
        buffer: FrameBuffer::new(MAX_SUPERVISION_FRAME_BYTES),
    };
    match reader.next().await? {
        FromSupervisor::Hello { version, .. } if version != SUPERVISION_VERSION => {
            Err(SupervisorError::Version { theirs: version })
        }
        FromSupervisor::Hello { .. } => Ok(()),
        FromSupervisor::Attempt(_)
        | FromSupervisor::Pong
        | FromSupervisor::Health(_)
        | FromSupervisor::Challenge(_)
        | FromSupervisor::Carved(..)
        | FromSupervisor::Usages(_)
        | FromSupervisor::ExecEnded { .. } => Err(SupervisorError::NoHello),
    }
}

fn state_word(error: &SupervisorError) -> &'static str {
    match error {
        SupervisorError::Connect { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => "missing",
            io::ErrorKind::ConnectionRefused => "refused",
            io::ErrorKind::PermissionDenied => "not_permitted",
            _ => "unreachable",
        },
        // The supervisor closes the connection of a user that is not allowed.
        SupervisorError::Closed | SupervisorError::Io(_) => "not_permitted",
        SupervisorError::Version { .. } | SupervisorError::Codec(_) => "other_version",
        SupervisorError::NoHello | SupervisorError::Silent => "silent",
    }
}

/// Runs one connection; `found` turns true once the supervisor has answered. Returns `Ok` if the engine is
/// gone.
async fn connect_and_serve(
    socket: &Path,
    events: &mpsc::Sender<Event>,
    found: &mut bool,
) -> Result<(), SupervisorError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| SupervisorError::Connect {
            path: socket.into(),
            source,
        })?;
    let (reading, writing) = stream.into_split();
    let mut reader = MessageReader {
        stream: reading,
        buffer: FrameBuffer::new(MAX_SUPERVISION_FRAME_BYTES),
    };
    let (outbox, orders) = mpsc::channel(OUTBOX);
    let hello = timeout(HELLO_WITHIN, reader.next()).await;
    let up = first_words(hello.map_err(|_| SupervisorError::Silent)??, outbox)?;
    if events.send(up).await.is_err() {
        return Ok(());
    }
    info!(socket = %socket.display(), "supervisor found");
    *found = true;
    // A question that does not fit into the queue counts as not asked.
    let (ask, asked) = mpsc::channel(1);
    tokio::select! {
        ended = read(reader, events, ask) => ended,
        ended = write(writing, orders, asked) => ended,
    }
}

fn first_words(
    hello: FromSupervisor,
    outbox: mpsc::Sender<ToSupervisor>,
) -> Result<Event, SupervisorError> {
    match hello {
        FromSupervisor::Hello {
            version,
            boot_id,
            attempts,
            capabilities,
            carves_gpus,
        } if version == SUPERVISION_VERSION => Ok(Event::SupervisorUp {
            boot_id,
            attempts,
            capabilities,
            carves_gpus,
            outbox,
        }),
        FromSupervisor::Hello { version, .. } => Err(SupervisorError::Version { theirs: version }),
        FromSupervisor::Attempt(_)
        | FromSupervisor::Pong
        | FromSupervisor::Health(_)
        | FromSupervisor::Challenge(_)
        | FromSupervisor::Carved(..)
        | FromSupervisor::Usages(_)
        | FromSupervisor::ExecEnded { .. } => Err(SupervisorError::NoHello),
    }
}

/// Asks a silent supervisor for a sign of life. Counts questions and not seconds, so that an agent that was
/// stopped itself asks first.
async fn read(
    mut reader: MessageReader,
    events: &mpsc::Sender<Event>,
    ask: mpsc::Sender<()>,
) -> Result<(), SupervisorError> {
    let mut unanswered = 0;
    let mut meter = UsageMeter::default();
    loop {
        let Ok(message) = timeout(ASK_AFTER, reader.next()).await else {
            if unanswered >= MAX_UNANSWERED {
                return Err(SupervisorError::Silent);
            }
            unanswered += 1;
            let _one_is_under_way = ask.try_send(());
            continue;
        };
        unanswered = 0;
        let event = match message? {
            FromSupervisor::Pong => continue,
            FromSupervisor::Attempt(view) => Event::Core(Input::Attempt(view)),
            FromSupervisor::Health(health) => Event::Health(health),
            FromSupervisor::Challenge(challenge) => Event::Challenge(challenge),
            FromSupervisor::Carved(gpu, layout, failure) => Event::Core(Input::Carved {
                gpu,
                layout,
                failure,
            }),
            FromSupervisor::ExecEnded { exec, exit } => {
                Event::Exec(ExecEvent::Ended { exec, exit })
            }
            FromSupervisor::Usages(found) => {
                Event::Usage(UsageEvent::Measured(meter.read(found, clock::boot())))
            }
            // Only `List` asks for a second hello, and this agent never sends it.
            FromSupervisor::Hello { .. } => return Err(SupervisorError::NoHello),
        };
        if events.send(event).await.is_err() {
            return Ok(());
        }
    }
}

/// Returns an error when the engine drops its sender, so that the agent reconnects.
async fn write(
    mut stream: OwnedWriteHalf,
    mut orders: mpsc::Receiver<ToSupervisor>,
    mut asked: mpsc::Receiver<()>,
) -> Result<(), SupervisorError> {
    let mut measures = interval(MEASURE_INTERVAL);
    measures.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let order = tokio::select! {
            order = orders.recv() => order.ok_or(SupervisorError::Closed)?,
            Some(()) = asked.recv() => ToSupervisor::Ping,
            _ = measures.tick() => ToSupervisor::Measure,
        };
        stream
            .write_all(&frame(&order, MAX_SUPERVISION_FRAME_BYTES)?)
            .await?;
    }
}

struct MessageReader {
    stream: OwnedReadHalf,
    buffer: FrameBuffer,
}

impl MessageReader {
    async fn next(&mut self) -> Result<FromSupervisor, SupervisorError> {
        let mut bytes = [0u8; 16 * 1024];
        loop {
            if let Some(message) = self.buffer.next()? {
                return Ok(message);
            }
            match self.stream.read(&mut bytes).await? {
                0 => return Err(SupervisorError::Closed),
                count => self.buffer.push(&bytes[..count]),
            }
        }
    }
}
