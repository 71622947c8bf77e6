//! Why a step is in its state.

use sluice_common::array::PartCounts;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::supervision::{Exit, OutOfMemory, StorageBound, StorageExceeded};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{MemoryShortage, StopReason, SuspendFailure};
use sluice_reasons::standing::{HostBlock, HostBlockCause};
use sluice_reasons::{Cause, Rejection, StepReason, Wait};

use crate::{Page, chain, name};

pub(crate) fn write(page: &mut Page) {
    page.heading("Why a step is in its state (Cause)");
    for cause in chain(after) {
        page.reason(&cause.to_reason());
    }
    page.heading("What it waits for besides (StepReason)");
    for reason in chain(after_step_reason) {
        page.reason(&reason.to_reason());
    }
}

/// An array at work, and the ways in which one ends.
fn part_counts() -> [PartCounts; 4] {
    let ended = |succeeded, failed, cancelled| PartCounts {
        total: 1000,
        succeeded,
        failed,
        cancelled,
        ..PartCounts::default()
    };
    let at_work = PartCounts {
        waiting: 214,
        queued: 2,
        running: 50,
        ..ended(731, 3, 0)
    };
    [
        at_work,
        ended(1000, 0, 0),
        ended(997, 3, 0),
        ended(900, 0, 100),
    ]
}

fn after(last: Option<&Cause>) -> Vec<Cause> {
    let node = || name("gpu-1");
    match last {
        None => vec![Cause::Submitted],
        Some(Cause::Submitted) => vec![
            Cause::Allocated {
                nodes: vec![node()],
            },
            Cause::Allocated {
                nodes: vec![node(), name("gpu-2")],
            },
        ],
        Some(Cause::Allocated { .. }) => vec![Cause::Adopted { node: node() }],
        Some(Cause::Adopted { .. }) => [0, 1, 3]
            .map(|inputs| Cause::Starting {
                node: node(),
                inputs,
            })
            .into(),
        Some(Cause::Starting { .. }) => vec![
            Cause::Running {
                nodes: vec![node()],
            },
            Cause::Running {
                nodes: vec![node(), name("gpu-2")],
            },
            Cause::Running {
                nodes: vec![name("no-host.licences")],
            },
        ],
        Some(Cause::Running { .. }) => {
            let causes = chain(after_stop).into_iter();
            causes.map(|cause| Cause::Stopping { cause }).collect()
        }
        Some(Cause::Stopping { .. }) => vec![Cause::Suspending],
        Some(Cause::Suspending) => vec![Cause::Suspended],
        Some(Cause::Suspended) => vec![Cause::Held],
        Some(Cause::Held) => vec![Cause::Resuming],
        Some(Cause::Resuming) => {
            let failures = chain(after_failure).into_iter();
            let causes = failures.map(|failure| Cause::NotSuspended { failure });
            causes.collect()
        }
        Some(Cause::NotSuspended { .. }) => vec![Cause::Completed],
        Some(Cause::Completed) => part_counts().map(|counts| Cause::Parts { counts }).into(),
        Some(Cause::Parts { .. }) => vec![Cause::Cancelled],
        Some(Cause::Cancelled) => vec![Cause::TimedOut],
        Some(Cause::TimedOut) => vec![Cause::WaitedTooLong {
            queue_timeout: Span::from_secs(3600),
        }],
        Some(Cause::WaitedTooLong { .. }) => vec![Cause::DeadlineMissed {
            deadline: Time::from_unix_millis(1_700_000_000_000),
        }],
        Some(Cause::DeadlineMissed { .. }) => dependency_failures(),
        Some(Cause::DependencyFailed { .. }) => vec![Cause::Drained { node: node() }],
        Some(Cause::Drained { .. }) => vec![Cause::Preempted],
        Some(Cause::Preempted) => vec![Cause::GpuLost { node: node() }],
        Some(Cause::GpuLost { .. }) => vec![Cause::Requeued],
        Some(Cause::Requeued) => vec![Cause::SuspendedTooLong],
        Some(Cause::SuspendedTooLong) => vec![Cause::NotRenewed],
        Some(Cause::NotRenewed) => [
            StopReason::Cancelled,
            StopReason::NotRenewed,
            StopReason::Preempted,
            StopReason::Drained,
            StopReason::TimedOut,
            StopReason::PeerEnded,
        ]
        .map(|cause| Cause::AllocationEnded {
            allocation: name("held"),
            cause,
        })
        .into(),
        Some(Cause::AllocationEnded { .. }) => {
            let saw = ["`/health` at port 20000 answered 503".into()];
            let saw: Vec<Option<String>> = saw.into_iter().map(Some).chain([None]).collect();
            let failed = saw.iter().map(|saw| Cause::LivenessFailed {
                node: node(),
                saw: saw.clone(),
            });
            failed.collect()
        }
        Some(Cause::LivenessFailed { .. }) => vec![
            Cause::NotReady {
                node: node(),
                saw: Some("nothing listens at port 20000".into()),
            },
            Cause::NotReady {
                node: node(),
                saw: None,
            },
        ],
        Some(Cause::NotReady { .. }) => vec![Cause::Superseded { node: node() }],
        Some(Cause::Superseded { .. }) => vec![Cause::HostLost { node: node() }],
        Some(Cause::HostLost { .. }) => vec![Cause::LostTrack { node: node() }],
        Some(Cause::LostTrack { .. }) => {
            let exits = chain(after_exit).into_iter();
            let causes = exits.map(|exit| Cause::Exited { node: node(), exit });
            causes.collect()
        }
        Some(Cause::Exited { .. }) => vec![Cause::OfRank {
            rank: 1,
            node: node(),
            part: Box::new(failed()),
        }],
        Some(Cause::OfRank { .. }) => vec![Cause::Retry {
            after: Box::new(failed()),
            spent: 1,
            allowed: 3,
        }],
        Some(Cause::Retry { .. }) => vec![Cause::Rejected {
            first: Box::new(Rejection::NoPolicy {
                subject: name("research"),
                pool: Some(name("training")),
            }),
            elsewhere: Vec::new(),
        }],
        Some(Cause::Rejected { .. }) => vec![Cause::Said(Reason::new(
            ReasonCode::Retry,
            "a sentence of an earlier release, as it was written",
        ))],
        Some(Cause::Said(_)) => Vec::new(),
    }
}

