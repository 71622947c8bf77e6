//! The ways in which a record may not fit the state.

use alloc::string::String;
use core::fmt;

use sluice_common::credential::Generation;
use sluice_common::id::{
    AttemptId, JoinTokenId, NodeName, PlatformName, PoolName, ServiceName, StepId, Subject,
    TemplateName, ValidationName,
};
use sluice_common::state::{NodeState, StepState};

use crate::model::step::{PartPhase, SuspensionPhase};

/// The way in which a record does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("{next} should come next")]
    Number { next: u64 },
    #[error("there is no {0}")]
    Missing(RecordRef),
    #[error("{0} is there already")]
    There(RecordRef),
    #[error("{0} is not there, or is")]
    Access(String),
    #[error("epoch {epoch} after {before}")]
    Epoch { epoch: u64, before: u64 },
    #[error("no recovery was under way")]
    NotRecovering,

    #[error("attempt {0} of a step that is {1}")]
    NotQueued(AttemptId, StepState),
    #[error("attempt {0} of a step that is {1} at attempt {2}")]
    NotAdopted(AttemptId, StepState, u32),
    #[error("attempt {0} is not on node `{1}`")]
    NotOn(AttemptId, NodeName),
    #[error("attempt {0} on `{1}` is {2:?} already")]
    Phase(AttemptId, NodeName, PartPhase),
    #[error("attempt {0} stands at {1:?}")]
    Suspension(AttemptId, Option<SuspensionPhase>),
    #[error("attempt {0} has ended already")]
    Ended(AttemptId),

    #[error("step `{0}` is {1} and cannot wait again")]
    CannotWait(StepId, StepState),
    #[error("step `{0}` is {1} and cannot become {2}")]
    CannotEnd(StepId, StepState, StepState),
    #[error("step `{0}` is {1} and cannot move to another pool")]
    CannotMove(StepId, StepState),
    #[error("step `{0}` is not over")]
    NotOver(StepId),
    #[error("step `{0}` is {1} or held already")]
    CannotHold(StepId, StepState),
    #[error("step `{0}` is not held")]
    NotHeld(StepId),
    #[error("step `{0}` is {1} and is nominated")]
    CannotPromise(StepId, StepState),
    #[error("step `{0}` does not wait for step `{1}`")]
    NotAwaited(StepId, StepId),
    #[error("`{0}` is not a waiting part of `{1}`")]
    NotAPart(StepId, StepId),
    #[error("step `{0}` is no allocation, or has ended")]
    NotRenewed(StepId),
    #[error("step `{0}` waits for no time")]
    NotPostponed(StepId),
    #[error("step `{0}` is not nominated")]
    NotPromised(StepId),

    #[error("node `{0}` is {1} already")]
    NodeState(NodeName, NodeState),
    #[error("node `{0}` is {1} and cannot leave")]
    CannotLeave(NodeName, NodeState),
    #[error("node `{0}` is not to become empty now")]
    NotDraining(NodeName),
    #[error("node `{0}` is not cordoned")]
    NotCordoned(NodeName),
    #[error("node `{0}` is not to be in pool `{1}` now")]
    NotMoving(NodeName, PoolName),
    #[error("GPU `{1}` of node `{0}` is neither cordoned nor unfit")]
    GpuIsFit(NodeName, String),
    #[error("GPU `{1}` of node `{0}` is cut already, or is not to be cut")]
    GpuCarving(NodeName, String),
    #[error("node `{0}` still holds steps")]
    HoldsSteps(NodeName),
    #[error("generation {1} of node `{0}` after {2}")]
    Generation(NodeName, Generation, Generation),
    #[error("join token `{0}` was revoked before")]
    Revoked(JoinTokenId),

    #[error("`{1}` has no policy in `{0}`")]
    NoPolicy(PoolName, Subject),
    #[error("pool `{0}` declares no platform `{1}`")]
    NoPlatform(PoolName, PlatformName),
    #[error("pool `{0}` has nodes")]
    PoolHasNodes(PoolName),
}

/// An object that a record names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordRef {
    Step(StepId),
    Attempt(AttemptId),
    Node(NodeName),
    Pool(PoolName),
    Template(TemplateName),
    Validation(ValidationName),
    JoinToken(JoinTokenId),
    Service(ServiceName),
}

impl fmt::Display for RecordRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordRef::Step(step) => write!(f, "step `{step}`"),
            RecordRef::Attempt(attempt) => write!(f, "attempt {attempt}"),
            RecordRef::Node(node) => write!(f, "node `{node}`"),
            RecordRef::Pool(pool) => write!(f, "pool `{pool}`"),
            RecordRef::Template(template) => write!(f, "template `{template}`"),
            RecordRef::Validation(validation) => write!(f, "validation `{validation}`"),
            RecordRef::JoinToken(token) => write!(f, "join token `{token}`"),
            RecordRef::Service(service) => write!(f, "service `{service}`"),
        }
    }
}

impl From<RecordRef> for Mismatch {
    fn from(missing: RecordRef) -> Self {
        Mismatch::Missing(missing)
    }
}
