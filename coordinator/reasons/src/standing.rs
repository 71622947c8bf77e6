//! The reason for a step's state, or what it waits for. The sentences are in `messages/standing.rs` and
//! `messages/wait.rs`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::dependency::Dependency;
use sluice_common::id::{NodeName, PlatformName, PoolName, StepId, Subject};
use sluice_common::inventory::Capability;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::time::{Span, Time};

use crate::Cause;
use crate::rejection::{DomainShortage, ForbiddingHosts, Rejection, Shortage};

/// The reason why a step is in its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepReason {
    /// The step does not wait for the scheduler.
    Recorded {
        /// The recorded reason for its state.
        why: Cause,
        /// The host that delays it.
        host_block: Option<HostBlock>,
    },
    /// The step waits for the scheduler.
    Waiting {
        /// The reason for the end of its earlier attempt, if there was one.
        after: Option<Cause>,
        wait: Box<Wait>,
    },
}

/// A host that does not do what a step waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlock {
    pub node: NodeName,
    pub cause: HostBlockCause,
}

/// The reason why a host does not act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostBlockCause {
    /// The host has no supervisor; the text is its agent's.
    Unsupervised(String),
    /// The host is silent, and is declared lost after this time.
    Silent(Span),
}

/// The reason why a queued step does not start in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The coordinator was restored from an older store.
    Recovery {
        /// Nodes that have not reported their attempts yet.
        unreported: Vec<NodeName>,
        /// Longest remaining time of the recovery.
        left: Span,
    },
    /// The step does not start before this time.
    Begin {
        at: Time,
    },
    /// Other steps must have ended before.
    Dependencies {
        /// These, each with its present state; the first ones if there are many.
        unmet: Vec<(Dependency, StepState)>,
        /// Number of all of them.
        count: u64,
    },
    /// The step is a part of an array and has not entered the queue.
    Array {
        array: StepId,
        /// Number of parts that enter before it.
        ahead: u64,
        /// Most parts at once.
        at_once: Option<u32>,
    },
    /// The step is to run inside an allocation.
    Inside {
        allocation: StepId,
        wait: AllocationWait,
    },
    /// The scheduler does not list the step; the recorded reason for its state tells why.
    Unlisted {
        why: Cause,
    },
    /// The subject no longer has a policy in any pool that the step may run in.
    NoPolicy {
        subject: Subject,
    },
    Next {
        pool: PoolName,
    },
    /// The pool has no host yet.
    PoolEmpty {
        pool: PoolName,
    },
    /// The step asks for GPUs, and a host does not know its own yet.
    GpusUnknown {
        pool: PoolName,
        node: NodeName,
    },
    /// The step could never be granted with the current hosts and terms. It was accepted because it may wait for a
    /// larger host, or because hosts or terms were others then.
    Infeasible {
        why: Rejection,
    },
    /// The resources are being freed for the step.
    Release {
        pool: PoolName,
        runs: u64,
    },
    /// The subject's limit is used up.
    Limit {
        pool: PoolName,
        subject: Subject,
        amount: AmountUse,
    },
    /// The step is not preemptible, and the subject's reserved amount is used up.
    Reserved {
        pool: PoolName,
        subject: Subject,
        amount: AmountUse,
    },
    /// Every host that could hold it takes no work now.
    NoOpenHost {
        pool: PoolName,
        wanted: HostDemand,
        nearest: NodeName,
        why: Unschedulable,
        closed: Option<ForbiddingHosts>,
    },
    /// Another step goes first.
    Turn {
        pool: PoolName,
        behind: StepId,
        /// Time at which that one starts at the latest, if known: what ends before may start now.
        starts_by: Option<Time>,
    },
    /// Too little of a declared key is free.
    Pool {
        pool: PoolName,
        key: String,
        asked: u64,
        free: u64,
        /// The pool whose default amount is asked.
        by_default: Option<PoolName>,
    },
    /// Too few hosts have room within any one domain of the level that it asks for.
    Domains {
        pool: PoolName,
        closest: DomainShortage,
    },
    /// Too little is free on its hosts.
    Hosts {
        pool: PoolName,
        wanted: HostDemand,
        /// The host that lacks least, with its free amount. `None` if a gang finds some hosts and not enough.
        closest: Option<Shortage>,
        /// Unfit or cordoned GPUs of that host, if it is short of GPUs.
        unfit: Option<UnfitGpus>,
        closed: Option<ForbiddingHosts>,
    },
}

