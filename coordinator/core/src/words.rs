//! The sentences of reasons that come with records: what is said of a step that moves on, stops or ends. What a queued
//! step waits for is said in `explain.rs`, why one is rejected in `submit/feasible.rs`.

use crate::model::pool::Pool;
use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::show_memory;
use sluice_common::id::{NodeName, PlatformName, PoolName, StepId};
use sluice_common::inventory::Capability;
use sluice_common::nearest::nearest;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::supervision::{OutOfMemory, StorageBound, StorageExceeded};
use sluice_common::time::Span;
use sluice_common::wire::{Room, StopWhy, SuspendFailure};

use crate::model::placement::Placement;
use crate::model::step::Attempt;

/// The first `most` of some names, and how many more there are.
pub(crate) fn shortened(mut names: Vec<String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    names.truncate(most);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

pub(crate) fn submitted() -> Reason {
    Reason::new(ReasonCode::Submitted, "accepted, and not looked at yet")
}

pub(crate) fn allocated(placements: &[Placement]) -> Reason {
    let hosts: Vec<String> = placements.iter().map(|p| format!("`{}`", p.node)).collect();
    let message = format!(
        "units were granted on {}, which is being told",
        hosts.join(", ")
    );
    let reason = Reason::new(ReasonCode::Allocated, message);
    match placements {
        [only] => reason.with("node", only.node.as_str()),
        [] | [_, _, ..] => reason,
    }
}

pub(crate) fn starting(node: &NodeName) -> Reason {
    let message = format!("`{node}` is making its process");
    Reason::new(ReasonCode::Starting, message).with("node", node.as_str())
}

pub(crate) fn running(attempt: &Attempt) -> Reason {
    let told = |message| Reason::new(ReasonCode::Running, message);
    match attempt.parts.as_slice() {
        [only] => {
            told(format!("its process runs on `{}`", only.node)).with("node", only.node.as_str())
        }
        parts => {
            let hosts: Vec<String> = parts.iter().map(|p| format!("`{}`", p.node)).collect();
            told(format!("its processes run on {}", hosts.join(", ")))
        }
    }
}

pub(crate) fn stopping(why: StopWhy) -> Reason {
    let (code, message) = match why {
        StopWhy::Cancelled => (ReasonCode::Cancelled, "it was cancelled and is stopping"),
        StopWhy::TimedOut => (
            ReasonCode::TimedOut,
            "it ran longer than its `timeout` and is stopping",
        ),
        StopWhy::Drained => (
            ReasonCode::Drained,
            "its host is being drained, so it is stopping",
        ),
        StopWhy::Preempted => (
            ReasonCode::Preempted,
            "it gives way to another step and is stopping",
        ),
        StopWhy::PeerEnded => (
            ReasonCode::PeerEnded,
            "a part of it on another host has failed or was lost, so all of it is stopping",
        ),
        StopWhy::GpuLost => (
            ReasonCode::GpuLost,
            "a GPU that it was given has fallen off the bus, so it is stopping",
        ),
        StopWhy::Requeued => (
            ReasonCode::Requeued,
            "somebody wants it to start anew, so it is stopping",
        ),
        StopWhy::NotSuspended => (
            ReasonCode::NotSuspended,
            "it was to be frozen or brought back, which could not be done, so it is stopping",
        ),
        StopWhy::SuspendedTooLong => (
            ReasonCode::SuspendTimeout,
            "it was frozen for longer than its `suspend_timeout`, so it is stopping",
        ),
        StopWhy::Superseded => (
            ReasonCode::HostLost,
            "its host was given up for lost, so it is stopping",
        ),
    };
    Reason::new(code, message)
}

pub(crate) fn suspending() -> Reason {
    let message = "it gives way to another step and is being frozen";
    Reason::new(ReasonCode::Suspended, message)
}

pub(crate) fn suspended() -> Reason {
    let message = "it gave way to another step, frozen, and keeps its memory";
    Reason::new(ReasonCode::Suspended, message)
}

/// Of what runs and of what waits.
pub(crate) fn held() -> Reason {
    let message = "somebody suspended it: `sluice resume` lets it go on";
    Reason::new(ReasonCode::Held, message)
}

pub(crate) fn resuming() -> Reason {
    let message = "it was granted its place again and is being brought back";
    Reason::new(ReasonCode::Resuming, message)
}

pub(crate) fn requeued() -> Reason {
    Reason::new(ReasonCode::Requeued, "somebody had it start anew")
}

pub(crate) fn suspended_too_long() -> Reason {
    let message = "it was frozen for longer than its `suspend_timeout` and was stopped";
    Reason::new(ReasonCode::SuspendTimeout, message)
}

pub(crate) fn not_suspended(why: &SuspendFailure) -> Reason {
    let message = match why {
        SuspendFailure::NotResumed(_) => {
            format!(
                "it was frozen and could not be brought back: {}",
                failure(why)
            )
        }
        SuspendFailure::NoFreezer
        | SuspendFailure::NoCheckpoint
        | SuspendFailure::SeveralProcesses
        | SuspendFailure::NoRoom(_)
        | SuspendFailure::Refused(_)
        | SuspendFailure::TimedOut
        | SuspendFailure::GpusBusy => {
            format!(
                "it was to be frozen, and was stopped instead: {}",
                failure(why)
            )
        }
    };
    let reason = Reason::new(ReasonCode::NotSuspended, message);
    match why {
        SuspendFailure::NoRoom(room) => reason
            .with("wanted_mb", room.wanted_mb)
            .with("room_mb", room.room_mb),
        SuspendFailure::NoFreezer
        | SuspendFailure::NoCheckpoint
        | SuspendFailure::SeveralProcesses
        | SuspendFailure::Refused(_)
        | SuspendFailure::TimedOut
        | SuspendFailure::GpusBusy
        | SuspendFailure::NotResumed(_) => reason,
    }
}

fn failure(why: &SuspendFailure) -> String {
    match why {
        SuspendFailure::NoFreezer => String::from("its host has no way to freeze processes"),
        SuspendFailure::NoCheckpoint => String::from(
            "it holds GPUs, and its host has no way to move what is on them (NVIDIA's driver has it from 570 on)",
        ),
        SuspendFailure::SeveralProcesses => {
            String::from("several of its processes use GPUs, and may have links to each other")
        }
        SuspendFailure::NoRoom(Room { wanted_mb, room_mb }) => format!(
            "{wanted_mb} MB are to be moved from its GPUs, and there is room for {room_mb} MB of host memory"
        ),
        SuspendFailure::Refused(sentence) | SuspendFailure::NotResumed(sentence) => {
            sentence.clone()
        }
        SuspendFailure::TimedOut => String::from("it took longer than it may"),
        SuspendFailure::GpusBusy => String::from("its GPUs did not come free"),
    }
}

pub(crate) fn cancelled() -> Reason {
    Reason::new(ReasonCode::Cancelled, "it was cancelled")
}

pub(crate) fn completed() -> Reason {
    Reason::new(ReasonCode::Completed, "its process exited with code 0")
}

pub(crate) fn timed_out() -> Reason {
    let message = "it ran longer than its `timeout` and was stopped";
    Reason::new(ReasonCode::TimedOut, message)
}

pub(crate) fn gpu_lost(node: &NodeName) -> Reason {
    let message = format!("a GPU that it was given on `{node}` has fallen off the bus");
    Reason::new(ReasonCode::GpuLost, message).with("node", node.as_str())
}

pub(crate) fn waited_too_long(queue_timeout: Span) -> Reason {
    let message =
        format!("it waited for its units for longer than its `queue_timeout` of {queue_timeout}");
    let reason = Reason::new(ReasonCode::QueueTimeout, message);
    reason.with("queue_timeout", format!("{queue_timeout}").as_str())
}

pub(crate) fn non_zero_exit(code: i32) -> Reason {
    let message = format!("its process exited with code {code}");
    Reason::new(ReasonCode::NonZeroExit, message).with("exit_code", signed(code))
}

pub(crate) fn killed_by_signal(signal: i32) -> Reason {
    let message = format!("its process died of signal {signal}, which Sluice did not send");
    Reason::new(ReasonCode::KilledBySignal, message).with("signal", signed(signal))
}

/// Says what would help: more memory for the step where its own limit stopped it, another host where that was full.
pub(crate) fn out_of_memory(node: &NodeName, found: OutOfMemory) -> Reason {
    let (limit, peak) = (found.limit_bytes, found.peak_bytes);
    let held = peak.map_or_else(String::new, |bytes| {
        format!(", having held {}", show_memory(bytes))
    });
    let message = match limit {
        Some(bytes) => format!(
            "the kernel killed it because it wanted more memory than its {}{held}: ask for more `memory`",
            show_memory(bytes)
        ),
        None => format!(
            "the kernel killed it because `{node}` had no memory left{held}: ask for `memory`, so that it is kept free"
        ),
    };
    let mut reason = Reason::new(ReasonCode::OutOfMemory, message);
    for (name, bytes) in [("limit_bytes", limit), ("peak_bytes", peak)] {
        if let Some(bytes) = bytes {
            reason = reason.with(name, bytes);
        }
    }
    reason
}

/// Says what would help: more storage for the step where its own grant stopped it, a grant where it had none.
pub(crate) fn storage_exceeded(node: &NodeName, found: StorageExceeded) -> Reason {
    let (files, used) = (found.used_files, show_memory(found.used_bytes));
    let message = match found.bound {
        StorageBound::Granted(bytes) => format!(
            "`{node}` stopped it because its files took {used} of disk, more than its {}: ask for more `storage`, or \
             write elsewhere",
            show_memory(bytes)
        ),
        StorageBound::Reserve => format!(
            "`{node}` stopped it because its disk was nearly full and this step used most of it, {used} in {files} \
             files: ask for `storage`, so that it is kept free"
        ),
        StorageBound::Depth => format!(
            "`{node}` stopped it because its directories nest too deep for the disk that they take to be counted \
             ({used} in {files} files were): nest them less"
        ),
        StorageBound::Files(most) => format!(
            "`{node}` stopped it because it had made {files} files, more than the {most} that come with its `storage`: ask \
             for more of it, make fewer files, or write elsewhere"
        ),
    };
    let limit = match found.bound {
        StorageBound::Granted(bytes) => Some(("limit_bytes", bytes)),
        StorageBound::Files(most) => Some(("limit_files", most)),
        StorageBound::Reserve | StorageBound::Depth => None,
    };
    let reason = Reason::new(ReasonCode::StorageExceeded, message)
        .with("used_bytes", found.used_bytes)
        .with("used_files", files);
    match limit {
        Some((name, limit)) => reason.with(name, limit),
        None => reason,
    }
}

/// A detail holds no negative number; an exit code never is one, and what a host makes up is shown as text.
fn signed(number: i32) -> sluice_common::reason::Detail {
    match u64::try_from(number) {
        Ok(number) => number.into(),
        Err(_) => format!("{number}").as_str().into(),
    }
}

/// What became of one part of a gang, for the whole.
pub(crate) fn of_rank(rank: usize, node: &NodeName, why: Reason) -> Reason {
    let message = format!("rank {rank} on `{node}`: {}", why.message);
    Reason { message, ..why }
        .with("rank", rank as u64)
        .with("node", node.as_str())
}

pub(crate) fn start_failed(sentence: &str) -> Reason {
    let message = format!("its process could not be started: {sentence}");
    Reason::new(ReasonCode::StartFailed, message)
}

pub(crate) fn exit_unknown(node: &NodeName) -> Reason {
    let message = format!("its process ended on `{node}` while nobody was there to see how");
    Reason::new(ReasonCode::ExitUnknown, message).with("node", node.as_str())
}

pub(crate) fn host_lost(node: &NodeName) -> Reason {
    let message = format!("its host `{node}` was silent for so long that it was given up for lost");
    Reason::new(ReasonCode::HostLost, message).with("node", node.as_str())
}

pub(crate) fn superseded(node: &NodeName) -> Reason {
    let message = format!("it was stopped on `{node}`, which had been given up for lost");
    Reason::new(ReasonCode::HostLost, message).with("node", node.as_str())
}

pub(crate) fn adopted(node: &NodeName) -> Reason {
    let message = format!(
        "`{node}` has it, and the coordinator was brought back from a time before it knew that"
    );
    Reason::new(ReasonCode::Allocated, message).with("node", node.as_str())
}

pub(crate) fn lost_track(node: &NodeName) -> Reason {
    let message = format!(
        "the coordinator was brought back from an earlier time, and `{node}` does not know the attempt any more"
    );
    Reason::new(ReasonCode::HostLost, message).with("node", node.as_str())
}

pub(crate) fn host_rebooted(node: &NodeName) -> Reason {
    let message = format!("its host `{node}` was rebooted");
    Reason::new(ReasonCode::HostRebooted, message).with("node", node.as_str())
}

/// The host could not start it, by no fault of the step's.
pub(crate) fn host_failed(node: &NodeName, sentence: &str) -> Reason {
    let message = format!("`{node}` could not start it: {sentence}");
    Reason::new(ReasonCode::HostFailed, message).with("node", node.as_str())
}

/// Why an attempt never began whose order did not arrive while it was valid.
pub(crate) const ORDER_RAN_OUT: &str = "the order to start it did not arrive in time";

/// No process of it was ever made on its host.
pub(crate) fn not_begun(node: &NodeName, sentence: &str) -> Reason {
    let message = format!("it did not begin on `{node}`: {sentence}");
    Reason::new(ReasonCode::NotBegun, message).with("node", node.as_str())
}

/// What a host lacks that its pool requires.
pub(crate) fn lacks(capabilities: &BTreeSet<Capability>) -> String {
    let names: Vec<&str> = capabilities.iter().map(|it| it.as_str()).collect();
    let noun = if names.len() == 1 {
        "capability"
    } else {
        "capabilities"
    };
    format!("lacks {noun} {}, which the pool requires", names.join(", "))
}

/// The prolog of the host failed before it.
pub(crate) fn prolog_failed(node: &NodeName, sentence: &str) -> Reason {
    let message = format!("the prolog of `{node}` failed: {sentence}");
    Reason::new(ReasonCode::PrologFailed, message).with("node", node.as_str())
}

/// Why a host is closed that could not start a step.
pub(crate) fn closed_for(step: &StepId, sentence: &str) -> String {
    format!("closed by itself, because step `{step}` could not be started: {sentence}")
}

pub(crate) fn lease_expired(node: &NodeName) -> Reason {
    let message = format!(
        "`{node}` stopped it because the coordinator was not heard for as long as its lease"
    );
    Reason::new(ReasonCode::LeaseExpired, message).with("node", node.as_str())
}

pub(crate) fn drained(node: &NodeName) -> Reason {
    let message = format!("its host `{node}` was drained");
    Reason::new(ReasonCode::Drained, message).with("node", node.as_str())
}

pub(crate) fn preempted() -> Reason {
    Reason::new(ReasonCode::Preempted, "it gave way to another step")
}

/// A failure that is tried again; `spent` counts this retry.
pub(crate) fn retry(failure: Reason, spent: u32, allowed: u32) -> Reason {
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

/// Names in a sentence.
pub(crate) fn quoted(names: &[PlatformName]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// `, did you mean ...` or, where no name is near, the names there are.
pub(crate) fn did_you_mean(pools: &BTreeMap<PoolName, Pool>, pool: &PoolName) -> String {
    let names = pools.keys().map(PoolName::as_str);
    match nearest(pool.as_str(), names.clone()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => format!(" among `{}`", names.collect::<Vec<_>>().join("`, `")),
    }
}

pub(crate) fn listed(names: &[PlatformName]) -> String {
    let names: Vec<&str> = names.iter().map(PlatformName::as_str).collect();
    names.join(",")
}
