//! Protocol between an agent and the supervisor on its host, over a Unix socket.
//!
//! The supervisor sends *views*: the current state of each attempt. A view is sent when it changes and all views when
//! an agent connects, so an agent that was away misses nothing and a repeat is harmless. Phases only go forward.
//!
//! ```text
//! (spawn) -> Running -> Ended -> Gone -> (forget)
//!        \___________________________/
//!          could not be started
//! ```

mod limits;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::carving::{CarveFailure, GpuLayout};
use crate::container::Container;
use crate::directory_refusal::DirectoryRefusal;
use crate::environment::Environment;
use crate::exec::{ExecId, ExecOrder};
use crate::host_health::HostHealth;
use crate::id::{AttemptId, BootId, Subject};
use crate::inventory::{Capability, Mechanism};
use crate::keep::{KeepPattern, KeptFiles};
use crate::lease::{Challenge, SealedLease};
use crate::processors::CpuSet;
use crate::streams::StepStreams;
use crate::submitter::Submitter;
use crate::template::launch::HooksAndLimits;
use crate::time::{Span, Time};
use crate::usage::{RunningUsage, Usage};
use crate::wire::StopReason;
pub use limits::{CpuAllocation, DeviceAccess, ResourceLimits};

/// Version of the protocol. A supervisor and an agent of different versions disconnect with a message.
pub const SUPERVISION_VERSION: u32 = 10;

/// Largest frame on the supervisor's socket, in bytes: one spawn with its environment, or the views of all attempts of
/// a host.
pub const MAX_SUPERVISION_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Prefix of the abstract address of a client that only probes, and does not replace the agent's connection.
pub const PROBE_NAME: &str = "sluice-probe";

/// Time on the host's `CLOCK_BOOTTIME` in milliseconds, which includes sleep and never jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootMillis(pub u64);

/// Message from the agent.
#[expect(
    clippy::large_enum_variant,
    reason = "an order is read and obeyed one at a time, and the large one is the one that counts"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Start an attempt. For an existing attempt the supervisor only answers with its view.
    Spawn(SpawnSpec),
    /// Send a signal to every process of an attempt. Not answered; harmless if the attempt has ended.
    Signal {
        /// Attempt to signal.
        attempt: AttemptId,
        /// Signal to send.
        signal: StopSignal,
    },
    /// Extend the lease deadline of every attempt that has one. A deadline never moves back, and an expired one stays
    /// expired. Ignored once the host has received a signed lease; bounded by the host's config.
    Renew {
        /// The new deadline.
        until: BootMillis,
    },
    /// Drop an attempt that is `Gone`, because the coordinator has recorded its end. Its output stays.
    Forget {
        /// Attempt to drop.
        attempt: AttemptId,
    },
    /// Send [`FromSupervisor::Hello`] again.
    List,
    /// Freeze all processes of an attempt, which can still be killed. Answered by its view, even if it cannot be frozen.
    Freeze {
        /// Attempt to freeze.
        attempt: AttemptId,
    },
    /// Thaw the processes of an attempt. Answered by its view, even if it was not frozen.
    Thaw {
        /// Attempt to thaw.
        attempt: AttemptId,
    },
    /// Announce to an attempt, by its notice file, that it is being stopped. Not answered; a repeat replaces the
    /// notice.
    Notice {
        /// Attempt to notify.
        attempt: AttemptId,
        /// Reason of the stop.
        why: StopReason,
        /// Time of the kill.
        kill_at: BootMillis,
    },
    /// Like `Freeze`, for an attempt that holds GPU memory: a helper running as the step's user moves that memory to
    /// the host first, and `Thaw` brings it back. If it cannot be moved, the attempt is restored.
    Suspend {
        /// Attempt to suspend.
        attempt: AttemptId,
        /// Processes that use its GPUs according to the driver. Those of other attempts are ignored.
        users: Vec<u32>,
        /// GPU memory that they hold, in bytes. The attempt's memory limit is raised by this much.
        bytes: u64,
        /// Time limit for moving the memory, and for bringing it back.
        limit: Span,
    },
    /// Run a program inside an attempt: in its control groups, as its user, with its environment and directory. The
    /// streams are named pipes in a directory of their own, which the agent opens. Answered by
    /// [`FromSupervisor::ExecEnded`] when the program has ended or could not start; for
    /// [`ExecProgram::Connect`](crate::exec::ExecProgram::Connect) at once, with code 0 if the caller may connect.
    Exec {
        /// Id of the program.
        exec: ExecId,
        /// Command and caller.
        order: ExecOrder,
    },
    /// Kill the process group of an `exec` program. Harmless if it has ended. Programs of an agent that disconnects are
    /// killed too.
    EndExec {
        /// Id of the program.
        exec: ExecId,
    },
    /// Move a pinned attempt to these processors. Its launch record has them from then on. Not answered; harmless if
    /// the attempt has ended.
    Pin {
        /// Attempt to move.
        attempt: AttemptId,
        /// The processors to use.
        processors: CpuSet,
    },
    /// Request a [`FromSupervisor::Pong`], because the agent has received nothing for a while.
    Ping,
    /// Generate a challenge for the coordinator. Answered by [`FromSupervisor::Challenge`].
    Challenge,
    /// Signed lease for a challenge: extends every attempt that has a lease. After the first verified one nothing else
    /// extends leases, and `lease_until` of a spawn is ignored.
    Lease(SealedLease),
    /// Give the GPU with this UUID, which no attempt has, this layout. Answered by [`FromSupervisor::Carved`]; a repeat is
    /// answered once.
    Carve(String, GpuLayout),
    /// Measure what the running attempts use. Answered by [`FromSupervisor::Usages`].
    Measure,
}