/// The reason why a step does not start inside its allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationWait {
    /// The allocation does not have its hosts yet.
    Allocation { state: StepState },
    /// A host of the allocation takes no orders now.
    Host { node: NodeName, state: NodeState },
    /// Another step inside the allocation goes first.
    Turn { behind: StepId },
    /// Other steps inside the allocation hold what the step asks for.
    Room {
        /// The host that lacks least.
        shortage: Shortage,
        /// The steps that hold something there, in order of submission.
        holders: Vec<StepId>,
        /// GPUs of the allocation that are not granted, if that host is short of GPUs.
        unfit: Option<UnfitGpus>,
    },
}

/// Used and allowed amount of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountUse {
    pub key: String,
    pub asked: u64,
    pub used: u64,
    pub most: u64,
    /// The pool whose default amount is asked.
    pub by_default: Option<PoolName>,
}

/// Number of hosts that a step needs, and their platforms; any if none is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDemand {
    pub hosts: u32,
    pub platforms: Vec<PlatformName>,
}

/// The reason why a host takes no work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unschedulable {
    /// The node is not remembered.
    Gone,
    /// The node lacks capabilities that its pool requires.
    Lacks(BTreeSet<Capability>),
    /// An admin cordoned the node, with this text.
    Cordoned(String),
    /// An admin drained the node, with this text.
    Drained(String),
    /// The node has GPUs that are not granted.
    ShortOfGpus(UnfitGpus),
    /// The node is in this state, with the agent's reason if it has no supervisor.
    State(NodeState, Option<String>),
}

/// GPUs of a host that are not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitGpus {
    pub count: u64,
    /// The first of the GPUs.
    pub gpu: String,
    /// The reason why it is not granted.
    pub why: String,
}

impl UnfitGpus {
    /// Counts GPUs that are not granted, each with the reason; `None` if there are none.
    pub fn of(gpus: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let mut gpus = gpus.into_iter();
        let (gpu, why) = gpus.next()?;
        let count = 1 + gpus.count() as u64;
        Some(Self { count, gpu, why })
    }
}

impl StepReason {
    /// Stable code for programs.
    pub fn code(&self) -> ReasonCode {
        match self {
            StepReason::Recorded { why, .. }
            | StepReason::Waiting {
                after: Some(why), ..
            } => why.code(),
            StepReason::Waiting { after: None, wait } => wait.code(),
        }
    }
}

impl Wait {
    /// Stable code for programs.
    pub fn code(&self) -> ReasonCode {
        match self {
            Wait::Recovery { .. } => ReasonCode::Recovering,
            Wait::Begin { .. } => ReasonCode::WaitingForBegin,
            Wait::Dependencies { .. } => ReasonCode::WaitingForDependencies,
            Wait::Array { .. } => ReasonCode::WaitingForTurn,
            Wait::Inside { wait, .. } => match wait {
                AllocationWait::Allocation { .. } => ReasonCode::WaitingForAllocation,
                AllocationWait::Host { .. } => ReasonCode::NoLiveHost,
                AllocationWait::Turn { .. } => ReasonCode::WaitingForTurn,
                AllocationWait::Room { .. } => ReasonCode::WaitingForUnits,
            },
            Wait::Unlisted { why } => why.code(),
            Wait::NoPolicy { .. } => ReasonCode::NoPolicy,
            Wait::PoolEmpty { .. } => ReasonCode::PoolEmpty,
            Wait::GpusUnknown { .. } => ReasonCode::GpusUnknown,
            Wait::Infeasible { why } => why.code(),
            Wait::Release { .. } => ReasonCode::WaitingForRelease,
            Wait::Limit { .. } => ReasonCode::WaitingForLimit,
            Wait::Reserved { .. } => ReasonCode::WaitingForReserved,
            Wait::NoOpenHost { .. } => ReasonCode::NoLiveHost,
            Wait::Turn { .. } => ReasonCode::WaitingForTurn,
            Wait::Next { .. } | Wait::Pool { .. } | Wait::Domains { .. } | Wait::Hosts { .. } => {
                ReasonCode::WaitingForUnits
            }
        }
    }
}