fn dependency_failures() -> Vec<Cause> {
    let cause = |dependency: &str, ended, chain: &[&str]| Cause::DependencyFailed {
        dependency: dependency.parse().expect("it is well formed"),
        ended,
        chain: chain.iter().map(|step| name(step)).collect(),
    };
    vec![
        cause("train", StepState::Failed, &["train"]),
        cause("train:failed", StepState::Succeeded, &["train"]),
        cause("train", StepState::Cancelled, &["prep", "train"]),
        cause("sweep:each", StepState::Failed, &["sweep"]),
    ]
}

fn failed() -> Cause {
    Cause::Exited {
        node: name("gpu-1"),
        exit: Exit::Code(3),
    }
}

fn after_stop(last: Option<&StopReason>) -> Vec<StopReason> {
    let next = match last {
        None => StopReason::Cancelled,
        Some(StopReason::Cancelled) => StopReason::TimedOut,
        Some(StopReason::TimedOut) => StopReason::Drained,
        Some(StopReason::Drained) => StopReason::Preempted,
        Some(StopReason::Preempted) => StopReason::Superseded,
        Some(StopReason::Superseded) => StopReason::PeerEnded,
        Some(StopReason::PeerEnded) => StopReason::GpuLost,
        Some(StopReason::GpuLost) => StopReason::Requeued,
        Some(StopReason::Requeued) => StopReason::NotSuspended,
        Some(StopReason::NotSuspended) => StopReason::SuspendedTooLong,
        Some(StopReason::SuspendedTooLong) => StopReason::NotRenewed,
        Some(StopReason::NotRenewed) => StopReason::LivenessFailed,
        Some(StopReason::LivenessFailed) => return Vec::new(),
    };
    vec![next]
}

