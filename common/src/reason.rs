//! Reasons for a step's state: a closed list of codes, a sentence for people and details for programs.

use core::fmt;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use crate::amount::table::{DocumentAmount, key_name};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)*) => {
        /// Stable reason code. The list is closed; the API shows each code as text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ReasonCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)*
        }

        impl ReasonCode {
            /// All codes, in order of declaration.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$variant),*];

            /// The code as the API writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ReasonCode::$variant => $text,)*
                }
            }

            /// Meaning of the code: the states that it occurs in, and the cause.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(ReasonCode::$variant => concat!($($doc),+).trim(),)*
                }
            }
        }
    };
}

codes! {
    /// Queued: the scheduler has not considered the step yet.
    Submitted = "submitted",
    /// Queued: the requested resources are in use. The step is next as soon as they are free.
    WaitingForUnits = "waiting_for_units",
    /// Queued: steps submitted earlier wait for the same hosts.
    WaitingForTurn = "waiting_for_turn",
    /// Queued: the time before which the step does not start has not come.
    WaitingForBegin = "waiting_for_begin",
    /// Queued: other steps, after which the step is to start, have not ended yet.
    WaitingForDependencies = "waiting_for_dependencies",
    /// Queued: the allocation inside which the step is to run does not have its hosts yet.
    WaitingForAllocation = "waiting_for_allocation",
    /// Queued: the pool has never had a node.
    PoolEmpty = "pool_empty",
    /// Queued: the NVIDIA driver of a host has not answered yet, so its GPUs are not known.
    GpusUnknown = "gpus_unknown",
    /// Queued: hosts that could hold the step are unreachable, lost, cordoned or drained.
    NoLiveHost = "no_live_host",
    /// Stopping: a part of the step on another host failed or was lost.
    PeerEnded = "peer_ended",
    /// Queued again: the host that ran the step was lost.
    HostLost = "host_lost",
    /// Queued again: the host that ran the step was rebooted.
    HostRebooted = "host_rebooted",
    /// Queued again: the host could not start the step, through no fault of the step, and was closed to new work.
    HostFailed = "host_failed",
    /// Queued again: the attempt's lease expired before the coordinator was reachable again.
    LeaseExpired = "lease_expired",
    /// Queued again: the host never started the step, because the order came too late or not at all, because its
    /// supervisor does not answer, or because its agent started again meanwhile.
    NotBegun = "not_begun",
    /// Queued again after a failure, because the step has retries left.
    Retry = "retry",
    /// Allocated: a host was chosen and notified.
    Allocated = "allocated",
    /// Starting: the host is creating the step's process.
    Starting = "starting",
    /// Running: the step's process runs.
    Running = "running",
    /// Rejected, or queued if the step may wait for a larger host: no known host could hold it even when empty.
    NoHostFits = "no_host_fits",
    /// Queued: the subject's other steps in the pool use up its limit.
    WaitingForLimit = "waiting_for_limit",
    /// Queued: the step is not preemptible, and the subject's other such steps use up its reserved share.
    WaitingForReserved = "waiting_for_reserved",
    /// Queued: hosts are nominated for the step, and what runs there is being stopped.
    WaitingForRelease = "waiting_for_release",
    /// Rejected: the subject has no policy in any pool that the step may run in.
    NoPolicy = "no_policy",
    /// Rejected: the step requests more than the pool has.
    ExceedsPoolCapacity = "exceeds_pool_capacity",
    /// Rejected: the step requests more than its subject's limit in the pool.
    ExceedsLimit = "exceeds_limit",
    /// Rejected: the step requests more than the allocation has inside which it is to run.
    ExceedsAllocation = "exceeds_allocation",
    /// Rejected: the step is not preemptible and requests more than is reserved for its subject in the pool.
    ExceedsReserved = "exceeds_reserved",
    /// Rejected: the step is not preemptible and requests more CPU, memory or storage of hosts with GPUs than its own
    /// GPUs carry.
    ExceedsEntitlement = "exceeds_entitlement",
    /// Rejected: the pool does not exist.
    UnknownPool = "unknown_pool",
    /// Rejected: no pool has this resource key.
    UnknownResource = "unknown_resource",
    /// Rejected: the step requests something that this version does not support.
    Unsupported = "unsupported",
    /// Ended: the process exited with code 0.
    Completed = "completed",
    /// Ended: the process exited with another code.
    NonZeroExit = "non_zero_exit",
    /// Ended: parts of the array have not succeeded.
    PartsFailed = "parts_failed",
    /// Ended: the process was killed by a signal that Sluice did not send.
    KilledBySignal = "killed_by_signal",
    /// Ended: the process could not be started (no such command, not executable, no such directory).
    StartFailed = "start_failed",
    /// Ended: the exit is unknown. Never counted as success.
    ExitUnknown = "exit_unknown",
    /// Stopping or ended: a user cancelled the step.
    Cancelled = "cancelled",
    /// Stopping or ended: the step ran longer than its `timeout`.
    TimedOut = "timed_out",
    /// Stopping: the host is being drained.
    Drained = "drained",
    /// Stopping or ended: the step was preempted.
    Preempted = "preempted",
    /// Ended: the kernel killed the step because its memory limit, or its host's memory, was used up.
    OutOfMemory = "out_of_memory",
    /// Ended: the host stopped the step because its files took more disk than granted, or the most when the disk was
    /// nearly full.
    StorageExceeded = "storage_exceeded",
    /// Stopping, or ended if no retries are left: a granted GPU has fallen off the bus.
    GpuLost = "gpu_lost",
    /// Queued or suspended: a user suspended the step, and it waits for a user to resume it.
    Held = "held",
    /// Suspending or suspended: the step was preempted and its processes are frozen.
    Suspended = "suspended",
    /// Resuming: the step was granted its resources again and its processes are being restored.
    Resuming = "resuming",
    /// Stopping or queued again: a user asked to requeue the step.
    Requeued = "requeued",
    /// Stopping or queued again: the step could not be suspended or resumed.
    NotSuspended = "not_suspended",
    /// Stopping or queued again: the step was suspended for longer than its `suspend_timeout`.
    SuspendTimeout = "suspend_timeout",
    /// Stopping or ended: the holder of the allocation did not renew it in time.
    NotRenewed = "not_renewed",
    /// Ended: the allocation inside which the step ran, or was to run, is over.
    AllocationEnded = "allocation_ended",
    /// Stopping, or ended if no retries are left: the step's liveness probe failed as often as it may.
    LivenessFailed = "liveness_failed",
    /// Running: the step's readiness probe has not succeeded yet, or fails now.
    NotReady = "not_ready",
    /// Queued again: the host's prolog failed, so the program was not started there.
    PrologFailed = "prolog_failed",
    /// Ended: the step was queued for longer than its `queue_timeout`.
    QueueTimeout = "queue_timeout",
    /// Ended: the step was queued at its `deadline`, after which it does not start.
    DeadlineMissed = "deadline_missed",
    /// Ended: a step after which it was to start has ended in another way than required, so it never starts.
    DependencyFailed = "dependency_failed",
    /// Rejected: a setting exceeds the pool's maximum.
    ExceedsMaximum = "exceeds_maximum",
    /// Rejected: the pool does not permit the step's `on_preempt`.
    OnPreemptNotAllowed = "on_preempt_not_allowed",
    /// Rejected: the step violates a validation rule of the pool, or no host satisfies the rule.
    ValidationFailed = "validation_failed",
    /// Rejected: the step asks for pinned cores, and the pool does not require hosts that can pin.
    CpuModeNotAllowed = "cpu_mode_not_allowed",
    /// Rejected: the pool has no hosts, and the step asks for what only hosts have, such as to run a program.
    PoolWithoutHosts = "pool_without_hosts",
    /// Rejected: the step asks for `privileged`, which no template of the pool allows and passes on.
    PrivilegedNotAllowed = "privileged_not_allowed",
    /// Rejected: the step asks for `host_network`, which no template of the pool allows and passes on.
    HostNetworkNotAllowed = "host_network_not_allowed",
    /// Rejected: the step asks for a mount that no template of the pool allows and passes on.
    MountNotAllowed = "mount_not_allowed",
    /// Rejected: the step asks for an image, and the pool's wrapper runs each step in a container already.
    ImageNotAllowed = "image_not_allowed",
    /// Rejected: with the pool's templates applied, the step is larger than a process can be given.
    MergeTooLarge = "merge_too_large",
    /// Queued: the coordinator was restored from an earlier state, and nothing new starts until hosts have reported
    /// what they run.
    Recovering = "recovering",
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A number or word in a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Detail {
    /// An amount or count.
    Number(u64),
    /// A name or other text.
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

/// Reason for a step's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// Code for programs.
    pub code: ReasonCode,
    /// One sentence for people with the numbers and, if possible, what to do next.
    pub message: String,
    /// Numbers and names in the message, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub detail: BTreeMap<String, Detail>,
}

impl Reason {
    /// Makes a reason without details.
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

    /// Adds the name of a resource key as `key`.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        self.with("key", key_name(key))
    }

    /// Adds an amount of a resource key in the spelling of documents: a number, or a text such as `0.5` or `64GiB`.
    #[must_use]
    pub fn with_amount(self, name: &str, key: &str, amount: u64) -> Self {
        match DocumentAmount::of(key, amount).1 {
            DocumentAmount::Count(count) => self.with(name, count),
            DocumentAmount::Decimal(number) => self.with(name, number.to_string().as_str()),
            DocumentAmount::Bytes(text) => self.with(name, text.as_str()),
        }
    }
}
