//! Why a step is where it is now, in words.

use alloc::format;

use sluice_common::reason::Reason;

use crate::standing::{HeldUp, HoldUp, Standing};

impl Standing {
    /// What people and programs read. Of a step that waits again after an attempt, the code says why that attempt is
    /// over, and the message and the detail `waiting` say for what it waits.
    pub fn said(&self) -> Reason {
        match self {
            Standing::Came { why, held_up: None } => why.said(),
            Standing::Came {
                why,
                held_up: Some(held_up),
            } => waits_for(why.said(), held_up),
            Standing::Waits { after: None, wait } => wait.said(),
            Standing::Waits {
                after: Some(after),
                wait,
            } => again(after.said(), wait.said()),
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

fn waits_for(reason: Reason, HeldUp { node, cause }: &HeldUp) -> Reason {
    let why = match cause {
        HoldUp::Unsupervised(why) => format!(
            "`{node}` has no supervisor, which alone can tell whether a process of it runs, so this waits until the \
             supervisor answers: {why}"
        ),
        HoldUp::Silent(left) => format!(
            "`{node}` is silent, so this waits until it is heard again, or is given up for lost in {left}"
        ),
    };
    let message = format!("{}; {why}", reason.message);
    Reason { message, ..reason }.with("waits_for", node.as_str())
}
