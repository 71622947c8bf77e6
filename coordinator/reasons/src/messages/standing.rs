//! Sentences about the current state of a step.

use alloc::format;

use sluice_common::reason::Reason;

use crate::standing::{HostBlock, HostBlockCause, StepReason};

impl StepReason {
    /// The code, the sentence and the details. For a step that was requeued, the code tells why its earlier attempt
    /// ended, and the message and the detail `waiting` tell what it waits for.
    pub fn to_reason(&self) -> Reason {
        match self {
            StepReason::Recorded {
                why,
                host_block: None,
            } => why.to_reason(),
            StepReason::Recorded {
                why,
                host_block: Some(host_block),
            } => waits_for(why.to_reason(), host_block),
            StepReason::Waiting { after: None, wait } => wait.to_reason(),
            StepReason::Waiting {
                after: Some(after),
                wait,
            } => again(after.to_reason(), wait.to_reason()),
        }
    }
}

fn again(mut after: Reason, waiting: Reason) -> Reason {
    after.message = format!("{}; {}", after.message, waiting.message);
    for (name, detail) in waiting.detail {
        after.detail.entry(name).or_insert(detail);
    }
    after.with("waiting", waiting.code.as_str())
}

fn waits_for(reason: Reason, HostBlock { node, cause }: &HostBlock) -> Reason {
    let why = match cause {
        HostBlockCause::Unsupervised(why) => format!(
            "`{node}` has no supervisor, so the state of its processes is unknown; this waits until the supervisor answers: {why}"
        ),
        HostBlockCause::Silent(left) => format!(
            "`{node}` is silent; this waits until it is heard again or is declared lost in {left}"
        ),
    };
    let message = format!("{}; {why}", reason.message);
    Reason { message, ..reason }.with("waits_for", node.as_str())
}
