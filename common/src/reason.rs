//! Why a step is where it is: a closed list of codes, a sentence for people and the numbers for programs.

use core::fmt;

use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)*) => {
        /// A stable reason code. The list is closed: every one is documented here and shown by the API as text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ReasonCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)*
        }

        impl ReasonCode {
            /// Every code there is.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$variant),*];

            /// The code as the API writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ReasonCode::$variant => $text,)*
                }
            }

            /// What it means: of a step in which state, and why.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(ReasonCode::$variant => concat!($($doc),+).trim(),)*
                }
            }
        }
    };
}

codes! {
    /// Queued: it has not been looked at yet.
    Submitted = "submitted",
    /// Queued: the units are in use; it is its turn as soon as they are free.
    WaitingForUnits = "waiting_for_units",
    /// Queued: steps that were submitted before it wait for the same hosts.
    WaitingForTurn = "waiting_for_turn",
    /// Queued: the pool never had a node.
    PoolEmpty = "pool_empty",
    /// Queued: hosts that could hold it are silent, lost, cordoned or drained.
    NoLiveHost = "no_live_host",
    /// Stopping: a part of it on another host failed or was lost.
    PeerEnded = "peer_ended",
    /// Queued again: the host that ran it was lost.
    HostLost = "host_lost",
    /// Queued again: the host that ran it was rebooted.
    HostRebooted = "host_rebooted",
    /// Queued again: the host could not start it, by no fault of the step's, and was closed to new work.
    HostFailed = "host_failed",
    /// Queued again: the attempt's lease passed before the coordinator was heard again.
    LeaseExpired = "lease_expired",
    /// Queued again: its host never began it. The order came too late or not at all, or the host's supervisor is away.
    NotBegun = "not_begun",
    /// Queued again after a failure, because it has retries left.
    Retry = "retry",
    /// Allocated: a host was chosen and told.
    Allocated = "allocated",
    /// Starting: the host is making its process.
    Starting = "starting",
    /// Running: its process runs.
    Running = "running",
    /// Rejected, or queued where it may wait for a larger host: no remembered host could hold it even when empty.
    NoHostFits = "no_host_fits",
    /// Queued: the subject's other steps in the pool use up its limit.
    WaitingForLimit = "waiting_for_limit",
    /// Queued: it is not preemptible, and the subject's other such steps use up what is reserved.
    WaitingForReserved = "waiting_for_reserved",
    /// Queued: its place is promised, and what runs there was told to go.
    WaitingForRelease = "waiting_for_release",
    /// Rejected: the subject has no policy in any pool that it may run in.
    NoPolicy = "no_policy",
    /// Rejected: it asks for more than the pool has.
    ExceedsPoolCapacity = "exceeds_pool_capacity",
    /// Rejected: it asks for more than its subject may ever use in the pool.
    ExceedsLimit = "exceeds_limit",
    /// Rejected: it is not preemptible and asks for more than is reserved for its subject in the pool.
    ExceedsReserved = "exceeds_reserved",
    /// Rejected: the pool does not exist.
    UnknownPool = "unknown_pool",
    /// Rejected: no pool counts this key.
    UnknownResource = "unknown_resource",
    /// Rejected: it asks for something that this version does not do yet.
    Unsupported = "unsupported",
    /// Ended: its process exited with code 0.
    Completed = "completed",
    /// Ended: its process exited with another code.
    NonZeroExit = "non_zero_exit",
    /// Ended: its process died of a signal that Sluice did not send.
    KilledBySignal = "killed_by_signal",
    /// Ended: the process could not be made (no such command, not executable, no such directory).
    StartFailed = "start_failed",
    /// Ended: nobody saw how. Never taken for success.
    ExitUnknown = "exit_unknown",
    /// Stopping or ended: somebody cancelled it.
    Cancelled = "cancelled",
    /// Stopping or ended: it ran longer than its `timeout`.
    TimedOut = "timed_out",
    /// Stopping: its host is being drained.
    Drained = "drained",
    /// Stopping or ended: a step that goes before it needed its units.
    Preempted = "preempted",
    /// Ended: the kernel killed it because it had used up its memory, or its host had none left.
    OutOfMemory = "out_of_memory",
    /// Ended: its host stopped it because its files took more of the disk than it was granted, or the most when the disk was nearly full.
    StorageExceeded = "storage_exceeded",
    /// Stopping, or ended while it has no retries left: a GPU that it was given has fallen off the bus.
    GpuLost = "gpu_lost",
    /// Queued or suspended: somebody suspended it, and it waits for somebody to resume it.
    Held = "held",
    /// Suspending or suspended: it gives way to another step, frozen.
    Suspended = "suspended",
    /// Resuming: it was granted its place again and is being brought back.
    Resuming = "resuming",
    /// Stopping or queued again: somebody wants it to start anew.
    Requeued = "requeued",
    /// Stopping or queued again: it was to be frozen or brought back, which could not be done.
    NotSuspended = "not_suspended",
    /// Stopping or queued again: it was frozen for longer than its `suspend_timeout`.
    SuspendTimeout = "suspend_timeout",
    /// Queued again: the prolog of the host failed, so its program was not started there.
    PrologFailed = "prolog_failed",
    /// Ended: it waited for its units for longer than its `queue_timeout`.
    QueueTimeout = "queue_timeout",
    /// Rejected: a setting of it is more than the pool lets steps have.
    ExceedsMaximum = "exceeds_maximum",
    /// Rejected: the pool does not let steps give way as it would.
    OnPreemptNotAllowed = "on_preempt_not_allowed",
    /// Rejected: it does not keep an assertion of the pool's validations, or no host of the pool does for it.
    ValidationFailed = "validation_failed",
    /// Rejected: it is to have processors of its own, which the pool does not require its hosts to be able to give.
    CpuModeNotAllowed = "cpu_mode_not_allowed",
    /// Rejected: it asks for `privileged`, which no template of the pool allows, or hands on.
    PrivilegedNotAllowed = "privileged_not_allowed",
    /// Rejected: it asks for `host_network`, which no template of the pool allows, or hands on.
    HostNetworkNotAllowed = "host_network_not_allowed",
    /// Rejected: it would mount what no template of the pool allows, or hands on.
    MountNotAllowed = "mount_not_allowed",
    /// Rejected: with what the pool's templates add it is larger than a process can be given.
    MergeTooLarge = "merge_too_large",
    /// Queued: the coordinator was brought back from an earlier time, and nothing new starts until hosts have told what they
    /// run.
    Recovering = "recovering",
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One number or word behind a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Detail {
    /// An amount.
    Number(u64),
    /// A name.
    Text(String),
}

impl From<u64> for Detail {
    fn from(number: u64) -> Self {
        Detail::Number(number)
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Detail::Text(text.into())
    }
}

/// Why a step is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// For people: one sentence, with the numbers, that says what would help where something would.
    pub message: String,
    /// The numbers and names in the message, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub detail: BTreeMap<String, Detail>,
}

impl Reason {
    /// A reason without numbers.
    pub fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: BTreeMap::new(),
        }
    }

    /// Adds a number or name.
    #[must_use]
    pub fn with(mut self, name: &str, detail: impl Into<Detail>) -> Self {
        self.detail.insert(name.into(), detail.into());
        self
    }
}
