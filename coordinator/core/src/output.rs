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
use sluice_common::validation::ValidationSpec;
use sluice_common::wire::{Command, HelloReply};

use crate::input::DesiredPool;
use crate::input::{ReplyId, SessionId, TimerKey};
use crate::model::join::Joined;
use crate::output::preview::Preview;
use crate::record::LogEntry;

pub use sluice_reasons::{JoinRefusal, QueueBound, QueueFull, Refusal, Use};

/// One thing to be done, in the order of drains: all records first, then sends, replies and timers.
#[expect(
    clippy::large_enum_variant,
    reason = "most outputs are records: a box for each would cost more than the room that the others waste"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this durable.
    Record(LogEntry),
    /// Answer a hello. After a refusal the driver closes the connection.
    Greet {
        session: SessionId,
        greeting: HelloReply,
    },
    /// Tell an agent. Lost where the connection is gone; the core says it again after the next hello.
    ToNode {
        session: SessionId,
        node: NodeName,
        command: Command,
    },
    /// Close a connection at once.
    LetGo {
        session: SessionId,
        /// Why, for both ends.
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
    /// To a submit: one result for each step, in order.
    Submitted(Vec<Result<Submitted, Refusal>>),
    /// To what a submit would come to.
    Previewed(Box<Preview>),
    /// To a cancel: done, under way, or needless because the step has ended.
    Cancelled(Result<StepId, Refusal>),
    /// To what was wanted of a step: done, under way, or so already.
    Steered(Result<StepId, Refusal>),
    /// To a change of a node: it is made, or was so already.
    Changed(Result<(), Refusal>),
    /// To a change of terms: it is made, or would be so.
    Applied(Result<Applied, Refused>),
    /// To a host that showed the secret of a token.
    Joined(Result<Joined, JoinRefusal>),
}

/// What changes of terms mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What came of each change, in their order.
    pub outcomes: Vec<AppliedChange>,
    /// Who uses what they take away: they are made by force alone.
    pub uses: Vec<Use>,
    /// Steps that run and that others may make be preempted now, and could not before.
    pub exposed: Vec<StepId>,
    /// Steps that be preempted at once, each with the one that they be preempted to.
    pub preempted: Vec<(StepId, StepId)>,
    /// Steps that waited and could never start any more.
    pub rejected: Vec<StepId>,
}

/// What came of one change of terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedChange {
    /// What was there; `None` is nothing.
    pub before: Option<CurrentTerms>,
    /// What is there.
    pub after: Option<CurrentTerms>,
}

impl AppliedChange {
    /// Whether anything is other than it was.
    pub fn is_change(&self) -> bool {
        self.before != self.after
    }
}

/// Terms of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CurrentTerms {
    /// Of a pool.
    Pool(Box<DesiredPool>),
    /// Of a subject in a pool.
    Policy(PolicySpec),
    /// Of the cluster as a whole.
    Cluster(ClusterSpec),
    /// Of a document of assertions.
    Validation(ValidationSpec),
    /// Of a platform of a pool.
    Platform(PlatformSpec),
    /// Of a template.
    Template(Box<Template>),
    /// Of a role.
    Role(RoleSpec),
    /// Of a binding.
    Binding(BindingSpec),
}

/// Why changes of terms are not made, none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The place of the change that is to blame, counted from 0, if it is one of them.
    pub at: Option<usize>,
    pub refusal: Refusal,
}

/// A step that is stored now; its state says whether it was queued, allocated or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub step: StepId,
    /// Whether this submit stored it; a repeat did not.
    pub created: bool,
}