/// Message from the supervisor.
#[expect(
    clippy::large_enum_variant,
    reason = "a view is what is mostly said, one at a time, and the hello is the small one"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// First message on a connection, and the answer to `List`.
    Hello {
        /// [`SUPERVISION_VERSION`] of the supervisor.
        version: u32,
        /// Boot that the attempts belong to.
        boot_id: BootId,
        /// Every attempt that was not forgotten.
        attempts: Vec<AttemptView>,
        /// Capabilities of the host and the mechanism that provides each.
        capabilities: BTreeMap<Capability, Mechanism>,
        /// Whether the config allows GPUs to be cut into slices.
        carves_gpus: bool,
    },
    /// New view of an attempt that changed.
    Attempt(AttemptView),
    /// Result of the host's health check; sent after the hello, if known, and after every change.
    Health(HostHealth),
    /// An `exec` program has ended or could not start.
    ExecEnded {
        /// Id of the program.
        exec: ExecId,
        /// Exit of the program.
        exit: Exit,
    },
    /// Answer to [`ToSupervisor::Ping`].
    Pong,
    /// Answer to [`ToSupervisor::Challenge`].
    Challenge(Challenge),
    /// Result of [`ToSupervisor::Carve`], with its GPU and layout. After a failure the GPU may be cut in any way.
    Carved(String, GpuLayout, Option<CarveFailure>),
    /// Present usage of the running attempts.
    Usages(Vec<(AttemptId, RunningUsage)>),
}

/// Signals that an agent may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopSignal {
    /// SIGTERM, which a process may handle.
    Terminate,
    /// SIGKILL, which no process can ignore.
    Kill,
}