fn after_failure(last: Option<&SuspendFailure>) -> Vec<SuspendFailure> {
    let next = match last {
        None => SuspendFailure::NoFreezer,
        Some(SuspendFailure::NoFreezer) => SuspendFailure::NoCheckpoint,
        Some(SuspendFailure::NoCheckpoint) => SuspendFailure::SeveralProcesses,
        Some(SuspendFailure::SeveralProcesses) => SuspendFailure::NoRoom(MemoryShortage {
            wanted_mb: 80_000,
            room_mb: 64_000,
        }),
        Some(SuspendFailure::NoRoom(_)) => {
            SuspendFailure::Refused("the driver reported error 3".to_owned())
        }
        Some(SuspendFailure::Refused(_)) => SuspendFailure::TimedOut,
        Some(SuspendFailure::TimedOut) => SuspendFailure::GpusBusy,
        Some(SuspendFailure::GpusBusy) => {
            SuspendFailure::NotResumed("the driver reported error 3".to_owned())
        }
        Some(SuspendFailure::NotResumed(_)) => return Vec::new(),
    };
    vec![next]
}

fn after_exit(last: Option<&Exit>) -> Vec<Exit> {
    let why = || "no such file: /usr/bin/trainer".to_owned();
    match last {
        None => vec![Exit::Code(0), Exit::Code(3)],
        Some(Exit::Code(_)) => vec![Exit::Signal(11)],
        Some(Exit::Signal(_)) => vec![Exit::StartFailed(why())],
        Some(Exit::StartFailed(_)) => vec![Exit::LeaseExpired],
        Some(Exit::LeaseExpired) => vec![Exit::HostRebooted],
        Some(Exit::HostRebooted) => vec![Exit::Unknown],
        Some(Exit::Unknown) => vec![Exit::HostFailed("no user id is free".to_owned())],
        Some(Exit::HostFailed(_)) => {
            let found = |limit_bytes, peak_bytes| {
                Exit::OutOfMemory(OutOfMemory {
                    limit_bytes,
                    peak_bytes,
                })
            };
            vec![
                found(Some(8 << 30), Some(8 << 30)),
                found(None, Some(3 << 30)),
                found(None, None),
            ]
        }
        Some(Exit::OutOfMemory(_)) => vec![Exit::PrologFailed("it exited with code 1".to_owned())],
        Some(Exit::PrologFailed(_)) => {
            let bounds = chain(after_bound).into_iter();
            let exits = bounds.map(|bound| {
                Exit::StorageExceeded(StorageExceeded {
                    bound,
                    used_bytes: 12 << 30,
                    used_files: 400,
                })
            });
            exits.collect()
        }
        Some(Exit::StorageExceeded(_)) => vec![Exit::NotBegun(
            "the order to start it did not arrive in time".to_owned(),
        )],
        Some(Exit::NotBegun(_)) => Vec::new(),
    }
}

fn after_bound(last: Option<&StorageBound>) -> Vec<StorageBound> {
    let next = match last {
        None => StorageBound::Granted(10 << 30),
        Some(StorageBound::Granted(_)) => StorageBound::Reserve,
        Some(StorageBound::Reserve) => StorageBound::Depth,
        Some(StorageBound::Depth) => StorageBound::Files(300),
        Some(StorageBound::Files(_)) => return Vec::new(),
    };
    vec![next]
}

fn after_step_reason(last: Option<&StepReason>) -> Vec<StepReason> {
    match last {
        None => {
            let causes = chain(after_block_cause).into_iter();
            let reasons = causes.map(|cause| StepReason::Recorded {
                why: Cause::Stopping {
                    cause: StopReason::Cancelled,
                },
                host_block: Some(HostBlock {
                    node: name("gpu-1"),
                    cause,
                }),
            });
            reasons.collect()
        }
        Some(StepReason::Recorded { .. }) => vec![StepReason::Waiting {
            after: Some(failed()),
            wait: Box::new(Wait::Next {
                pool: name("training"),
            }),
        }],
        Some(StepReason::Waiting { .. }) => Vec::new(),
    }
}

fn after_block_cause(last: Option<&HostBlockCause>) -> Vec<HostBlockCause> {
    let next = match last {
        None => HostBlockCause::Unsupervised("no answer for 30 s".to_owned()),
        Some(HostBlockCause::Unsupervised(_)) => HostBlockCause::Silent(Span::from_secs(120)),
        Some(HostBlockCause::Silent(_)) => return Vec::new(),
    };
    vec![next]
}
