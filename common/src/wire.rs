//! The whole protocol between coordinator and agent.
//!
//! The agent dials, and opens two streams: *control* and *heartbeat*. On control it says [`Hello`] first and is
//! answered by [`HelloReply`]; from then on each side sends [`FromNode`] and [`Command`]. On heartbeat it sends
//! [`Heartbeat`]s, each acknowledged at once by [`HeartbeatAck`]. For each transfer of output the coordinator opens a
//! stream, sends a [`LogRequest`] and is answered by a [`LogReply`] followed by plain bytes until the stream ends. A
//! program that runs beside a step is asked for in the same way.
//!
//! Attempts are reported as *statuses*, not as events: where the attempt stands now. A repeat is harmless and a status
//! implies all that came before it, so nothing is numbered and nothing can be missed. The host keeps an attempt until
//! the coordinator says [`ToNode::Forget`], which it does once `Released` is durable.
//!
//! The encoding cannot skip, flatten or tag: fields of these types carry no serde attributes of that kind.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::amount::Amounts;
use crate::environment::Environment;
use crate::epoch::SealedEpoch;
use crate::gpu_state::GpuStates;
use crate::host_health::{HostHealth, SupervisorState};
use crate::id::{AttemptId, BootId, Epoch, NodeName, PoolName, Subject};
use crate::inventory::{Inventory, Readings};
use crate::lease::{Challenge, SealedLease};
use crate::processors::CpuMode;
use crate::submitter::Submitter;
use crate::supervision::{BootMillis, Exit};
use crate::template::launch::Launch;
use crate::time::{Span, Time};
use crate::usage::Usage;
use crate::warrant::SealedWarrant;

/// The protocol version that this build speaks. Until the first tagged release other versions are refused.
pub const PROTOCOL_VERSION: u32 = 1;

/// ALPN name of the protocol.
pub const ALPN: &[u8] = b"sluice/1";

/// What a stream that the agent opens is for; its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamKind {
    /// Commands and statuses; one for each connection.
    Control,
    /// Heartbeats; one for each connection.
    Heartbeat,
    /// Which authorities are trusted, and the node's next certificate ([`crate::join`]); one for each connection.
    Certificates,
}

/// The agent's first words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the agent.
    pub protocol: u32,
    /// The agent's build, for people.
    pub version: String,
    /// Must be the name in the agent's certificate.
    pub node: NodeName,
    /// The pool that its config joins.
    pub pool: PoolName,
    /// From its config.
    pub labels: BTreeMap<String, String>,
    /// Where the other hosts of a gang reach this one: a host name or an address, from its config.
    pub address: String,
    /// The boot that the attempts below belong to.
    pub boot_id: BootId,
    /// Tells the agent's state directory from a copy of it on the same machine: opaque, the same as long as it is the same
    /// directory.
    pub state_dir: String,
    /// The highest epoch that the host has obeyed, with the seal that came with it. A coordinator goes above it only if the
    /// seal is its cluster's.
    pub highest_epoch: Option<SealedEpoch>,
    /// What the host has.
    pub inventory: Inventory,
    /// Every attempt that the host knows and was not told to forget. While the supervisor is
    /// [`SupervisorState::NeverSeen`] the host knows none, and none counts as missing.
    pub attempts: Vec<AttemptStatus>,
    /// Which GPUs are not to be granted.
    pub gpu_states: GpuStates,
    /// When the host says this, by its own clock.
    pub sent_at: BootMillis,
    /// Whether the supervisor answers.
    pub supervisor: SupervisorState,
    /// What its supervisor wants to see signed; `None` if the agent has no challenge at hand.
    pub challenge: Option<Challenge>,
}

/// The answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// The node is in.
    Welcome(Welcome),
    /// The node is not let in; the agent logs the sentence and tries again later.
    Refused {
        /// Why, and what would help.
        message: String,
    },
}

