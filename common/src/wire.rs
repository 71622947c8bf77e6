//! Protocol between coordinator and agent.
//!
//! The agent dials and opens two streams, *control* and *heartbeat*. On control it sends [`Hello`] and receives a
//! [`HelloReply`]; then the agent sends [`FromNode`] and the coordinator [`Command`]. On heartbeat the agent sends
//! [`Heartbeat`]s, each answered at once by a [`HeartbeatAck`]. For each transfer of output the coordinator opens a
//! stream, sends a [`LogRequest`] and receives a [`LogReply`] followed by plain bytes. `exec` works the same way.
//!
//! Attempts are reported as *statuses*, not as events. A repeat is harmless and a status implies all earlier ones, so
//! none can be missed. The host keeps an attempt until the coordinator sends [`ToNode::Forget`], which it does once
//! `Released` is durable.
//!
//! The encoding cannot skip, flatten or tag: these types use no such serde attributes.

mod heartbeat;
mod logs;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::amount::Amounts;
use crate::carving::{CarveOrder, CarveOutcome};
use crate::container::Container;
use crate::directory_refusal::DirectoryRefusal;
use crate::environment::Environment;
use crate::epoch::SealedEpoch;
use crate::gpu_state::GpuStates;
use crate::host_health::{HostHealth, SupervisorState};
use crate::id::{AttemptId, BootId, Epoch, NodeName, PoolName, Subject};
use crate::inputs::InputFile;
use crate::inventory::{Inventory, Readings};
use crate::keep::{KeepPattern, KeptFiles};
use crate::lease::{Challenge, SealedLease};
pub use crate::output::LogStream;
use crate::port::PortName;
use crate::probe::{EndpointReport, Probes};
use crate::processors::CpuMode;
use crate::streams::StepStreams;
use crate::submitter::Submitter;
use crate::supervision::{BootMillis, Exit};
use crate::template::launch::Launch;
use crate::time::{Span, Time};
use crate::usage::{Usage, UsageReport};
use crate::warrant::SealedWarrant;
pub use heartbeat::{Heartbeat, HeartbeatAck};
pub use logs::{LogReply, LogRequest, OutputSince};

/// Protocol version of this build. Other versions are refused until the first release is tagged.
pub const PROTOCOL_VERSION: u32 = 1;

/// ALPN name of the protocol.
pub const ALPN: &[u8] = b"sluice/1";

/// Purpose of a stream that the agent opens; its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamKind {
    /// Commands and statuses; one per connection.
    Control,
    /// Heartbeats and leases; one per connection.
    Heartbeat,
    /// Trusted authorities and the node's next certificate ([`crate::join`]); one per connection.
    Certificates,
    /// The inputs of one attempt: the agent sends an [`InputsRequest`] and receives a [`LogReply`], followed by the
    /// contents of the files, one after the other in the order of [`Assignment::inputs`].
    Inputs,
}

/// First message of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the agent.
    pub protocol: u32,
    /// Version of the agent, for people.
    pub version: String,
    /// Node name; must match the agent's certificate.
    pub node: NodeName,
    /// The pool in the agent's config.
    pub pool: PoolName,
    /// Labels in the agent's config.
    pub labels: BTreeMap<String, String>,
    /// Host name or address at which gang members reach this host, from the agent's config.
    pub address: String,
    /// Boot that the attempts belong to.
    pub boot_id: BootId,
    /// Opaque id of the agent's state directory, which distinguishes it from a copy on the same machine.
    pub state_dir: String,
    /// Highest epoch that the host has obeyed, with its seal. A coordinator adopts a higher epoch only if the seal is
    /// its cluster's.
    pub highest_epoch: Option<SealedEpoch>,
    /// Detected hardware and software.
    pub inventory: Inventory,
    /// Every attempt that the host knows and was not told to forget. Empty while the supervisor is
    /// [`SupervisorState::NeverSeen`]; then no attempt counts as missing.
    pub attempts: Vec<AttemptStatus>,
    /// GPUs that must not be granted.
    pub gpu_states: GpuStates,
    /// Time of sending on the host's boot clock.
    pub sent_at: BootMillis,
    /// Whether the supervisor answers.
    pub supervisor: SupervisorState,
    /// Challenge of the supervisor for a signed lease; `None` if the agent has none at hand.
    pub challenge: Option<Challenge>,
}

/// Answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// The node may connect.
    Welcome(Welcome),
    /// The node may not connect; the agent logs the message and retries later.
    Refused {
        /// Why, and what to do next.
        message: String,
    },
}

/// Parameters of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Epoch of the coordinator. The host stores the highest epoch that it has seen, with its seal, and refuses lower
    /// ones.
    pub epoch: SealedEpoch,
    /// Time that attempts may run after the last acknowledged heartbeat, counted from its sending.
    pub lease: Span,
    /// Time limit for stopping an attempt whose lease has expired.
    pub stop_limit: Span,
    /// Time between two heartbeats.
    pub heartbeat: Span,
    /// Time for which an order to start or resume an attempt is valid, counted from [`Command::last_heard`].
    pub order_limit: Span,
    /// First lease, for the challenge in the hello. Added by the holder of the cluster's key; the core leaves it out.
    pub seal: Option<Box<SealedLease>>,
}

/// Message of the agent after [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNode {
    /// Current status of an attempt.
    Status(AttemptStatus),
    /// New inventory of the host.
    Inventory(Box<Inventory>),
    /// Latest readings of the host. Not passed to the core; only shown.
    Readings(Readings),
    /// GPUs that must not be granted. Sent before a status that returns resources of one of them.
    GpuStates(Box<GpuStates>),
    /// An attempt has saved its work. Repeated periodically, so that losing one message is harmless.
    Checkpoint {
        /// Id of the attempt.
        attempt: AttemptId,
        /// Time since the save; independent of the host's wall clock.
        ago: Span,
    },
    /// Result of the host's health check. Sent on each new link and after every change.
    Health(HostHealth),
    /// Answer to [`ToNode::ShowWarrant`].
    Warrant {
        /// Id of the attempt.
        attempt: AttemptId,
        /// Warrant from its assignment; `None` if the host has not stored it.
        warrant: Option<SealedWarrant>,
    },
    /// All labels of the agent's config, after a change.
    Labels(BTreeMap<String, String>),
    /// Change of the supervisor's state since [`Hello`]. When a supervisor first answers, the agent reconnects instead,
    /// and its new hello lists the attempts.
    Supervisor(SupervisorState),
    /// Result of [`ToNode::Carve`], sent after an inventory that shows the GPU as it is then.
    Carved {
        /// UUID of the whole GPU.
        gpu: String,
        /// Result of the order.
        outcome: CarveOutcome,
    },
    /// Ports and readiness of an attempt. Sent on each new link, after every change and repeated periodically, so that
    /// losing one message is harmless.
    Endpoint(Box<EndpointReport>),
    /// Recent usage of the running attempts, repeated periodically. At most
    /// [`MAX_ATTEMPTS_PER_NODE`](crate::limit::MAX_ATTEMPTS_PER_NODE).
    Usages(Vec<UsageReport>),
}

/// An order to the agent, with sender and sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Epoch of the sending coordinator; must equal that of its welcome on this connection.
    pub epoch: Epoch,
    /// Sequence number on this link, starting at 1. The host drops the link if a number is missing or repeated.
    pub number: u64,
    /// `sent_at` of the newest heartbeat or hello that the coordinator had received. The host obeys an order to start
    /// or resume an attempt only within [`Welcome::order_limit`] of it, because the coordinator may have given the host
    /// up since and started the step elsewhere.
    pub last_heard: BootMillis,
    /// The order itself.
    pub order: ToNode,
}

