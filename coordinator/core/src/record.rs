//! Records: facts in the log. The log says what happened, never what was requested, so a newer scheduler reads an
//! older log and gets the same state. The same records are the audit log, the event stream and the input of a replay.

mod attempt;
mod clock;
mod joining;
mod log_entry;
mod node;
mod pool;
mod prelude;
mod service;
mod step;
pub(crate) mod stored_spec;
mod subject;

pub use attempt::{
    Adopted, Allocated, Ended, NotSuspended, PortsAllocated, ReadinessChanged, Released, Started,
    Stopping, Suspended, Suspending,
};
pub use clock::ClockJump;
pub use joining::{JoinRefused, JoinTokenMade, JoinTokenUsed};
pub use log_entry::LogEntry;
pub use node::{CarvingFailed, GpusCordoned, NodeDraining, NodeLabelled, NodeReported};
pub use pool::{PlatformPut, PolicyPut, PoolPut};
pub use service::{
    ReplicaChanged, ReplicaEnded, ReplicaFailed, ReplicaStarted, ServiceDeleted, ServiceLoad,
    ServicePut, ServiceScale,
};
pub use step::{PartQueued, PartsEnded, Renewal, StepEnded, StepMoved, StepQueued, StepRejected};
pub(crate) use subject::Effect;
pub use subject::RecordSubject;

use prelude::*;

