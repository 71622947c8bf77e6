//! What a step waits for, or why it is in its state. The sentences are in `messages/standing.rs` and
//! `messages/wait.rs`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, PoolName, StepId, Subject};
use sluice_common::inventory::Capability;
use sluice_common::reason::ReasonCode;
use sluice_common::state::NodeState;
use sluice_common::time::Span;

use crate::Cause;
use crate::rejection::{ForbiddingHosts, Rejection, Shortage};

/// Why a step is in its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepReason {
    /// The step waits for nothing that the scheduler could give.
    Recorded {
        /// How it came there.
        why: Cause,
        /// The host that holds it up.
        host_block: Option<HostBlock>,
    },
    /// The step waits for the scheduler.
    Waiting {
        /// Why the attempt before is over, if it waits again.
        after: Option<Cause>,
        wait: Box<Wait>,
    },
}

/// A host that does not do what a step waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlock {
    pub node: NodeName,
    /// Why it does not.
    pub cause: HostBlockCause,
}

/// Why a host does not act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostBlockCause {
    /// The host has no supervisor; the text is its agent's.
    Unsupervised(String),
    /// The host is silent, and is declared lost after this time.
    Silent(Span),
}

/// What keeps a step from starting in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The coordinator was restored from an older store.
    Recovery {
        /// Nodes that have not reported what they run.
        unreported: Vec<NodeName>,
        /// After so long it is over at the latest.
        left: Span,
    },
    /// The scheduler does not have it: it is where it came, and that says why.
    Unlisted {
        why: Cause,
    },
    /// The subject has a policy no longer in any pool that it may run in.
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
    /// The step could never be granted as things are. It was accepted all the same, because it may wait for a larger
    /// host or because hosts or terms were others then.
    Infeasible {
        why: Rejection,
    },
    /// The place is being made free.
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
    /// The step is not preemptible, and what is reserved for such is used up.
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
    /// Another goes before it.
    Turn {
        pool: PoolName,
        behind: StepId,
    },
    /// Too little of a declared key is free.
    Pool {
        pool: PoolName,
        key: String,
        asked: u64,
        free: u64,
    },
    /// Too little is free on its hosts.
    Hosts {
        pool: PoolName,
        wanted: HostDemand,
        /// The host that lacks least, and what is free of it. `None` if a gang finds some hosts and not enough.
        closest: Option<Shortage>,
        /// GPUs of that host which are granted to nobody, if it is short of GPUs.
        unfit: Option<UnfitGpus>,
        closed: Option<ForbiddingHosts>,
    },
}

/// How much of a key is used of what may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountUse {
    pub key: String,
    pub asked: u64,
    pub used: u64,
    pub most: u64,
}

/// On how many hosts a step must find room, and of which platforms; of any where none is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDemand {
    pub hosts: u32,
    pub platforms: Vec<PlatformName>,
}

/// Why a host takes no work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unschedulable {
    /// The step is not remembered.
    Gone,
    /// The step lacks what its pool requires.
    Lacks(BTreeSet<Capability>),
    /// An admin closed it, in these words.
    Cordoned(String),
    /// An admin wants it empty, in these words.
    Drained(String),
    /// GPUs of it are granted to nobody.
    ShortOfGpus(UnfitGpus),
    /// The step is in this state; why, in its agent's words, if it has no supervisor.
    State(NodeState, Option<String>),
}

/// GPUs of a host that are granted to nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitGpus {
    pub count: u64,
    /// The first of them.
    pub gpu: String,
    /// Why it is not granted.
    pub why: String,
}

impl StepReason {
    /// The code that programs read.
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
    /// The code that programs read.
    pub fn code(&self) -> ReasonCode {
        match self {
            Wait::Recovery { .. } => ReasonCode::Recovering,
            Wait::Unlisted { why } => why.code(),
            Wait::NoPolicy { .. } => ReasonCode::NoPolicy,
            Wait::PoolEmpty { .. } => ReasonCode::PoolEmpty,
            Wait::Infeasible { why } => why.code(),
            Wait::Release { .. } => ReasonCode::WaitingForRelease,
            Wait::Limit { .. } => ReasonCode::WaitingForLimit,
            Wait::Reserved { .. } => ReasonCode::WaitingForReserved,
            Wait::NoOpenHost { .. } => ReasonCode::NoLiveHost,
            Wait::Turn { .. } => ReasonCode::WaitingForTurn,
            Wait::Next { .. } | Wait::Pool { .. } | Wait::Hosts { .. } => {
                ReasonCode::WaitingForUnits
            }
        }
    }
}
