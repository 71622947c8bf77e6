//! What an agent and the supervisor on its host say to each other, over a Unix socket.
//!
//! The supervisor speaks in *views*: where each attempt stands now. A view is sent when it changes and all of them when
//! an agent connects, so an agent that was away misses nothing and a repeat is harmless. Phases only go forward.
//!
//! ```text
//! (spawn) -> Running -> Ended -> Gone -> (forget)
//!        \___________________________/
//!          could not be started
//! ```

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::device::DeviceNumber;
use crate::environment::Environment;
use crate::exec::{ExecId, ExecOrder};
use crate::host_health::HostHealth;
use crate::id::{AttemptId, BootId, Subject};
use crate::inventory::{Capability, Mechanism};
use crate::lease::{Challenge, SealedLease};
use crate::processors::{CpuMode, CpuSet};
use crate::submitter::Submitter;
use crate::template::launch::HooksAndLimits;
use crate::time::{Span, Time};
use crate::usage::Usage;
use crate::wire::StopReason;

/// The version of this protocol. A supervisor and an agent of different versions part with a message.
pub const SUPERVISION_VERSION: u32 = 2;

/// Largest frame on the supervisor's socket, in bytes: one spawn with its environment, or the views of every attempt
/// that a host may hold.
pub const MAX_SUPERVISION_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// How the abstract address of a caller begins who only wants to know whether the supervisor answers. It is told a hello
/// without attempts, and the agent's connection stays the agent's.
pub const PROBE_NAME: &str = "sluice-probe";

/// Milliseconds on the host's `CLOCK_BOOTTIME`, which counts sleep and never jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BootMillis(pub u64);

/// From the agent.
#[expect(
    clippy::large_enum_variant,
    reason = "an order is read and obeyed one at a time, and the large one is the one that counts"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Start an attempt. A repeat for an attempt that exists is answered by its view and starts nothing.
    Spawn(SpawnSpec),
    /// Send a signal to every process of an attempt. No answer; harmless where the attempt has ended.
    Signal {
        /// Whose processes.
        attempt: AttemptId,
        /// Which signal.
        signal: StopSignal,
    },
    /// Let every attempt that has a lease run until then. A deadline never moves back, and one that has passed stays
    /// passed. Counts only on a host that has not seen a signed lease yet, and never for longer than the host allows.
    Renew {
        /// The new deadline.
        until: BootMillis,
    },
    /// The coordinator has recorded the end: drop an attempt that is `Gone`. Its output stays.
    Forget {
        /// Which.
        attempt: AttemptId,
    },
    /// Send [`FromSupervisor::Hello`] again.
    List,
    /// Let no process of an attempt run until it is thawed. Answered by its view, also where it is frozen already or
    /// cannot be. A frozen attempt keeps its lease, and is killed like any other.
    Freeze {
        /// Whose processes.
        attempt: AttemptId,
    },
    /// Let the processes of an attempt run again. Answered by its view, also where it was not frozen.
    Thaw {
        /// Whose processes.
        attempt: AttemptId,
    },
    /// Tell an attempt that it is being stopped, by its notice file. No answer; a repeat replaces what was told.
    Notice {
        /// Which.
        attempt: AttemptId,
        /// Why.
        why: StopReason,
        /// When it is killed.
        kill_at: BootMillis,
    },
    /// As `Freeze`, for an attempt that holds memory of GPUs: that is moved to the host's memory first, by a helper that
    /// runs as the step's user. `Thaw` brings it back. Where it cannot be moved, what was done is undone.
    Suspend {
        /// Whose processes.
        attempt: AttemptId,
        /// Those that use its GPUs, as the driver lists them. Any that is not the attempt's is left alone.
        users: Vec<u32>,
        /// How much they hold there, in bytes: by so much its memory limit is raised.
        bytes: u64,
        /// How long moving may take, and bringing back.
        limit: Span,
    },
    /// Run a program beside an attempt, in its groups, as its user, with its environment and directory. Its streams are
    /// pipes with names in a directory of its own, which the agent opens. Answered by [`FromSupervisor::ExecEnded`] when
    /// it has ended, or could not begin.
    Exec {
        /// Which.
        exec: ExecId,
        /// What, and for whom.
        order: ExecOrder,
    },
    /// Kill the process group of a program that runs beside an attempt. Harmless where it has ended. Those of an agent
    /// that goes away are killed in the same way.
    EndExec {
        /// Which.
        exec: ExecId,
    },
    /// Let an attempt that has processors of its own run on these and on no others. Its memo tells of them from then on.
    /// No answer; harmless where the attempt has ended.
    Pin {
        /// Which.
        attempt: AttemptId,
        /// The processors.
        processors: CpuSet,
    },
    /// Answer with [`FromSupervisor::Pong`]: the agent has heard nothing for a while.
    Ping,
    /// Draw a challenge for the coordinator. Answered by [`FromSupervisor::Challenge`].
    Challenge,
    /// What the coordinator has signed for a challenge: every attempt that has a lease runs on for as long as it says.
    /// From the first one on that the supervisor has verified, nothing else extends a lease, and `lease_until` of a spawn
    /// counts for nothing.
    Lease(SealedLease),
}

