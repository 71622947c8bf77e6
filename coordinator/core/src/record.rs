//! Records: facts in the log. The log says what happened, never what was requested, so a newer scheduler reads an
//! older log and gets the same state. The same records are the audit log, the event stream and the input of a replay.

mod attempt;
mod clock;
mod joining;
mod log_entry;
mod node;
mod pool;
mod prelude;
mod step;
pub(crate) mod stored_spec;
mod subject;

pub use attempt::{
    Adopted, Allocated, Ended, NotSuspended, Started, Stopping, Suspended, Suspending,
};
pub use clock::ClockJump;
pub use joining::{JoinRefused, JoinTokenMade, JoinTokenUsed};
pub use log_entry::LogEntry;
pub use node::{GpusCordoned, NodeDraining, NodeLabelled, NodeReported};
pub use pool::{PlatformPut, PolicyPut, PoolPut};
pub use step::{StepEnded, StepQueued, StepRejected};
pub(crate) use subject::Effect;
pub use subject::RecordSubject;

use prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// A coordinator began to speak for the cluster, or an admin set the epoch after which the next one does.
    CoordinatorStarted {
        epoch: Epoch,
        /// Silence after which it calls a node lost. The leases that it gives run out before that.
        #[serde(default)]
        lost_after: Span,
    },
    /// A coordinator started with a clock that was ahead.
    ClockJumped(ClockJump),
    /// A pool was made or changed.
    PoolPut(PoolPut),
    /// A subject was bound to a pool, or on other terms.
    PolicyPut(PolicyPut),
    /// A subject is bound to a pool no longer. What it runs there goes on.
    PolicyDeleted { pool: PoolName, subject: Subject },
    /// A node was let in, with what it has; also when it comes back changed or its inventory changes.
    NodeReported(NodeReported),
    /// A node is linked, heard and reconciled: it takes work.
    NodeReady { node: NodeName },
    /// A node is linked and heard, and still holds attempts that were ended here: no new work until they are gone.
    NodeReconciling { node: NodeName },
    /// A node is heard, and its agent has no supervisor: no new work.
    NodeUnsupervised {
        node: NodeName,
        /// Why, and what to do there, in the agent's words.
        why: String,
    },
    /// A node is silent or its link is down: no new work.
    NodeUnreachable { node: NodeName },
    /// A node was silent for so long that its attempts must have stopped: they end, and their steps go on elsewhere.
    NodeLost { node: NodeName },
    /// A step was accepted and waits.
    StepQueued(StepQueued),
    /// A step was refused for good: it could never be granted. It is stored all the same.
    StepRejected(StepRejected),
    /// Resources were granted to a new attempt.
    Allocated(Allocated),
    /// A step that cannot start yet was promised a place.
    Nominated {
        step: StepId,
        /// Where, and whose end it awaits.
        nomination: Nomination,
    },
    /// A promise ended without its step having started.
    Withdrawn { step: StepId },
    /// A host works on an attempt.
    Starting { attempt: AttemptId, node: NodeName },
    /// An attempt's process runs.
    Started(Started),
    /// An attempt is to stop.
    Stopping(Stopping),
    /// An attempt's process has ended; its resources are not free yet.
    Ended(Ended),
    /// An attempt's resources on a host are free.
    Released { attempt: AttemptId, node: NodeName },
    /// A step waits again, in its old place.
    Requeued {
        step: StepId,
        /// Why its attempt is over.
        #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
        reason: Cause,
    },
    /// A step came to a terminal state.
    StepEnded(StepEnded),
    /// A step in a terminal state was dropped from memory: more have ended since than are kept.
    StepForgotten { step: StepId },
    /// An admin closed a node to new work, or changed why. What runs there goes on.
    NodeCordoned {
        node: NodeName,
        /// Text of the admin; empty where none were given.
        reason: String,
    },
    /// An admin closed a node to new work and wants it empty, or changed why or until when.
    NodeDraining(NodeDraining),
    /// An admin opened a node again: it is neither cordoned nor drained.
    NodeUncordoned { node: NodeName },
    /// An admin set labels of a node, or took some away.
    NodeLabelled(NodeLabelled),
    /// An admin wants a silent node forgotten; what it holds may run on until it is lost, so it is kept until then.
    NodeLeaving { node: NodeName },
    /// A node was forgotten: its pool no longer has what it had.
    NodeDeleted { node: NodeName },
    /// A node that was to become empty is.
    NodeDrained { node: NodeName },
    /// A pool without nodes is no more, nor are its policies.
    PoolDeleted { pool: PoolName },
    /// An attempt is to be frozen.
    Suspending(Suspending),
    /// An attempt is frozen: all that it held but its memory is free.
    Suspended(Suspended),
    /// A frozen attempt holds again all that it asked for, and is to be brought back.
    Resuming {
        attempt: AttemptId,
        /// The waiters around which that was granted: these may take it back.
        backfill: BTreeSet<StepId>,
    },
    /// An attempt that was frozen runs again.
    Resumed { attempt: AttemptId, node: NodeName },
    /// An attempt was to be frozen or brought back, which could not be done.
    NotSuspended(NotSuspended),
    /// A caller suspended a step: it waits for nothing but to be let go again.
    Held { step: StepId },
    /// A step that a caller had suspended may go on.
    Unheld { step: StepId },
    /// A node's agent told which of its GPUs are not to be granted, and why; of all others that they are.
    GpusReported {
        node: NodeName,
        /// All that is wrong.
        states: GpuStates,
    },
    /// An admin closed GPUs of a node to new work, or changed why. What runs on them goes on.
    GpusCordoned(GpusCordoned),
    /// An admin opened GPUs of a node again, or had those checked that their host called unfit.
    GpusUncordoned { node: NodeName, gpus: Vec<String> },
    /// The terms of the cluster as a whole were set.
    ClusterPut { terms: ClusterSpec },
    /// A template was made or changed. What was submitted before stands on what it was.
    TemplatePut {
        template: TemplateName,
        terms: Template,
    },
    /// A template is no more.
    TemplateDeleted { template: TemplateName },
    /// An attempt has saved its work: what its loss would cost counts from there.
    Checkpointed {
        attempt: AttemptId,
        /// When, by the coordinator's clock; earlier than the record.
        saved_at: Time,
    },
    /// A document of assertions was made or changed.
    ValidationPut {
        validation: ValidationName,
        terms: ValidationSpec,
    },
    /// A document of assertions is there no longer.
    ValidationDeleted { validation: ValidationName },
    /// A platform of a pool was declared or changed. What runs on its GPUs goes on.
    PlatformPut(PlatformPut),
    /// An admin wants a node in another pool as soon as it is empty.
    NodeMoving { node: NodeName, pool: PoolName },
    /// A node is in another pool, whatever its config says. It is open again, unless it was closed before.
    NodeMoved {
        node: NodeName,
        /// Where it is.
        pool: PoolName,
    },
    /// A pool declares a platform no longer.
    PlatformDeleted {
        pool: PoolName,
        platform: PlatformName,
    },
    /// The step was changed who may do what.
    AccessChanged { change: AccessChange },
    /// A caller changed something, or was refused.
    Audited { entry: AuditEntry },
    /// An admin made a token by which hosts join. Its secret is kept nowhere.
    JoinTokenMade(JoinTokenMade),
    /// A host joined by a token: certificates of earlier generations open nothing any more.
    JoinTokenUsed(JoinTokenUsed),
    /// An admin took a token back. Hosts that it has let in stay.
    JoinTokenRevoked { token: JoinTokenId },
    /// A host showed the secret of a token and was not let in.
    JoinRefused(JoinRefused),
    /// A host with the certificate of a node was not let in. Said once until the node is let in again.
    NodeRefused {
        node: NodeName,
        /// Why not, and what would help.
        why: String,
    },
    /// The access of a node was ended: certificates of earlier generations open nothing any more.
    NodeRevoked {
        node: NodeName,
        /// The generation that a new certificate must have at least.
        generation: Generation,
    },
    /// The store is of an earlier time than the hosts: nothing new starts until they have told what they run.
    RecoveryBegan {
        why: RecoveryCause,
        /// Up to where the store knows what was granted.
        known: LogPoint,
    },
    /// What hosts run is known again: what waits may start.
    RecoveryEnded {
        /// How it came to its end.
        end: RecoveryEnd,
    },
    /// An attempt that was not known here runs on a host, or has run: it is one of ours again, and so is its step.
    Adopted(Adopted),
}