/// Terms of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The coordinator that speaks. The host keeps the highest epoch that it has seen, with its seal, and refuses lower ones.
    pub epoch: SealedEpoch,
    /// How long attempts run on after the last heartbeat that was acknowledged, counted from its sending.
    pub lease: Span,
    /// How long stopping an attempt whose lease has passed may take.
    pub stop_limit: Span,
    /// Between two heartbeats.
    pub heartbeat: Span,
    /// How long an order to start or resume an attempt is valid, counted from [`Command::heard`].
    pub order_limit: Span,
    /// The first lease, for the hello's challenge. Whoever holds the cluster's key signs it; the core leaves it out.
    pub seal: Option<Box<SealedLease>>,
}

/// From the agent, after [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNode {
    /// Where an attempt stands now.
    Status(AttemptStatus),
    /// The host has changed.
    Inventory(Box<Inventory>),
    /// How the host does. Whoever drives the core keeps the last and gives it to those who ask.
    Readings(Readings),
    /// Which GPUs are not to be granted. Said before a status that returns units of one of them.
    GpuStates(Box<GpuStates>),
    /// An attempt has saved its work. Said again from time to time, so that nothing hangs on one message.
    Checkpoint {
        /// Which.
        attempt: AttemptId,
        /// How long ago: the host's clock need not be right.
        ago: Span,
    },
    /// How the host is by its own check. Said on each new link, and when it has changed.
    Health(HostHealth),
    /// The answer to [`ToNode::ShowWarrant`].
    Warrant {
        /// Whose.
        attempt: AttemptId,
        /// What came with its assignment; `None` where the host has not kept it.
        warrant: Option<SealedWarrant>,
    },
    /// The labels of its config are others than [`Hello`] said: all of them.
    Labels(BTreeMap<String, String>),
    /// Whether the supervisor answers is not as [`Hello`] said. A supervisor that is heard for the first time is told by a new
    /// link and its hello, which lists the attempts.
    Supervisor(SupervisorState),
}

/// To the agent: an order, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The coordinator that speaks: the epoch of its welcome on this connection, and no other.
    pub epoch: Epoch,
    /// The order's number on this link, starting at 1. The host drops the link if one is missing or comes twice.
    pub number: u64,
    /// The `said_at` of the newest heartbeat or hello of this link that the coordinator had heard. An order to start or
    /// resume an attempt is obeyed within [`Welcome::order_limit`] of it, by the host's clock, and not later: the
    /// coordinator may have given the host up since, and started the step elsewhere.
    pub last_heard: BootMillis,
    /// The order.
    pub order: ToNode,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// Run an attempt. A repeat is harmless.
    Assign(Box<Assignment>),
    /// Stop an attempt. A repeat with a shorter grace shortens it; an attempt that the host does not know is reported
    /// `Released`.
    Stop {
        /// Which.
        attempt: AttemptId,
        /// Why, for the notice.
        why: StopReason,
        /// Between the signal and the kill.
        grace: Span,
    },
    /// The attempt's end is recorded; the host need not remember it. Its output stays.
    Forget {
        /// Which.
        attempt: AttemptId,
    },
    /// Freeze an attempt, and empty its GPUs first. A repeat is harmless. What cannot be frozen is left running and
    /// reported [`AttemptPhase::NotSuspended`].
    Suspend {
        /// Which.
        attempt: AttemptId,
        /// How much of the host's memory may be taken for what is moved from its GPUs, in units of 10^6 bytes.
        room_mb: u64,
    },
    /// Let a frozen attempt run again. A repeat is harmless, and so is one for an attempt that runs.
    Resume {
        /// Which.
        attempt: AttemptId,
    },
    /// An admin wants GPUs back that were quarantined: they are looked at, and of each that answers what was noted of its
    /// health is forgotten. A repeat is harmless.
    RestoreGpus {
        /// Their UUIDs.
        gpus: Vec<String>,
    },
    /// Show the warrant of an attempt that the coordinator does not know: it was brought back from an earlier time.
    ShowWarrant {
        /// Whose.
        attempt: AttemptId,
    },
}

