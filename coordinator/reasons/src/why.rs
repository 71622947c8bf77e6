//! Why a step came to where it is, as the state and the log keep it. Its sentences are in `messages/why.rs`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::NodeName;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{StopReason, SuspendFailure};

use crate::Rejection;

/// Why a step came to where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Cause {
    /// The step was accepted, not scheduled yet.
    Submitted,
    /// Resources were granted to it.
    Allocated {
        /// The hosts, by rank.
        nodes: Vec<NodeName>,
    },
    /// A host has it, and the store is of a time before that was known.
    Adopted { node: NodeName },
    /// A host makes its process.
    Starting {
        /// The host that said so last.
        node: NodeName,
    },
    /// All its processes run.
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
    /// A caller suspended it, whether it runs or waits.
    Held,
    /// The step was granted its place again and is being brought back.
    Resuming,
    /// The step was to be frozen or brought back, which could not be done.
    NotSuspended {
        /// What stood in the way.
        failure: SuspendFailure,
    },
    /// A caller cancelled it.
    Cancelled,
    /// The step ran longer than its `timeout`.
    TimedOut,
    /// The step waited for its resources for longer than it may.
    WaitedTooLong {
        /// Time for which it may.
        queue_timeout: Span,
    },
    /// The host was drained.
    Drained { node: NodeName },
    /// The step was preempted by another step.
    Preempted,
    /// A GPU that it was given has fallen off the bus.
    GpuLost { node: NodeName },
    /// A caller had it start again.
    Requeued,
    /// The step was frozen for longer than its `suspend_timeout`.
    SuspendedTooLong,
    /// The step was stopped on a host that had been declared lost.
    Superseded { node: NodeName },
    /// The host was declared lost.
    HostLost { node: NodeName },
    /// The store was put back, and the host no longer knows the attempt.
    LostTrack { node: NodeName },
    /// The attempt ended by itself.
    Exited { node: NodeName, exit: Exit },
    /// One part of a gang, for the whole.
    OfRank {
        rank: u64,
        node: NodeName,
        /// What became of it.
        part: Box<Cause>,
    },
    /// The step failed and is tried again.
    Retry {
        /// How it failed.
        after: Box<Cause>,
        /// How many of its retries are used up, this one included.
        spent: u32,
        /// How many it has.
        allowed: u32,
    },
    /// The step can never be granted.
    Rejected {
        /// For the most preferred pool.
        first: Box<Rejection>,
        /// For the others.
        elsewhere: Vec<Rejection>,
    },
    /// A finished sentence, as logs and snapshots of earlier releases hold it.
    #[serde(untagged)]
    Said(Reason),
}

impl Cause {
    /// A rejection for one reason.
    pub fn rejected(why: Rejection) -> Self {
        Cause::Rejected {
            first: Box::new(why),
            elsewhere: Vec::new(),
        }
    }

    /// The code that programs read.
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
            Cause::Cancelled => ReasonCode::Cancelled,
            Cause::TimedOut => ReasonCode::TimedOut,
            Cause::WaitedTooLong { .. } => ReasonCode::QueueTimeout,
            Cause::Drained { .. } => ReasonCode::Drained,
            Cause::Preempted => ReasonCode::Preempted,
            Cause::GpuLost { .. } => ReasonCode::GpuLost,
            Cause::Requeued => ReasonCode::Requeued,
            Cause::SuspendedTooLong => ReasonCode::SuspendTimeout,
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

#[cfg(test)]
mod tests {
    use alloc::string::String;

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
        let kept = r#"{"why":"retry","after":{"why":"exited","node":"n","exit":{"code":3}},"spent":1,"allowed":2}"#;
        assert_eq!(serde_json::to_string(&why).expect("plain data"), kept);
        assert_eq!(
            serde_json::from_str::<Cause>(kept).expect("as written"),
            why
        );
        let said = why.to_reason();
        assert_eq!(
            said.message,
            "its process exited with code 3; this is retry 1 of 2"
        );
        assert_eq!(
            (said.code, why.code()),
            (ReasonCode::Retry, ReasonCode::Retry)
        );
    }

    #[test]
    fn a_sentence_of_an_earlier_release_is_read_and_said_as_it_was() {
        let kept =
            r#"{"code":"retry","message":"it broke","detail":{"after":"non_zero_exit","retry":1}}"#;
        let why: Cause = serde_json::from_str(kept).expect("the form before");
        assert!(matches!(why, Cause::Said(_)), "{why:?}");
        assert_eq!(why.code(), ReasonCode::Retry);
        assert_eq!(why.to_reason().message, String::from("it broke"));
        assert_eq!(serde_json::to_string(&why).expect("plain data"), kept);
        let neither: Result<Cause, _> = serde_json::from_str(r#"{"why":"gone"}"#);
        assert!(neither.is_err(), "{neither:?}");
    }
}
