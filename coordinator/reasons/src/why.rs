//! The cause of a step's last change of state, as the state and the log store it. The sentences are in
//! `messages/why.rs`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::array::PartCounts;
use sluice_common::dependency::Dependency;
use sluice_common::id::{NodeName, StepId};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::time::{Span, Time};
use sluice_common::wire::{StopReason, SuspendFailure};

use crate::Rejection;

/// The cause of a step's last change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Cause {
    /// The step was accepted and has not been scheduled yet.
    Submitted,
    /// Resources were granted to the step.
    Allocated {
        /// The hosts, by rank.
        nodes: Vec<NodeName>,
    },
    /// A host runs the step, and the store is from a time before that was known.
    Adopted { node: NodeName },
    /// A host is starting the process.
    Starting {
        /// The host that reported last.
        node: NodeName,
        /// Number of inputs that it fetches first.
        #[serde(default, skip_serializing_if = "is_zero")]
        inputs: usize,
    },
    /// All processes of the step run.
    Running {
        /// The hosts, by rank.
        nodes: Vec<NodeName>,
    },
    /// The step is being stopped.
    Stopping { cause: StopReason },
    /// The step is preempted by another step and is being frozen.
    Suspending,
    /// The step was preempted by another step, frozen.
    Suspended,
    /// A caller suspended the step, whether it was running or queued.
    Held,
    /// The step was granted its resources again and is being resumed.
    Resuming,
    /// The step could not be frozen or resumed.
    NotSuspended { failure: SuspendFailure },
    /// The attempt of a part exited with code 0; the part is remembered by its array alone.
    Completed,
    /// The parts of an array are at work, or have ended.
    Parts { counts: PartCounts },
    /// A caller cancelled the step.
    Cancelled,
    /// The step ran longer than its `timeout`.
    TimedOut,
    /// The step was queued for longer than its `queue_timeout`.
    WaitedTooLong { queue_timeout: Span },
    /// The step was queued at its `deadline`.
    DeadlineMissed { deadline: Time },
    /// A step after which it was to start has not ended as required.
    DependencyFailed {
        /// The dependency that can never be met.
        dependency: Dependency,
        /// The state in which that step ended.
        ended: StepState,
        /// The steps that led there: the first that did not end as required, and those that never started because of the
        /// one before them, up to that step. Only the first and the last are kept of a long list.
        chain: Vec<StepId>,
    },
    /// The host was drained.
    Drained { node: NodeName },
    /// The step was preempted by another step.
    Preempted,
    /// A GPU of the step has fallen off the bus.
    GpuLost { node: NodeName },
    /// A caller requeued the step.
    Requeued,
    /// The step was frozen for longer than its `suspend_timeout`.
    SuspendedTooLong,
    /// The holder of the allocation did not renew it in time.
    NotRenewed,
    /// The allocation inside which the step ran, or was to run, is over or ends.
    AllocationEnded {
        allocation: StepId,
        /// The reason for which the allocation ends; `peer_ended` if it ended by itself.
        cause: StopReason,
    },
    /// The step's liveness probe failed as often as it may.
    LivenessFailed {
        node: NodeName,
        /// Text about what the probe saw, if its host has reported that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saw: Option<String>,
    },
    /// The processes of the step run, and the step is not ready on a host.
    NotReady {
        node: NodeName,
        /// Text about what the readiness probe saw, if it has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saw: Option<String>,
    },
    /// The step was stopped on a host that had been declared lost.
    Superseded { node: NodeName },
    /// The host was declared lost.
    HostLost { node: NodeName },
    /// The store was restored, and the host no longer knows the attempt.
    LostTrack { node: NodeName },
    /// The attempt ended by itself.
    Exited { node: NodeName, exit: Exit },
    /// The cause of one part of a gang, for the whole.
    OfRank {
        rank: u64,
        node: NodeName,
        /// The cause of that part.
        part: Box<Cause>,
    },
    /// The step failed and is retried.
    Retry {
        /// The cause of the failure.
        after: Box<Cause>,
        /// Number of retries used up, including this one.
        spent: u32,
        /// Number of allowed retries.
        allowed: u32,
    },
    /// The step can never be granted.
    Rejected {
        /// Rejection by the most preferred pool.
        first: Box<Rejection>,
        /// Rejections by the other pools.
        elsewhere: Vec<Rejection>,
    },
    /// A finished sentence, from logs and snapshots of earlier releases.
    #[serde(untagged)]
    Said(Reason),
}

impl Cause {
    /// Makes the rejection for one reason.
    pub fn rejected(why: Rejection) -> Self {
        Cause::Rejected {
            first: Box::new(why),
            elsewhere: Vec::new(),
        }
    }