/// Order to an agent. Repeats are harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// Run an attempt.
    Assign(Box<Assignment>),
    /// Stop an attempt. A repeat with a shorter grace period shortens it; an unknown attempt is reported as `Released`.
    Stop {
        /// Attempt to stop.
        attempt: AttemptId,
        /// Reason, for the stop notice.
        why: StopReason,
        /// Time between the stop signal and the kill.
        grace: Span,
    },
    /// Forget an attempt, because its end is recorded. Its output stays.
    Forget {
        /// Attempt to forget.
        attempt: AttemptId,
    },
    /// Freeze an attempt after emptying its GPUs. If that fails, the attempt keeps running and is reported as
    /// [`AttemptPhase::NotSuspended`].
    Suspend {
        /// Attempt to suspend.
        attempt: AttemptId,
        /// Host memory available for its GPU memory, in units of 10^6 bytes.
        room_mb: u64,
    },
    /// Resume a frozen attempt; harmless if it runs.
    Resume {
        /// Attempt to resume.
        attempt: AttemptId,
    },
    /// Check quarantined GPUs at an admin's request and clear the recorded faults of those that answer.
    RestoreGpus {
        /// UUIDs of the GPUs.
        gpus: Vec<String>,
    },
    /// Send the warrant of an attempt that the coordinator does not know, because it was restored from an earlier
    /// state.
    ShowWarrant {
        /// Id of the attempt.
        attempt: AttemptId,
    },
    /// Cut a GPU that no step has into slices. Answered by [`FromNode::Carved`].
    Carve(Box<CarveOrder>),
}

/// An attempt to run on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// The pool that granted the resources.
    pub pool: PoolName,
    /// Program and arguments; empty for an allocation.
    pub command: Vec<String>,
    /// Environment variables of the step itself.
    pub env: Environment,
    /// Working directory, an absolute path; `None` for a directory of the attempt's own.
    pub workdir: Option<String>,
    /// Working directory if the step's user can enter it, else a directory of the attempt's own. Only without `workdir`.
    pub prefer_workdir: Option<String>,
    /// UUIDs of the granted GPUs.
    pub gpus: Vec<String>,
    /// Longest run time; the host stops the attempt then.
    pub timeout: Option<Span>,
    /// Time between the stop signal and the kill at the timeout.
    pub grace: Span,
    /// Rank and hosts of the gang; also set for a single host.
    pub gang: Gang,
    /// Subject of the step; the host's config maps it to a user.
    pub subject: Subject,
    /// Authenticated user who submitted the step; the host's config decides whether the step runs as its own user of
    /// that name.
    pub submitter: Option<Submitter>,
    /// Resources granted on this host, which are also the limits.
    pub resources: Amounts,
    /// Mode in which the attempt gets its CPU cores.
    pub cpu_mode: CpuMode,
    /// Wrapper, environment and hooks from templates.
    pub launch: Launch,
    /// Encrypted data by which a restored coordinator recognises the attempt. The host stores it unread and returns it
    /// on request. At most [`MAX_WARRANT_BYTES`]; may be empty.
    ///
    /// [`MAX_WARRANT_BYTES`]: crate::limit::MAX_WARRANT_BYTES
    pub warrant: SealedWarrant,
    /// Standard input, files of output, and terminal of this part. Of the letters in paths only that of the user is left.
    pub streams: StepStreams,
    /// Container in which the program runs; `None` for the host itself.
    pub container: Option<Container>,
    /// Files for the attempt's own directory, which the host requests on a stream of [`StreamKind::Inputs`] before it starts
    /// the attempt.
    pub inputs: Vec<InputFile>,
    /// Patterns of the files in the attempt's own directory that the host keeps after its end.
    pub keep: Vec<KeepPattern>,
    /// Names of the ports that the host gives the attempt. At most [`MAX_PORTS`](crate::port::MAX_PORTS).
    pub ports: Vec<PortName>,
    /// Probes of its readiness and liveness.
    pub probes: Probes,
    /// Whether the host reports what the attempt uses: it is a replica of a service, whose number may follow that.
    pub is_measured: bool,
}

impl Assignment {
    /// Whether it is of an allocation, which has no program of its own.
    pub fn is_allocation(&self) -> bool {
        self.command.is_empty()
    }
}

/// Position of a host among those that run an attempt together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Rank of this host, starting at 0.
    pub rank: u32,
    /// Addresses of all hosts, ordered by rank.
    pub hosts: Vec<String>,
    /// Rendezvous port on the host of rank 0, unique among the gangs there; `None` for a single host.
    pub port: Option<u16>,
}

impl Gang {
    /// Gang of one host, reached at `address`.
    pub fn single(address: &str) -> Self {
        Self {
            rank: 0,
            hosts: alloc::vec![String::from(address)],
            port: None,
        }
    }
}