/// A fact in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// A coordinator began to speak for the cluster, or an admin set the epoch after which the next one starts.
    CoordinatorStarted {
        epoch: Epoch,
        /// Silence after which the coordinator calls a node lost. The leases that it gives expire before that.
        #[serde(default)]
        lost_after: Span,
    },
    /// A coordinator started with a clock that was ahead.
    ClockJumped(ClockJump),
    /// A pool was made or changed.
    PoolPut(PoolPut),
    /// A policy of a subject in a pool was made or changed.
    PolicyPut(PolicyPut),
    /// A policy of a subject in a pool was deleted. Running steps go on.
    PolicyDeleted { pool: PoolName, subject: Subject },
    /// A node was admitted with its inventory. Also recorded if it comes back changed or its inventory changes.
    NodeReported(Box<NodeReported>),
    /// A node is connected and reconciled: it takes work.
    NodeReady { node: NodeName },
    /// A node is connected and still holds attempts that were ended here. It gets no new work until they are gone.
    NodeReconciling { node: NodeName },
    /// A node's agent has no supervisor: the node gets no new work.
    NodeUnsupervised {
        node: NodeName,
        /// Reason and way out, from the agent.
        why: String,
    },
    /// A node is silent or its connection is down: it gets no new work.
    NodeUnreachable { node: NodeName },
    /// A node was silent for so long that its attempts must have stopped. They end, and their steps are queued again.
    NodeLost { node: NodeName },
    /// A step was accepted and queued.
    StepQueued(StepQueued),
    /// A part of an array entered the queue.
    PartQueued(PartQueued),
    /// Parts of an array ended that had not entered the queue.
    PartsEnded(PartsEnded),
    /// A step on which a queued step depends has ended as required.
    DependencyMet {
        step: StepId,
        /// The step that has ended.
        on: StepId,
    },
    /// The time before which a queued step does not start has come.
    BeginReached { step: StepId },
    /// A queued step was moved to another pool, in its old place.
    StepMoved(StepMoved),
    /// A step was rejected because it could never be granted. It is stored all the same.
    StepRejected(StepRejected),
    /// Resources were granted to a new attempt.
    Allocated(Allocated),
    /// A step that cannot start yet was nominated for hosts.
    Nominated {
        step: StepId,
        /// The hosts, and the attempts whose end it awaits.
        nomination: Nomination,
    },
    /// A nomination ended without the start of its step.
    Withdrawn { step: StepId },
    /// A host works on an attempt.
    Starting { attempt: AttemptId, node: NodeName },
    /// An attempt's process runs.
    Started(Started),
    /// A host has given an attempt its ports.
    PortsAllocated(PortsAllocated),
    /// An attempt has become ready on a host or is no longer ready there, or its probe fails in another way.
    ReadinessChanged(ReadinessChanged),
    /// An attempt is being stopped.
    Stopping(Stopping),
    /// An attempt's process has ended; its resources are not free yet.
    Ended(Ended),
    /// An attempt's resources on a host are free.
    Released(Released),
    /// A step was queued again, in its old place.
    Requeued {
        step: StepId,
        /// The reason why its attempt has ended.
        #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
        reason: Cause,
    },
    /// A step reached a terminal state.
    StepEnded(StepEnded),
    /// A step in a terminal state was dropped from memory, because more have ended since than are kept.
    StepForgotten {
        step: StepId,
        /// Whether a caller deleted it; then its id stays taken.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        deleted: bool,
    },
    /// An admin cordoned a node, or changed the reason. Running steps go on.
    NodeCordoned {
        node: NodeName,
        /// Text of the admin, or empty.
        reason: String,
    },
    /// An admin drained a node, or changed the reason or the deadline.
    NodeDraining(NodeDraining),
    /// An admin opened a node again: it is neither cordoned nor drained.
    NodeUncordoned { node: NodeName },
    /// An admin set or removed labels of a node.
    NodeLabelled(NodeLabelled),
    /// An admin deletes a silent node. Its attempts may run on until it is lost, so it is kept until then.
    NodeLeaving { node: NodeName },
    /// A node was deleted, and its pool lost the node's resources.
    NodeDeleted { node: NodeName },
    /// A node that is being drained is empty.
    NodeDrained { node: NodeName },
    /// A pool without nodes was deleted with its policies.
    PoolDeleted { pool: PoolName },
    /// An attempt is being frozen.
    Suspending(Suspending),
    /// An attempt is frozen: all that it held except its memory is free.
    Suspended(Suspended),
    /// A frozen attempt holds all that it asked for again, and is being resumed.
    Resuming {
        attempt: AttemptId,
        /// Queued steps that were passed over for this grant and may preempt it.
        backfill: BTreeSet<StepId>,
    },
    /// An attempt that was frozen runs again.
    Resumed { attempt: AttemptId, node: NodeName },
    /// An attempt could not be frozen or resumed.
    NotSuspended(NotSuspended),
    /// A caller suspended a step. It is not considered until a caller resumes it.
    Held { step: StepId },
    /// The holder of an allocation renewed it.
    Renewed(Renewal),
    /// A caller resumed a step that a caller had suspended.
    Unheld { step: StepId },
    /// A node's agent reported which GPUs are unfit, and why. All others are fit.
    GpusReported {
        node: NodeName,
        /// The unfit GPUs.
        states: GpuStates,
    },
    /// An admin cordoned GPUs of a node, or changed the reason. Running steps go on.
    GpusCordoned(GpusCordoned),
    /// An admin uncordoned GPUs of a node, or had GPUs checked that their host reported as unfit.
    GpusUncordoned { node: NodeName, gpus: Vec<String> },
    /// The terms of the cluster were set.
    ClusterPut { terms: ClusterSpec },
    /// The topology of the cluster was set. Running steps go on.
    TopologyPut { terms: TopologySpec },
    /// A template was made or changed. Steps that were submitted before keep the old one.
    TemplatePut {
        template: TemplateName,
        terms: Template,
    },
    /// A template was deleted.
    TemplateDeleted { template: TemplateName },
    /// An attempt has saved its work: the cost of a preemption counts from there.
    Checkpointed {
        attempt: AttemptId,
        /// Time by the coordinator's clock; earlier than the record.
        saved_at: Time,
    },
    /// A validation document was made or changed.
    ValidationPut {
        validation: ValidationName,
        terms: ValidationSpec,
    },
    /// A validation document was deleted.
    ValidationDeleted { validation: ValidationName },
    /// A platform of a pool was declared or changed. Running steps go on.
    PlatformPut(PlatformPut),
    /// An admin moves a node to another pool as soon as it is empty.
    NodeMoving { node: NodeName, pool: PoolName },
    /// A node was moved to another pool, whatever its config says. It is open again, unless it was cordoned before.
    NodeMoved {
        node: NodeName,
        /// The new pool.
        pool: PoolName,
    },
    /// A pool no longer declares a platform.
    PlatformDeleted {
        pool: PoolName,
        platform: PlatformName,
    },
    /// A role, a binding or an API token was changed.
    AccessChanged { change: AccessChange },
    /// A caller changed something, or was refused.
    Audited { entry: AuditEntry },
    /// An admin made a join token. Its secret is not stored.
    JoinTokenMade(JoinTokenMade),
    /// A host joined by a token: certificates of earlier generations admit nobody any more.
    JoinTokenUsed(JoinTokenUsed),
    /// An admin revoked a join token. Hosts that joined by it stay.
    JoinTokenRevoked { token: JoinTokenId },
    /// A host showed the secret of a join token and was refused.
    JoinRefused(JoinRefused),
    /// A host with the certificate of a node was refused. Recorded once until the node is admitted again.
    NodeRefused {
        node: NodeName,
        /// Reason and way out.
        why: String,
    },
    /// The access of a node was ended: certificates of earlier generations admit nobody any more.
    NodeRevoked {
        node: NodeName,
        /// Lowest generation that a new certificate must have.
        generation: Generation,
    },
    /// The store is older than the hosts: nothing new starts until they have reported what they run.
    RecoveryBegan {
        why: RecoveryCause,
        /// Last position in the log of which the store knows all grants.
        known: LogPoint,
    },
    /// The attempts on hosts are known again: queued steps may start.
    RecoveryEnded {
        /// The way in which the recovery ended.
        end: RecoveryEnd,
    },
    /// An attempt that runs or ran on a host and was not known here was adopted, with its step.
    Adopted(Adopted),
    /// A GPU of a node is being cut into slices. Nothing of it is granted until that has ended.
    GpuCarving {
        node: NodeName,
        #[serde(flatten)]
        order: CarveOrder,
    },
    /// A GPU of a node was cut into slices.
    GpuCarved {
        node: NodeName,
        /// UUID of the whole GPU.
        gpu: String,
    },
    /// A GPU of a node could not be cut into slices.
    GpuNotCarved(CarvingFailed),
    /// A service was made or changed.
    ServicePut(Box<ServicePut>),
    /// The number of replicas of a service was set, by a caller or by its load.
    ServiceScaled(ServiceScale),
    /// A caller deleted a service: its replicas are stopped.
    ServiceDeleting { service: ServiceName },
    /// A deleted service has no replica left and is gone.
    ServiceDeleted(ServiceDeleted),
    /// A step is a replica of a service.
    ReplicaStarted(ReplicaStarted),
    /// A replica became ready, is ready no more, or is drained.
    ReplicaChanged(ReplicaChanged),
    /// The step of a replica has ended.
    ReplicaEnded(ReplicaEnded),
    /// A replica ended that was not to end, or could not be added.
    ReplicaFailed(ReplicaFailed),
    /// The replicas of a service have been ready for a while after failures: these count no more.
    ServiceRecovered { service: ServiceName },
    /// All replicas of a service are of the wanted version and ready, or none became ready in time.
    RolloutEnded {
        service: ServiceName,
        /// The wanted version.
        revision: u32,
        /// The reason, if it is not ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stalled: Option<String>,
    },
}