/// One attempt to run on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Which.
    pub attempt: AttemptId,
    /// The pool that granted it.
    pub pool: PoolName,
    /// Program and arguments, not empty.
    pub command: Vec<String>,
    /// The step's own variables.
    pub env: Environment,
    /// Absolute path; `None` is a directory of the attempt's own.
    pub workdir: Option<String>,
    /// UUIDs of the GPUs that it is given.
    pub gpus: Vec<String>,
    /// How long it may run; the host stops it then.
    pub timeout: Option<Span>,
    /// Between the signal and the kill when it times out.
    pub grace: Span,
    /// Its place among the hosts that run the step together; also where there is but one.
    pub gang: Gang,
    /// On whose behalf: the host's own rules say which user that is there.
    pub subject: Subject,
    /// The user who submitted the step, if the coordinator had authenticated one: the host's own rules say whether it runs as
    /// its user of that name.
    pub submitter: Option<Submitter>,
    /// What it was granted on this host, which is what it may use.
    pub resources: Amounts,
    /// How it has the processors among them.
    pub cpu_mode: CpuMode,
    /// What templates put around it.
    pub launch: Launch,
    /// By what the coordinator knows the attempt again when it was brought back from a time before it: the host keeps it
    /// as it is, reads nothing in it, and shows it when it is asked. At most [`MAX_WARRANT_BYTES`]; empty where there is
    /// none.
    ///
    /// [`MAX_WARRANT_BYTES`]: crate::limit::MAX_WARRANT_BYTES
    pub warrant: SealedWarrant,
}

/// The place of one host among those that run an attempt together, each its part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Its place, counted from 0.
    pub rank: u32,
    /// Where each is reached, by rank; as many as there are hosts.
    pub hosts: Vec<String>,
    /// A port on the host of rank 0 that no other gang there was given, to meet at; `None` where there is one host.
    pub port: Option<u16>,
}

impl Gang {
    /// One host, reached at `address`, that runs all of it.
    pub fn single(address: &str) -> Self {
        Self {
            rank: 0,
            hosts: alloc::vec![String::from(address)],
            port: None,
        }
    }
}

/// Why an attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "StopWhy"))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody cancelled the step.
    Cancelled,
    /// It ran longer than its `timeout`.
    TimedOut,
    /// Its host is being drained.
    Drained,
    /// A step that goes before it needs its units.
    Preempted,
    /// The coordinator has ended this attempt, or never knew it.
    Superseded,
    /// Another part of the attempt, on another host, failed or was lost: all of it ends as one.
    PeerEnded,
    /// A GPU that it was given has fallen off the bus.
    GpuLost,
    /// Somebody wants the step to start anew.
    Requeued,
    /// It was to be frozen, which could not be done.
    NotSuspended,
    /// It was frozen for longer than its `suspend_timeout`.
    SuspendedTooLong,
}

/// Where an attempt stands, as its host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// Which.
    pub attempt: AttemptId,
    /// Where it stands.
    pub phase: AttemptPhase,
}

/// How far an attempt has come. Phases only go forward, in this order; some may be passed over. An attempt that runs may
/// be frozen and run again, any number of times, before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptPhase {
    /// The host makes its process.
    Starting,
    /// Its process runs.
    Running(StartedProcess),
    /// It was told to stop and has not ended.
    Stopping {
        /// The process, if it was seen running.
        started: Option<StartedProcess>,
        /// Why.
        why: StopReason,
    },
    /// Its main process has ended; its units are not free yet.
    Ended(AttemptEnd),
    /// Nothing of it is left and its GPUs were seen free: its units may be granted again.
    Released(AttemptEnd),
    /// Its processes are being frozen.
    Suspending(StartedProcess),
    /// Its processes are frozen, and its GPUs were seen free: all but its memory may be granted to others.
    Suspended {
        /// The process.
        started: StartedProcess,
        /// What was moved from its GPUs to the host's memory, in units of 10^6 bytes.
        moved_mb: u64,
    },
    /// Its processes are being brought back.
    Resuming(StartedProcess),
    /// It was to be frozen or brought back, which could not be done: what was done for it was undone, and it runs on as
    /// far as it can.
    NotSuspended {
        /// The process.
        started: StartedProcess,
        /// Why not.
        why: SuspendFailure,
    },
}

