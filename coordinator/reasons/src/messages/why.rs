//! Sentences about the cause of a step's last change of state.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::api::timestamp;
use sluice_common::array::PartCounts;
use sluice_common::dependency::Dependency;
use sluice_common::id::{NodeName, StepId};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::exit::exited;
use super::rejection::rejected;
use super::suspension::not_suspended;
use super::{has_ended, quoted};
use crate::Cause;

impl Cause {
    /// The code, the sentence, and the numbers and names in it.
    pub fn to_reason(&self) -> Reason {
        let code = self.code();
        let of = |message: &str| Reason::new(code, message);
        let on = |node: &NodeName, message: String| {
            Reason::new(code, message).with("node", node.as_str())
        };
        match self {
            Cause::Submitted => of("accepted, not scheduled yet"),
            Cause::Allocated { nodes } | Cause::Running { nodes } if has_no_host(nodes) => {
                of("its holder has its resources, and its pool has no hosts")
            }
            Cause::Allocated { nodes } => of_all(of(&allocated(nodes)), nodes),
            Cause::Adopted { node } => on(node, adopted(node)),
            Cause::Starting { node, inputs } => on(node, starting(node, *inputs)),
            Cause::Running { nodes } => of_all(of(&running(nodes)), nodes),
            Cause::Stopping { cause } => of(stopping(*cause)),
            Cause::Suspending => of("it is preempted by another step and is being suspended"),
            Cause::Suspended => {
                of("it was preempted by another step: it is suspended and keeps its memory")
            }
            Cause::Held => of("it was suspended by request: `sluice resume` lets it continue"),
            Cause::Resuming => of("its resources were allocated again and it is being resumed"),
            Cause::NotSuspended { failure } => not_suspended(code, failure),
            Cause::Completed => of("its process exited with code 0"),
            Cause::Parts { counts } => parts(code, counts),
            Cause::Cancelled => of("it was cancelled"),
            Cause::TimedOut => of("it ran longer than its `timeout` and was stopped"),
            Cause::WaitedTooLong { queue_timeout } => {
                let most = format!("{queue_timeout}");
                of(&waited_too_long(*queue_timeout)).with("queue_timeout", most.as_str())
            }
            Cause::DeadlineMissed { deadline } => {
                let at = timestamp(*deadline);
                of(&format!(
                    "it was not running at {at}, its `deadline`, after which it does not start"
                ))
                .with("deadline", format!("{at}").as_str())
            }
            Cause::DependencyFailed {
                dependency,
                ended,
                chain,
            } => of(&dependency_failed(dependency, *ended, chain))
                .with("step", dependency.step.as_str()),
            Cause::Drained { node } => on(node, format!("its host `{node}` was drained")),
            Cause::Preempted => of("it was preempted by another step"),
            Cause::GpuLost { node } => on(node, gpu_lost(node)),
            Cause::Requeued => of("it was requeued by request"),
            Cause::SuspendedTooLong => {
                of("it was suspended for longer than its `suspend_timeout` and was stopped")
            }
            Cause::NotRenewed => of("its holder did not renew it before its lease was over"),
            Cause::AllocationEnded { allocation, cause } => {
                of(&allocation_ended(allocation, *cause)).with("allocation", allocation.as_str())
            }
            Cause::LivenessFailed { node, saw } => on(node, liveness_failed(node, saw.as_deref())),
            Cause::NotReady { node, saw } => on(node, not_ready(node, saw.as_deref())),
            Cause::Superseded { node } => on(node, superseded(node)),
            Cause::HostLost { node } => on(node, host_lost(node)),
            Cause::LostTrack { node } => on(node, lost_track(node)),
            Cause::Exited { node, exit } => exited(code, node, exit),
            Cause::OfRank { rank, node, part } => of_rank(*rank, node, part.to_reason()),
            Cause::Retry {
                after,
                spent,
                allowed,
            } => retry(after.to_reason(), *spent, *allowed),
            Cause::Rejected { first, elsewhere } => rejected(first, elsewhere),
            Cause::Said(reason) => reason.clone(),
        }
    }
}

fn allocation_ended(allocation: &StepId, cause: StopReason) -> String {
    let how = match cause {
        StopReason::Cancelled => "was released",
        StopReason::NotRenewed => "was not renewed in time",
        StopReason::Preempted => "gave way to another step",
        StopReason::Drained => "gave way to the drain of its host",
        StopReason::TimedOut => "lasted longer than its `timeout`",
        StopReason::Superseded
        | StopReason::PeerEnded
        | StopReason::GpuLost
        | StopReason::Requeued
        | StopReason::NotSuspended
        | StopReason::SuspendedTooLong
        | StopReason::LivenessFailed => "is over",
    };
    format!("its allocation `{allocation}` {how}")
}

fn has_no_host(nodes: &[NodeName]) -> bool {
    nodes.iter().any(NodeName::is_of_pool)
}

/// Adds the host, if there is only one.
fn of_all(reason: Reason, nodes: &[NodeName]) -> Reason {
    match nodes {
        [only] => reason.with("node", only.as_str()),
        [] | [_, _, ..] => reason,
    }
}

