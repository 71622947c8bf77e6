//! What the core wants done. Closed: whoever drives it handles four kinds and no more.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::time::Time;
use sluice_common::wire::{Command, Greeting};

use crate::input::{ReplyId, SessionId, TimerKey};
use crate::market::BadPolicy;
use crate::record::Stamped;

/// One thing to be done, in the order of drains: all records first, then sends, replies and timers.
#[expect(
    clippy::large_enum_variant,
    reason = "most outputs are records: a box for each would cost more than the room that the others waste"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this durable.
    Record(Stamped),
    /// Answer a hello. After a refusal the driver closes the connection.
    Greet {
        /// The connection.
        session: SessionId,
        /// The answer.
        greeting: Greeting,
    },
    /// Tell an agent. Lost where the connection is gone; the core says it again after the next hello.
    ToNode {
        /// The connection.
        session: SessionId,
        /// Whose.
        node: NodeName,
        /// The order.
        command: Command,
    },
    /// Answer a caller.
    Reply {
        /// Who waits.
        reply: ReplyId,
        /// The answer.
        answer: Answer,
    },
    /// Feed [`crate::Input::Timer`] at this time or later; replaces a timer of the same key.
    SetTimer {
        /// Which.
        key: TimerKey,
        /// When.
        at: Time,
    },
}

/// An answer to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a submit: one result for each step, in order.
    Submitted(Vec<Result<Submitted, Refusal>>),
    /// To a cancel: done, under way, or needless because the step has ended.
    Cancelled(Result<StepId, Refusal>),
    /// To a change of a pool, a policy or a node: it is made, or was so already.
    Changed(Result<(), Refusal>),
}

/// A step that is stored now; its state says whether it was queued, allocated or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Which.
    pub step: StepId,
    /// Whether this submit stored it; a repeat did not.
    pub created: bool,
}

/// Why a call was not carried out. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No step has this id.
    #[error("there is no step `{step}`: `sluice get steps` lists those that are remembered")]
    UnknownStep {
        /// The id.
        step: StepId,
    },
    /// No pool has this name.
    #[error("there is no pool `{pool}`: `sluice get pools` lists those that there are")]
    UnknownPool {
        /// The name.
        pool: PoolName,
    },
    /// The subject is not bound to the pool.
    #[error("subject `{subject}` has no policy in pool `{pool}`")]
    UnknownPolicy {
        /// The pool.
        pool: PoolName,
        /// Who.
        subject: Subject,
    },
    /// The pool cannot keep this policy.
    #[error("policy of `{subject}` in pool `{pool}`: {why}")]
    BadPolicy {
        /// The pool.
        pool: PoolName,
        /// Who.
        subject: Subject,
        /// Why not.
        why: BadPolicy,
    },
    /// Another step has this id.
    #[error(
        "the id `{step}` belongs to a step that was submitted with another body ({differs}): choose another id"
    )]
    IdInUse {
        /// The id.
        step: StepId,
        /// The first field that differs.
        differs: String,
    },
    /// No node has this name.
    #[error("there is no node `{node}`: `sluice get nodes` lists those that are remembered")]
    UnknownNode {
        /// The name.
        node: NodeName,
    },
    /// A node that is linked would come back as soon as it is forgotten.
    #[error(
        "node `{node}` is linked and cannot be deleted: `sluice drain {node} --wait`, then stop its agent, or take it \
         out of service otherwise, and delete it when it is away"
    )]
    NodeLinked {
        /// The node.
        node: NodeName,
    },
    /// A node that is away may still run something.
    #[error(
        "node `{node}` is away and may still run {}: wait until it is called lost and they go on elsewhere, or have it \
         forgotten as soon as that is so with `--force`",
        named(steps)
    )]
    NodeHoldsSteps {
        /// The node.
        node: NodeName,
        /// What it holds.
        steps: Vec<StepId>,
    },
    /// A node has more labels than one may have.
    #[error(
        "node `{node}` would have {count} labels that an admin set: {limit} are the most, remove some"
    )]
    TooManyLabels {
        /// The node.
        node: NodeName,
        /// How many it would have.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
}

/// How many steps a message names.
const NAMED_STEPS: usize = 5;

fn named(steps: &[StepId]) -> String {
    let named = steps.iter().take(NAMED_STEPS);
    let named: Vec<String> = named.map(|step| format!("`{step}`")).collect();
    let rest = steps.len().saturating_sub(NAMED_STEPS);
    let rest = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    format!("{}{rest}", named.join(", "))
}
