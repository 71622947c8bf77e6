//! Sentences about obstacles to freezing or resuming a step.

use alloc::format;
use alloc::string::String;

use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::wire::{MemoryShortage, SuspendFailure};

pub(super) fn not_suspended(code: ReasonCode, failure: &SuspendFailure) -> Reason {
    let what = obstacle(failure);
    let message = match failure {
        SuspendFailure::NotResumed(_) => {
            format!("it was suspended and could not be resumed: {what}")
        }
        SuspendFailure::NoFreezer
        | SuspendFailure::NoCheckpoint
        | SuspendFailure::SeveralProcesses
        | SuspendFailure::NoRoom(_)
        | SuspendFailure::Refused(_)
        | SuspendFailure::TimedOut
        | SuspendFailure::GpusBusy => {
            format!("it could not be suspended and was stopped instead: {what}")
        }
    };
    let reason = Reason::new(code, message);
    match failure {
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

fn obstacle(failure: &SuspendFailure) -> String {
    match failure {
        SuspendFailure::NoFreezer => String::from("its host has no way to freeze processes"),
        SuspendFailure::NoCheckpoint => String::from(
            "it holds GPUs, and its host has no way to move what is on them (NVIDIA's driver has it from 570 on)",
        ),
        SuspendFailure::SeveralProcesses => {
            String::from("several of its processes use GPUs, and may have links to each other")
        }
        SuspendFailure::NoRoom(MemoryShortage { wanted_mb, room_mb }) => format!(
            "{wanted_mb} MB are to be moved from its GPUs, and there is room for {room_mb} MB of host memory"
        ),
        SuspendFailure::Refused(sentence) | SuspendFailure::NotResumed(sentence) => {
            sentence.clone()
        }
        SuspendFailure::TimedOut => String::from("it took longer than it may"),
        SuspendFailure::GpusBusy => String::from("its GPUs did not come free"),
    }
}