/// Complete description of an attempt to start. The supervisor adds only what its own config demands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnSpec {
    /// Names the attempt and its directory.
    pub attempt: AttemptId,
    /// Program and arguments; not empty.
    pub command: Vec<String>,
    /// Complete environment. The supervisor adds only the paths of the notice and checkpoint files and, unless set
    /// here, `HOME`, `USER`, `LOGNAME` and `SHELL` of the step's user. The program is searched in its `PATH`.
    pub env: Environment,
    /// Working directory, an absolute path; `None` for the attempt's own directory.
    pub workdir: Option<String>,
    /// Working directory if the step's user can enter it, else the attempt's own. Only without `workdir`.
    pub prefer_workdir: Option<String>,
    /// Deadline at which the supervisor stops the attempt; `None` for the latest that the host allows. Ignored once the
    /// host has received a signed lease.
    pub lease_until: Option<BootMillis>,
    /// Time between SIGTERM and SIGKILL at the deadline.
    pub lease_grace: Span,
    /// Data stored for the agent and returned in every view.
    pub launch_record: LaunchRecord,
    /// Subject of the step; the supervisor's config maps it to a user.
    pub subject: Subject,
    /// User who submitted the step; the supervisor's config decides whether the step runs as the host's user of that
    /// name.
    pub submitter: Option<Submitter>,
    /// Limits on all processes together.
    pub limits: ResourceLimits,
    /// GPU devices that the attempt may open.
    pub devices: DeviceAccess,
    /// CPU cores of the attempt.
    pub processors: CpuAllocation,
    /// Template hooks and limits, bounded by the supervisor's config.
    pub hooks: HooksAndLimits,
    /// Environment of the template's wrapper and hooks, without the step's own variables; its `PATH` finds their programs.
    pub hook_env: Environment,
    /// Number of leading arguments that belong to a wrapper; 0 if none.
    pub wrapper: u32,
    /// Whether the wrapper passes the step's variables on through a file of `NAME=value` lines. If not, a program of
    /// the supervisor sets them behind the wrapper.
    pub env_file: bool,
    /// Standard input, files of output, and terminal. Of the letters in paths only that of the user is left.
    pub streams: StepStreams,
    /// Container of the program, behind the wrapper.
    pub container: Option<Container>,
    /// File of the agent with the step's inputs, a stream of `sluice-copy`, as an absolute path; `None` if it has none. They are
    /// unpacked in the attempt's own directory as the step's user.
    pub inputs: Option<String>,
    /// Patterns of the files in the attempt's own directory that are kept after its end.
    pub keep: Vec<KeepPattern>,
}

/// Data about an attempt that the agent needs after its own restart. The supervisor stores it without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Longest run time of the attempt.
    pub timeout: Option<Span>,
    /// Time between the stop signal and the kill at the timeout.
    pub grace: Span,
    /// UUIDs of the granted GPUs, which must be seen free before they are granted again.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// Cores that the attempt is pinned to; empty if not pinned.
    #[serde(default)]
    pub processors: CpuSet,
    /// Whether the attempt is of an allocation: the steps inside it use its GPUs, each for a while.
    #[serde(default)]
    pub is_allocation: bool,
}

/// Current state of an attempt on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// Phase of its main process.
    pub phase: HostPhase,
    /// Data stored at the spawn.
    pub launch_record: LaunchRecord,
    /// Freezer state of its processes.
    pub freezer: FreezerState,
    /// Total time frozen.
    pub frozen: FrozenTime,
}

/// Time that an attempt was frozen, which does not count towards its `timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenTime {
    /// Sum of all completed freezes.
    pub before: Span,
    /// Start of the current freeze.
    pub since: Option<BootMillis>,
}

/// Freezer state of an attempt's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezerState {
    /// The processes run.
    #[default]
    Thawed,
    /// Some processes have not stopped yet.
    Freezing,
    /// All processes are stopped.
    Frozen,
    /// The processes run, because a freeze failed.
    Refused(FreezeRefusal),
    /// The processes run, and their GPU memory is being moved to the host.
    Moving,
    /// All processes are stopped, and their GPU memory is on the host.
    Moved(MovedMemory),
    /// The processes run, and their memory is being moved back to the GPUs.
    Restoring,
}

/// GPU memory that was moved to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedMemory {
    /// Processes that own it. The driver may still list them as users of their GPUs.
    pub pids: Vec<u32>,
    /// Size in bytes, as seen by the agent before the move.
    pub bytes: u64,
}

/// Error of a freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezeRefusal {
    /// The host has no freezer, or the attempt has no group of its own.
    Unsupported,
    /// The kernel or the driver failed, as explained.
    Failed(String),
    /// The host cannot checkpoint GPU memory.
    NoCheckpoint,
    /// Several processes use GPUs, and the driver cannot move one of them.
    SeveralProcesses,
    /// Moving the memory took too long.
    TimedOut,
    /// The memory could not be moved back, as explained.
    NotRestored(String),
}