fn allocated(nodes: &[NodeName]) -> String {
    let hosts = quoted(nodes);
    format!("allocated on {hosts}; its start order is being sent")
}

fn starting(node: &NodeName, inputs: usize) -> String {
    match inputs {
        0 => format!("`{node}` is starting its process"),
        1 => format!("`{node}` fetches its input and starts its process"),
        _ => format!("`{node}` fetches its {inputs} inputs and starts its process"),
    }
}

fn adopted(node: &NodeName) -> String {
    format!(
        "`{node}` runs it, and the coordinator was restored from a store that did not know that yet"
    )
}

fn running(nodes: &[NodeName]) -> String {
    let hosts = quoted(nodes);
    match nodes {
        [_] => format!("its process runs on {hosts}"),
        [] | [_, _, ..] => format!("its processes run on {hosts}"),
    }
}

fn stopping(cause: StopReason) -> &'static str {
    match cause {
        StopReason::Cancelled => "it was cancelled and is stopping",
        StopReason::TimedOut => "it ran longer than its `timeout` and is stopping",
        StopReason::Drained => "its host is being drained, so it is stopping",
        StopReason::Preempted => "it is preempted by another step and is stopping",
        StopReason::PeerEnded => {
            "a part of it on another host has failed or was lost, so all of it is stopping"
        }
        StopReason::GpuLost => "a GPU allocated to it has fallen off the bus, so it is stopping",
        StopReason::Requeued => "it was requeued by request and is stopping",
        StopReason::NotSuspended => "it could not be suspended or resumed, so it is stopping",
        StopReason::SuspendedTooLong => {
            "it was suspended for longer than its `suspend_timeout`, so it is stopping"
        }
        StopReason::NotRenewed => {
            "its holder did not renew it before its lease was over, so it is stopping"
        }
        StopReason::LivenessFailed => "its liveness probe failed, so it is stopping",
        StopReason::Superseded => "its host was declared lost, so it is stopping",
    }
}

fn waited_too_long(queue_timeout: Span) -> String {
    format!("it was queued for longer than its `queue_timeout` of {queue_timeout}")
}

fn parts(code: ReasonCode, counts: &PartCounts) -> Reason {
    let open = counts.open().map(|open| format!(": {open}"));
    let open = open.unwrap_or_default();
    Reason::new(code, format!("{counts}{open}"))
        .with("total", counts.total)
        .with("ended", counts.ended())
        .with("failed", counts.failed)
        .with("cancelled", counts.cancelled)
}

fn dependency_failed(dependency: &Dependency, ended: StepState, chain: &[StepId]) -> String {
    let Dependency { step, each, end } = dependency;
    if *each {
        let required = has_ended(*end);
        return format!(
            "it was to start after the part of `{step}` with its index {required}, and that ended as {ended}: `sluice explain {step}.INDEX` says why"
        );
    }
    let required = has_ended(*end);
    let led = match chain {
        [] | [_] => String::new(),
        [first, ..] => format!(" because of `{first}` ({})", chain_of(chain)),
    };
    let first = chain.first().unwrap_or(step);
    format!(
        "it was to start after `{step}` {required}, and `{step}` ended as {ended}{led}: `sluice explain {first}` says why"
    )
}

fn chain_of(steps: &[StepId]) -> String {
    let steps: Vec<&str> = steps.iter().map(StepId::as_str).collect();
    steps.join(" -> ")
}

fn gpu_lost(node: &NodeName) -> String {
    format!("a GPU allocated to it on `{node}` has fallen off the bus")
}

fn liveness_failed(node: &NodeName, saw: Option<&str>) -> String {
    let saw = saw.map(|saw| format!(": {saw}")).unwrap_or_default();
    format!("it was stopped on `{node}` because its liveness probe failed{saw}")
}

fn not_ready(node: &NodeName, saw: Option<&str>) -> String {
    match saw {
        Some(saw) => {
            format!("it runs and is not ready on `{node}`: its readiness probe failed: {saw}")
        }
        None => format!(
            "it runs and is not ready on `{node}`: its readiness probe has not succeeded yet"
        ),
    }
}

fn superseded(node: &NodeName) -> String {
    format!("it was stopped on `{node}`, which had been declared lost")
}

fn host_lost(node: &NodeName) -> String {
    format!("its host `{node}` was silent for too long and was declared lost")
}

fn lost_track(node: &NodeName) -> String {
    format!(
        "the coordinator was restored from an older store, and `{node}` no longer knows the attempt"
    )
}

/// The sentence about one part of a gang, for the whole.
fn of_rank(rank: u64, node: &NodeName, part: Reason) -> Reason {
    let message = format!("rank {rank} on `{node}`: {}", part.message);
    Reason { message, ..part }
        .with("rank", rank)
        .with("node", node.as_str())
}

/// The sentence about a failure that is retried; `spent` counts this retry.
fn retry(failure: Reason, spent: u32, allowed: u32) -> Reason {
    let message = format!("{}; this is retry {spent} of {allowed}", failure.message);
    Reason {
        code: ReasonCode::Retry,
        message,
        detail: failure.detail,
    }
    .with("after", failure.code.as_str())
    .with("retry", u64::from(spent))
    .with("retries", u64::from(allowed))
}