    /// Stable code for programs.
    pub fn code(&self) -> ReasonCode {
        match self {
            Cause::Submitted => ReasonCode::Submitted,
            Cause::Allocated { .. } | Cause::Adopted { .. } => ReasonCode::Allocated,
            Cause::Starting { .. } => ReasonCode::Starting,
            Cause::Running { .. } => ReasonCode::Running,
            Cause::Stopping { cause } => of_stop(*cause),
            Cause::Suspending | Cause::Suspended => ReasonCode::Suspended,
            Cause::Held => ReasonCode::Held,
            Cause::Resuming => ReasonCode::Resuming,
            Cause::NotSuspended { .. } => ReasonCode::NotSuspended,
            Cause::Completed => ReasonCode::Completed,
            Cause::Parts { counts } => of_parts(counts),
            Cause::Cancelled => ReasonCode::Cancelled,
            Cause::TimedOut => ReasonCode::TimedOut,
            Cause::WaitedTooLong { .. } => ReasonCode::QueueTimeout,
            Cause::DeadlineMissed { .. } => ReasonCode::DeadlineMissed,
            Cause::DependencyFailed { .. } => ReasonCode::DependencyFailed,
            Cause::Drained { .. } => ReasonCode::Drained,
            Cause::Preempted => ReasonCode::Preempted,
            Cause::GpuLost { .. } => ReasonCode::GpuLost,
            Cause::Requeued => ReasonCode::Requeued,
            Cause::SuspendedTooLong => ReasonCode::SuspendTimeout,
            Cause::NotRenewed => ReasonCode::NotRenewed,
            Cause::AllocationEnded { .. } => ReasonCode::AllocationEnded,
            Cause::LivenessFailed { .. } => ReasonCode::LivenessFailed,
            Cause::NotReady { .. } => ReasonCode::NotReady,
            Cause::Superseded { .. } | Cause::HostLost { .. } | Cause::LostTrack { .. } => {
                ReasonCode::HostLost
            }
            Cause::Exited { exit, .. } => of_exit(exit),
            Cause::OfRank { part, .. } => part.code(),
            Cause::Retry { .. } => ReasonCode::Retry,
            Cause::Rejected { first, .. } => first.code(),
            Cause::Said(reason) => reason.code,
        }
    }
}

fn of_parts(counts: &PartCounts) -> ReasonCode {
    if counts.ended() < counts.total {
        return ReasonCode::Running;
    }
    match (counts.failed, counts.cancelled) {
        (0, 0) => ReasonCode::Completed,
        (0, _) => ReasonCode::Cancelled,
        (_, _) => ReasonCode::PartsFailed,
    }
}

fn of_stop(cause: StopReason) -> ReasonCode {
    match cause {
        StopReason::Cancelled => ReasonCode::Cancelled,
        StopReason::TimedOut => ReasonCode::TimedOut,
        StopReason::Drained => ReasonCode::Drained,
        StopReason::Preempted => ReasonCode::Preempted,
        StopReason::PeerEnded => ReasonCode::PeerEnded,
        StopReason::GpuLost => ReasonCode::GpuLost,
        StopReason::Requeued => ReasonCode::Requeued,
        StopReason::NotSuspended => ReasonCode::NotSuspended,
        StopReason::SuspendedTooLong => ReasonCode::SuspendTimeout,
        StopReason::NotRenewed => ReasonCode::NotRenewed,
        StopReason::LivenessFailed => ReasonCode::LivenessFailed,
        StopReason::Superseded => ReasonCode::HostLost,
    }
}

fn of_exit(exit: &Exit) -> ReasonCode {
    match exit {
        Exit::Code(0) => ReasonCode::Completed,
        Exit::Code(_) => ReasonCode::NonZeroExit,
        Exit::Signal(_) => ReasonCode::KilledBySignal,
        Exit::StartFailed(_) => ReasonCode::StartFailed,
        Exit::HostFailed(_) => ReasonCode::HostFailed,
        Exit::PrologFailed(_) => ReasonCode::PrologFailed,
        Exit::NotBegun(_) => ReasonCode::NotBegun,
        Exit::LeaseExpired => ReasonCode::LeaseExpired,
        Exit::HostRebooted => ReasonCode::HostRebooted,
        Exit::OutOfMemory(_) => ReasonCode::OutOfMemory,
        Exit::StorageExceeded(_) => ReasonCode::StorageExceeded,
        Exit::Unknown => ReasonCode::ExitUnknown,
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_a_code_and_parameters_and_no_sentence() {
        let node: NodeName = "n".parse().expect("a name");
        let exit = Exit::Code(3);
        let why = Cause::Retry {
            after: Box::new(Cause::Exited { node, exit }),
            spent: 1,
            allowed: 2,
        };
        let stored = r#"{"why":"retry","after":{"why":"exited","node":"n","exit":{"code":3}},"spent":1,"allowed":2}"#;
        assert_eq!(serde_json::to_string(&why).expect("plain data"), stored);
        assert_eq!(
            serde_json::from_str::<Cause>(stored).expect("as written"),
            why
        );
        let reason = why.to_reason();
        assert_eq!(
            reason.message,
            "its process exited with code 3; this is retry 1 of 2"
        );
        assert_eq!(
            (reason.code, why.code()),
            (ReasonCode::Retry, ReasonCode::Retry)
        );
    }

    #[test]
    fn a_sentence_of_an_earlier_release_is_read_and_said_as_it_was() {
        let stored =
            r#"{"code":"retry","message":"it broke","detail":{"after":"non_zero_exit","retry":1}}"#;
        let why: Cause = serde_json::from_str(stored).expect("the form before");
        assert!(matches!(why, Cause::Said(_)), "{why:?}");
        assert_eq!(why.code(), ReasonCode::Retry);
        assert_eq!(why.to_reason().message, String::from("it broke"));
        assert_eq!(serde_json::to_string(&why).expect("plain data"), stored);
        let neither: Result<Cause, _> = serde_json::from_str(r#"{"why":"gone"}"#);
        assert!(neither.is_err(), "{neither:?}");
    }
}