/// From the supervisor.
#[expect(
    clippy::large_enum_variant,
    reason = "a view is what is mostly said, one at a time, and the hello is the small one"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// The first message on a connection, and the answer to `List`.
    Hello {
        /// [`SUPERVISION_VERSION`] of the supervisor.
        version: u32,
        /// The boot that the attempts belong to.
        boot_id: BootId,
        /// Every attempt that was not forgotten.
        attempts: Vec<AttemptView>,
        /// By which means it holds the processes of an attempt.
        capabilities: BTreeMap<Capability, Mechanism>,
    },
    /// An attempt has changed.
    Attempt(AttemptView),
    /// How the host is by its own check: said after the hello, where it is known, and when it has changed.
    Health(HostHealth),
    /// A program beside an attempt has ended, or could not begin.
    ExecEnded {
        /// Which.
        exec: ExecId,
        /// How.
        exit: Exit,
    },
    /// The answer to [`ToSupervisor::Ping`].
    Pong,
    /// The answer to [`ToSupervisor::Challenge`].
    Challenge(Challenge),
}

/// The signals that an agent may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopSignal {
    /// SIGTERM: asks.
    Terminate,
    /// SIGKILL: does not ask.
    Kill,
}

/// What to start. Everything is decided; the supervisor adds nothing but what its own config commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnSpec {
    /// Names the attempt and its directory.
    pub attempt: AttemptId,
    /// Program and arguments, not empty.
    pub command: Vec<String>,
    /// The environment; nothing is inherited, and the supervisor adds only the paths of its notice and checkpoint files
    /// and, where they are not here, `HOME`, `USER`, `LOGNAME` and `SHELL` of the user that the step runs as. The program
    /// is looked up in its `PATH`.
    pub env: Environment,
    /// Absolute path; `None` is the attempt's own directory.
    pub workdir: Option<String>,
    /// When the supervisor stops the attempt by itself; `None` is as late as the host allows. Counts only on a host that
    /// has not seen a signed lease yet.
    pub lease_until: Option<BootMillis>,
    /// Between SIGTERM and SIGKILL when it does.
    pub lease_grace: Span,
    /// Kept for the agent and given back in every view.
    pub launch_record: LaunchRecord,
    /// On whose behalf: the supervisor's own config says which user that is.
    pub subject: Subject,
    /// The user who submitted the step: the supervisor's own config says whether it runs as the host's user of that name.
    pub submitter: Option<Submitter>,
    /// What all of its processes together may use.
    pub limits: ResourceLimits,
    /// Which GPUs it may open.
    pub devices: DeviceAccess,
    /// How it has its processors.
    pub processors: CpuAllocation,
    /// What goes on around it, within what the supervisor's own config allows.
    pub hooks: HooksAndLimits,
    /// The environment of what templates run around it: its wrapper and its hooks. Nothing of the step's own is in it, and
    /// their programs are looked up in its `PATH`.
    pub hook_env: Environment,
    /// How many arguments in front of its command are a wrapper's; 0 is none.
    pub wrapper: u32,
    /// Whether that wrapper hands the step's variables on by a file of `NAME=value` lines. Otherwise the supervisor's own
    /// program does, behind the wrapper.
    pub env_file: bool,
}

/// How an attempt has its processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAllocation {
    /// What the processor time of its limits means.
    pub mode: CpuMode,
    /// Those that are its own: it runs on no others. None where it runs wherever there is room.
    pub own: CpuSet,
}

/// Which devices of GPUs an attempt may open. All that is no GPU is open to it as far as its user may.
///
/// What is a GPU the supervisor finds out by itself. The agent's word can grant what is closed, for the agent says who
/// has which GPU, and can close more; it cannot open what it does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAccess {
    /// Those of the GPUs and instances that it was granted. Instances of one GPU share the device of that GPU.
    pub granted: Vec<DeviceNumber>,
    /// The devices of every GPU of the host, as far as the agent knows them.
    pub all_gpus: Vec<DeviceNumber>,
}

/// What all processes of an attempt together may use. `None` is as much as the host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processor time, in thousandths of a core.
    pub mcpu: Option<u64>,
    /// Memory, in bytes, none of it swapped out.
    pub memory_bytes: Option<u64>,
    /// What its files in its own directory may take of the host's disk, in bytes.
    pub storage_bytes: Option<u64>,
}

/// What an agent needs to know of an attempt after its own restart. The supervisor keeps it and never reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// How long the attempt may run.
    pub timeout: Option<Span>,
    /// Between the stop signal and the kill when it times out.
    pub grace: Span,
    /// UUIDs of the GPUs that it was given, to be seen free before they are another's.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The processors that are its own, as long as it runs; none where it has none.
    #[serde(default)]
    pub processors: CpuSet,
}

