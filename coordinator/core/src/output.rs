//! Outputs: what the driver has to do.

pub(crate) mod preview;

use alloc::{boxed::Box, string::String, vec::Vec};

use sluice_common::access::{BindingSpec, RoleSpec};
use sluice_common::cluster::ClusterSpec;
use sluice_common::id::{NodeName, StepId};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PolicySpec;
use sluice_common::template::Template;
use sluice_common::time::Time;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;
use sluice_common::wire::{Command, HelloReply};

use crate::input::DesiredPool;
use crate::input::{ReplyId, SessionId, TimerKey};
use crate::model::join::Joined;
use crate::output::preview::Preview;
use crate::record::LogEntry;

pub use sluice_reasons::{JoinRefusal, QueueBound, QueueFull, Refusal, Use};

/// An action for the driver. One drain yields all records first, then sends, replies and timers.
#[expect(
    clippy::large_enum_variant,
    reason = "most outputs are records: a box for each would cost more than the room that the others waste"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this record durable.
    Record(LogEntry),
    /// Answer a hello. After a refusal the driver closes the connection.
    Greet {
        session: SessionId,
        greeting: HelloReply,
    },
    /// Send an order to an agent. The order is lost if the connection has ended; the core repeats it after the next
    /// hello.
    ToNode {
        session: SessionId,
        node: NodeName,
        command: Command,
    },
    /// Close a connection at once.
    LetGo {
        session: SessionId,
        /// The reason, for both ends.
        why: String,
    },
    /// Answer a caller.
    Reply { reply: ReplyId, answer: Answer },
    /// Feed [`crate::Input::Timer`] at this time or later; replaces a timer of the same key.
    SetTimer { key: TimerKey, at: Time },
}

/// An answer to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answer to a submit: one result for each step, in order.
    Submitted(Vec<Result<Submitted, Refusal>>),
    /// Answer to a preview of a submit.
    Previewed(Box<Preview>),
    /// Answer to a cancel: done, under way, or not needed because the step has ended.
    Cancelled(Result<StepId, Refusal>),
    /// Answer to a move of a step: whether it waited in another pool before.
    Moved(Result<bool, Refusal>),
    /// Answer to an action on a step: done, under way, or so already.
    Steered(Result<StepId, Refusal>),
    /// Answer to a change of a node: made, or so already.
    Changed(Result<(), Refusal>),
    /// Answer to changes of documents: made, or previewed.
    Applied(Result<Applied, Refused>),
    /// Answer to a host that showed the secret of a join token.
    Joined(Result<Joined, JoinRefusal>),
}

/// The effects of changes of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Results, in the order of the changes.
    pub outcomes: Vec<AppliedChange>,
    /// Steps and documents that use what the changes take away. Such changes need `force`.
    pub uses: Vec<Use>,
    /// Running steps that can be preempted now and could not before.
    pub exposed: Vec<StepId>,
    /// Steps that are preempted at once, each with the step that preempts it.
    pub preempted: Vec<(StepId, StepId)>,
    /// Queued steps that could never start any more.
    pub rejected: Vec<StepId>,
    /// Effects on GPUs that platforms want to be cut into slices.
    pub carvings: Vec<CarvePlan>,
}

/// The effect of changes on the GPUs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarvePlan {
    /// The host; `None` for those that are not listed.
    pub node: Option<NodeName>,
    /// One sentence without a full stop, with the numbers.
    pub message: String,
}

/// The result of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedChange {
    /// The terms before; `None` if there were none.
    pub before: Option<CurrentTerms>,
    /// The terms after; `None` if there are none.
    pub after: Option<CurrentTerms>,
}

impl AppliedChange {
    /// Whether the terms differ.
    pub fn is_change(&self) -> bool {
        self.before != self.after
    }
}

/// The terms of an object, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CurrentTerms {
    /// Terms of a pool.
    Pool(Box<DesiredPool>),
    /// Policy of a subject in a pool.
    Policy(PolicySpec),
    /// Terms of the cluster.
    Cluster(ClusterSpec),
    /// Topology of the cluster.
    Topology(TopologySpec),
    /// A validation document.
    Validation(ValidationSpec),
    /// Terms of a platform of a pool.
    Platform(PlatformSpec),
    /// Contents of a template.
    Template(Box<Template>),
    /// Terms of a role.
    Role(RoleSpec),
    /// Terms of a binding.
    Binding(BindingSpec),
}

/// The reason why none of the changes is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the change at fault, from 0, if it is one of them.
    pub at: Option<usize>,
    pub refusal: Refusal,
}

/// A stored step; its state says whether it was queued, allocated or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub step: StepId,
    /// Whether this submit stored it; `false` for a repeat.
    pub created: bool,
}