/// Reason for stopping an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "StopWhy"))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A user cancelled the step.
    Cancelled,
    /// The attempt ran longer than its `timeout`.
    TimedOut,
    /// The host is being drained.
    Drained,
    /// The step was preempted.
    Preempted,
    /// The coordinator has ended this attempt, or never knew it.
    Superseded,
    /// Another part of the attempt failed or was lost; all parts end together.
    PeerEnded,
    /// A granted GPU has fallen off the bus.
    GpuLost,
    /// A user asked to requeue the step.
    Requeued,
    /// The attempt could not be suspended.
    NotSuspended,
    /// The attempt was suspended for longer than its `suspend_timeout`.
    SuspendedTooLong,
    /// The holder of an allocation did not renew it in time.
    NotRenewed,
    /// The attempt's liveness probe has failed as often as it may.
    LivenessFailed,
}

/// Current status of an attempt, as seen by its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// Phase of the attempt.
    pub phase: AttemptPhase,
}

/// Phases of an attempt. They advance only in this order, and some may be skipped; a running attempt may be suspended
/// and resumed any number of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptPhase {
    /// The host is creating the process.
    Starting,
    /// The process runs.
    Running(StartedProcess),
    /// The attempt is being stopped.
    Stopping {
        /// The process, if it was seen running.
        started: Option<StartedProcess>,
        /// Reason for the stop.
        why: StopReason,
    },
    /// The main process has ended; resources are not free yet.
    Ended(AttemptEnd),
    /// All processes are gone and the GPUs were seen free: the resources may be granted again.
    Released(AttemptEnd),
    /// The processes are being frozen.
    Suspending(StartedProcess),
    /// The processes are frozen and the GPUs were seen free: all resources except memory may be granted to others.
    Suspended {
        /// The frozen process.
        started: StartedProcess,
        /// GPU memory moved to the host, in units of 10^6 bytes.
        moved_mb: u64,
    },
    /// The processes are being restored.
    Resuming(StartedProcess),
    /// The attempt could not be suspended or resumed. Completed parts were undone, and it keeps running if possible.
    NotSuspended {
        /// The process that keeps running.
        started: StartedProcess,
        /// Reason of the failure.
        why: SuspendFailure,
    },
}

/// Why an attempt could not be suspended or resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SuspendFailure {
    /// The host cannot freeze processes.
    NoFreezer,
    /// The attempt holds GPUs, and the host cannot checkpoint GPU memory.
    NoCheckpoint,
    /// Several processes use GPUs and may share memory.
    SeveralProcesses,
    /// The host has too little free memory for the GPU memory.
    NoRoom(MemoryShortage),
    /// The host tried and failed, as explained.
    Refused(String),
    /// Suspending or resuming took too long.
    TimedOut,
    /// The GPUs did not become free.
    GpusBusy,
    /// The attempt was suspended and could not be resumed, as explained.
    NotResumed(String),
}

/// Lack of host memory for GPU memory, in units of 10^6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RoomForGpus")
)]
pub struct MemoryShortage {
    /// Memory to be moved.
    pub wanted_mb: u64,
    /// Memory available for it.
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
    /// Process id on the host.
    pub pid: u32,
    /// Start time by the host's clock.
    pub at: Time,
    /// Why the process started in the attempt's own directory and not in the preferred one, if so.
    #[serde(default)]
    pub workdir_refused: Option<DirectoryRefusal>,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptEnd {
    /// The process that ran; `None` if none was started.
    pub started: Option<StartedProcess>,
    /// Outcome of the attempt.
    pub exit: Exit,
    /// Reason of the stop, if it was being stopped.
    pub stopped: Option<StopReason>,
    /// End time by the host's clock.
    pub at: Time,
    /// Resources used by the attempt.
    pub usage: Usage,
    /// Files that the host has kept, once the attempt is released; `None` if none were to be kept or the host says nothing.
    #[serde(default)]
    pub kept: Option<Box<KeptFiles>>,
}

impl AttemptEnd {
    /// Whether the process exited with code 0.
    pub fn is_clean(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// Request for the inputs of an attempt that is assigned to the requesting host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputsRequest {
    /// Id of the attempt.
    pub attempt: AttemptId,
}