/// Where an attempt stands on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Which.
    pub attempt: AttemptId,
    /// Where it stands.
    pub phase: HostPhase,
    /// From its spawn.
    pub launch_record: LaunchRecord,
    /// Whether its processes may run.
    pub freezer: FreezerState,
    /// How long they might not.
    pub frozen: FrozenTime,
}

/// How long the processes of an attempt were frozen, which its `timeout` does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenTime {
    /// All times together that are over.
    pub before: Span,
    /// Since when they are now.
    pub since: Option<BootMillis>,
}

/// Whether the processes of an attempt may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezerState {
    /// They may.
    #[default]
    Thawed,
    /// They may not, and some have not stopped yet.
    Freezing,
    /// None of them runs.
    Frozen,
    /// They may: a freeze was asked for and could not be had.
    Refused(FreezeRefusal),
    /// They may, and what they hold on GPUs is being moved to the host's memory.
    Moving,
    /// None of them runs, and what they held on GPUs is in the host's memory.
    Moved(MovedMemory),
    /// They may, and what they held on GPUs is being brought back.
    Restoring,
}

/// What was moved from GPUs to the host's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedMemory {
    /// Whose it is. The driver may list them as users of their GPUs still.
    pub pids: Vec<u32>,
    /// How much, in bytes, as the agent saw it before.
    pub bytes: u64,
}

/// Why an attempt was not frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezeRefusal {
    /// The host offers no freezer, or the attempt has no group of its own.
    Unsupported,
    /// The kernel or the driver did not do it: the sentence says why.
    Failed(String),
    /// The host has no way to move what is on GPUs.
    NoCheckpoint,
    /// Several of its processes use GPUs, and the driver does not move one of them.
    SeveralProcesses,
    /// Moving took longer than it may.
    TimedOut,
    /// What was moved could not be brought back: the sentence says why.
    NotRestored(String),
}

/// How far an attempt has come on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPhase {
    /// Its main process runs.
    Running(Process),
    /// Its main process has ended; others of its group may still run.
    Ended(ProcessEnd),
    /// No process of it is left.
    Gone(ProcessEnd),
}

/// A process that cannot be mistaken for another that was given the same number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id, which is also its group's.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// Wall clock at the start.
    pub started_at: Time,
}

/// Milliseconds in one of the ticks that the kernel tells user programs: `USER_HZ` is 100 on every Linux.
const MILLIS_A_TICK: u64 = 10;

impl Process {
    /// The start on the boot clock, to ten milliseconds. Unlike the wall clock it cannot have been set since.
    pub const fn started(&self) -> BootMillis {
        BootMillis(self.start_ticks.saturating_mul(MILLIS_A_TICK))
    }
}

/// How and when an attempt's main process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The process that ran; `None` where none could be made.
    pub process: Option<Process>,
    /// How.
    pub exit: Exit,
    /// Wall clock at the end.
    pub ended_at: Time,
    /// What it has used until then, and once it is gone until that.
    #[serde(default)]
    pub usage: Usage,
}

/// A kill for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// What the attempt was allowed, in bytes; `None` where it was the host that had no more.
    pub limit_bytes: Option<u64>,
    /// The most that it held at once, in bytes, where the kernel tells.
    pub peak_bytes: Option<u64>,
}

/// A stop by the supervisor because of the disk that the attempt's files take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorageExceeded {
    /// Which bound was passed.
    pub bound: StorageBound,
    /// What its files took on the disk when they were counted, in bytes.
    pub used_bytes: u64,
    /// How many files and directories those were.
    pub used_files: u64,
}

/// What bounds the disk that an attempt's files take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StorageBound {
    /// Its own: so many bytes it was granted.
    Granted(u64),
    /// The host's reserve: the disk had less free than the supervisor keeps, and nobody used more beyond a grant.
    Reserve,
    /// Its directories nest deeper than files are counted.
    Depth,
    /// Its own of files: so many came with what it was granted.
    Files(u64),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// It died of this signal.
    Signal(i32),
    /// It could not be made: the sentence says why.
    StartFailed(String),
    /// Its lease passed and the supervisor stopped it.
    LeaseExpired,
    /// Its host was rebooted under it.
    HostRebooted,
    /// It ended unseen, while no supervisor was there.
    Unknown,
    /// It could not be made, by no fault of its own: the host lacks what a process needs. The sentence says what.
    HostFailed(String),
    /// The kernel killed it for want of memory.
    OutOfMemory(OutOfMemory),
    /// The host's prolog failed before it, so it never began. The sentence says how.
    PrologFailed(String),
    /// The supervisor killed it because of the disk that its files took.
    StorageExceeded(StorageExceeded),
    /// Its host gave it back before the supervisor was told of it, so no process of it was ever made. The sentence says why.
    NotBegun(String),
}

impl Exit {
    /// The code that it exited with, where it did.
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

    /// The signal that it died of, where it did.
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