/// Why an attempt cannot be frozen, or brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SuspendFailure {
    /// The host has no way to freeze processes.
    NoFreezer,
    /// It holds GPUs, and the host has no way to move what is on them.
    NoCheckpoint,
    /// Several of its processes use GPUs, which may have links to each other.
    SeveralProcesses,
    /// There is too little memory on the host for what is on its GPUs.
    NoRoom(MemoryShortage),
    /// The host tried and could not; the sentence says what stood in the way.
    Refused(String),
    /// It took longer than it may.
    TimedOut,
    /// Its GPUs did not come free.
    GpusBusy,
    /// It was frozen, and could not be brought back; the sentence says what stood in the way.
    NotResumed(String),
}

/// Room for what is on GPUs, in units of 10^6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RoomForGpus")
)]
pub struct MemoryShortage {
    /// How much there is to be moved.
    pub wanted_mb: u64,
    /// How much of that there is room for.
    pub room_mb: u64,
}

/// A process that runs or ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Process")
)]
pub struct StartedProcess {
    /// Process id on its host.
    pub pid: u32,
    /// When, by the host's clock.
    pub at: Time,
}

/// How and when an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptEnd {
    /// The process that ran; `None` where there never was one.
    pub started: Option<StartedProcess>,
    /// How.
    pub exit: Exit,
    /// Why it was being stopped when it ended, if it was.
    pub stopped: Option<StopReason>,
    /// When, by the host's clock.
    pub at: Time,
    /// What it has used.
    pub usage: Usage,
}

impl AttemptEnd {
    /// Whether its process exited with code 0.
    pub fn is_clean(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Counted up on each connection.
    pub number: u64,
    /// When the host sends it, by its own clock.
    pub sent_at: BootMillis,
    /// The `said_at` of the newest heartbeat or hello that the coordinator has answered. If it lies far back, the host
    /// hears nothing.
    pub last_acknowledged: BootMillis,
    /// The number of the newest [`Command`] that had arrived by `said_at`.
    pub last_order: u64,
    /// What the host's supervisor wants to see signed; `None` if the agent has no challenge at hand.
    pub challenge: Option<Challenge>,
}

/// The coordinator has heard a [`Heartbeat`]: leases run from the moment when the agent sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAck {
    /// Which one.
    pub number: u64,
    /// The lease, for the heartbeat's challenge.
    pub seal: Option<Box<SealedLease>>,
}

/// Which of a step's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// No output of its own: the streams of a program that is to run beside it. An [`crate::exec::ExecOrder`] follows
    /// the request, and once it is granted [`crate::exec`]'s frames both ways.
    Exec,
}

/// Asks for a stretch of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Whose.
    pub attempt: AttemptId,
    /// Which output.
    pub stream: LogStream,
    /// First byte wanted, counted from the start of the attempt.
    pub offset: u64,
    /// Whether to go on, as the attempt writes, until it has ended.
    pub follow: bool,
}

/// The answer to [`LogRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogReply {
    /// Plain bytes follow, beginning at this offset: later than asked where the oldest output was dropped, and the end
    /// of what was written where what was asked is beyond it.
    From {
        /// Offset of the first byte that follows.
        offset: u64,
    },
    /// Nothing follows; the sentence says why.
    Refused {
        /// Why.
        message: String,
    },
}