/// Phase of an attempt's main process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPhase {
    /// The main process runs.
    Running(Process),
    /// The main process has ended; others of its group may still run.
    Ended(ProcessEnd),
    /// No process is left.
    Gone(ProcessEnd),
}

/// A process identified by pid and start time, since pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id, also of its process group.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// Wall clock time of the start.
    pub started_at: Time,
    /// Why it started in the attempt's own directory and not in the preferred one, if so.
    #[serde(default)]
    pub workdir_refused: Option<DirectoryRefusal>,
}

/// Milliseconds per kernel clock tick: `USER_HZ` is 100 on every Linux.
const MILLIS_A_TICK: u64 = 10;

impl Process {
    /// Start on the boot clock, with a resolution of 10 ms. Unaffected by changes of the wall clock.
    pub const fn started(&self) -> BootMillis {
        BootMillis(self.start_ticks.saturating_mul(MILLIS_A_TICK))
    }
}

/// End of an attempt's main process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The process that ran; `None` if none could be created.
    pub process: Option<Process>,
    /// Exit of the process.
    pub exit: Exit,
    /// Wall clock time of the end.
    pub ended_at: Time,
    /// Resources used until the end; updated when all processes are gone.
    #[serde(default)]
    pub usage: Usage,
    /// Files that were kept, once that is done; `None` if none were to be kept.
    #[serde(default)]
    pub kept: Option<Box<KeptFiles>>,
}

/// Details of an out-of-memory kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// Memory limit in bytes; `None` if the whole host was out of memory.
    pub limit_bytes: Option<u64>,
    /// Peak memory use in bytes, if the kernel reports it.
    pub peak_bytes: Option<u64>,
}

/// Details of a stop because of disk use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorageExceeded {
    /// The bound that was exceeded.
    pub bound: StorageBound,
    /// Disk space of the attempt's files when counted, in bytes.
    pub used_bytes: u64,
    /// Number of files and directories counted.
    pub used_files: u64,
}

/// Bounds on the disk use of an attempt's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StorageBound {
    /// The granted disk space, in bytes.
    Granted(u64),
    /// The host's free-space reserve: the disk was nearly full, and no attempt exceeded its grant by more.
    Reserve,
    /// The nesting depth up to which files are counted.
    Depth,
    /// The number of files that comes with the granted space.
    Files(u64),
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// The process was killed by this signal.
    Signal(i32),
    /// The process could not be started, as explained.
    StartFailed(String),
    /// The lease expired and the supervisor stopped the attempt.
    LeaseExpired,
    /// The host was rebooted.
    HostRebooted,
    /// The process ended while no supervisor was running.
    Unknown,
    /// The process could not be started because of a problem of the host, as explained.
    HostFailed(String),
    /// The kernel killed the process for lack of memory.
    OutOfMemory(OutOfMemory),
    /// The host's prolog failed, so the program was not started; the text says how.
    PrologFailed(String),
    /// The supervisor killed the attempt because of its disk use.
    StorageExceeded(StorageExceeded),
    /// The host returned the attempt before it began anything of the step, as explained.
    NotBegun(String),
}

impl Exit {
    /// The exit code, if any.
    pub const fn code(&self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(*code),
            Exit::Signal(_)
            | Exit::StartFailed(_)
            | Exit::LeaseExpired
            | Exit::HostRebooted
            | Exit::HostFailed(_)
            | Exit::OutOfMemory(_)
            | Exit::PrologFailed(_)
            | Exit::StorageExceeded(_)
            | Exit::NotBegun(_)
            | Exit::Unknown => None,
        }
    }

    /// The signal that killed the process, if any.
    pub const fn signal(&self) -> Option<i32> {
        match self {
            Exit::Signal(signal) => Some(*signal),
            Exit::Code(_)
            | Exit::StartFailed(_)
            | Exit::LeaseExpired
            | Exit::HostRebooted
            | Exit::HostFailed(_)
            | Exit::OutOfMemory(_)
            | Exit::PrologFailed(_)
            | Exit::StorageExceeded(_)
            | Exit::NotBegun(_)
            | Exit::Unknown => None,
        }
    }
}
