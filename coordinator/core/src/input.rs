//! The inputs of the core.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use sluice_common::platform::spec::PlatformSpecs;
use sluice_common::pool::PoolSpec;

use sluice_common::access::AuditEntry;
use sluice_common::allocation::HolderState;
use sluice_common::cluster::ClusterSpec;
use sluice_common::credential::{NodeClaim, SecretHash};
use sluice_common::id::{
    AttemptId, JoinTokenId, NodeName, PlatformName, PoolName, ReporterName, ServiceName, StepId,
    Subject, TemplateName, ValidationName,
};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PolicySpec;
use sluice_common::service::{RequestLoad, ServiceSpec};
use sluice_common::step::StepSpec;
use sluice_common::template::Template;
use sluice_common::time::Span;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;
use sluice_common::wire::{FromNode, Heartbeat, Hello};

use crate::model::access::AccessChange;
use crate::model::join::JoinApplication;
use crate::model::recovery::Warrant;

/// A caller that waits for an answer. The driver draws the number and never reuses it within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// One connection of one agent. The driver counts the number up and never reuses it within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// An event that the core handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A caller submits one step or a batch.
    Submit {
        /// Caller that waits for [`crate::Answer::Submitted`].
        reply: ReplyId,
        /// The steps, in order. The client chooses ids or the API draws them.
        steps: Vec<NewStep>,
    },
    /// A caller asks for a preview of a submit. Nothing is stored.
    Preview {
        /// Caller that waits for [`crate::Answer::Previewed`].
        reply: ReplyId,
        /// The step, under an unused id.
        step: Box<NewStep>,
    },
    /// A caller cancels a step.
    Cancel {
        /// Caller that waits for [`crate::Answer::Cancelled`].
        reply: ReplyId,
        step: StepId,
        /// Time after which the rest of the step is killed, if that is earlier than its own grace.
        grace: Option<Span>,
    },
    /// A caller suspends, resumes or requeues a step.
    StepAction {
        /// Caller that waits for [`crate::Answer::Steered`].
        reply: ReplyId,
        step: StepId,
        action: StepAction,
    },
    /// The holder of an allocation renews it.
    Renew {
        /// Caller that waits for [`crate::Answer::Steered`].
        reply: ReplyId,
        step: StepId,
        /// Time until the next renewal; that of the allocation if `None`.
        lease: Option<Span>,
        holder: Option<HolderState>,
    },
    /// A caller moves a queued step to another pool.
    MoveStep {
        /// Caller that waits for [`crate::Answer::Moved`]; for [`crate::Answer::Previewed`] if a dry run finds the step
        /// waiting.
        reply: ReplyId,
        step: StepId,
        target: MoveTarget,
        /// Whether to report what would come of it without moving the step.
        dry_run: bool,
    },
    /// A caller changes or deletes a service.
    ChangeService {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        service: ServiceName,
        change: ServiceChange,
        /// The version that the caller has read; 0 means that there is none.
        version: Option<u64>,
    },
    /// A program reports the load of a service, as its gateways do.
    ReportLoad {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        report: ServiceReport,
    },
    /// A caller changes pools, policies and other documents: all changes are made, or none.
    Apply {
        /// Caller that waits for [`crate::Answer::Applied`].
        reply: ReplyId,
        /// The changes, in any order; at most one for each object.
        changes: Vec<TermsChange>,
        /// Whether to make the changes although steps use what they take away.
        force: bool,
        /// Whether to report the effects without making the changes.
        dry_run: bool,
    },
    /// An agent has said hello; the driver has checked its certificate against the name.
    NodeHello {
        session: SessionId,
        hello: Box<Hello>,
        /// Other contents of the certificate.
        claim: NodeClaim,
        /// Whether the highest epoch in the hello bears the cluster's seal for this node.
        epoch_is_proven: bool,
    },
    /// An agent sent a message after its hello.
    FromNode {
        /// The connection. Messages on a connection that was replaced are ignored.
        session: SessionId,
        node: NodeName,
        message: FromNode,
    },
    /// A heartbeat arrived.
    Heartbeat {
        session: SessionId,
        node: NodeName,
        beat: Heartbeat,
    },
    /// An agent shows the warrant of an attempt, whose seal the driver has checked, or reports that it has none.
    Warrant {
        session: SessionId,
        node: NodeName,
        attempt: AttemptId,
        warrant: Option<Box<Warrant>>,
    },
    /// At the start the clock was ahead by this much of the time that is known to have passed. Comes after the start
    /// and before other inputs.
    ClockJumped(Span),
    /// The bounds of the driver's config, if they differ from [`Settings`].
    Bounds(Bounds),
    /// An admin ends a recovery before all hosts have reported.
    EndRecovery {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
    },
    /// A connection has ended.
    NodeGone { session: SessionId, node: NodeName },
    /// An admin cordons, uncordons, drains, moves, labels or deletes a node.
    ChangeNode {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        node: NodeName,
        change: NodeChange,
    },
    /// A caller makes or revokes an API token.
    Access {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        change: AccessChange,
    },
    /// A call to be recorded for the audit log. Nobody waits for an answer.
    Audit { entry: AuditEntry },
    /// An admin makes a join token.
    MakeJoinToken {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        token: NewJoinToken,
    },
    /// An admin revokes a join token. Hosts that joined by it stay.
    RevokeJoinToken {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        token: JoinTokenId,
    },
    /// A host shows the secret of a join token.
    Join {
        /// Caller that waits for [`crate::Answer::Joined`].
        reply: ReplyId,
        application: JoinApplication,
    },
    /// A timer has fired. Timers may fire late, or after they were set again: the core decides by the time and the
    /// state alone.
    Timer(TimerKey),
}

/// An action on a step. Repeating it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// Freezes running attempts, and holds back a queued step, until a caller resumes it.
    Suspend,
    /// Resumes a step that a caller suspended.
    Resume,
    /// Stops the step and queues it again in its old place.
    Requeue,
    /// Forgets a step that has ended and holds nothing.
    Delete,
}

/// The load of a service, as a reporter counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReport {
    pub service: ServiceName,
    pub reporter: ReporterName,
    pub load: RequestLoad,
}

/// A change of a service. Repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    /// Makes the service, or changes it to this.
    Put(Box<ServiceSpec>),
    /// Sets the number of its replicas.
    Scale(u32),
    /// Goes back to a version; to the last one that differs if `None`.
    Undo(Option<u32>),
    /// Stops its replicas, and forgets it then.
    Delete,
}

/// One change of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsChange {
    pub desired: Desired,
    /// The version that the caller has read; 0 means that the object does not exist. The change is refused if the
    /// version differs.
    pub version: Option<u64>,
}

/// The wanted state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// Sets the terms of a pool. Its policies stay.
    Pool {
        pool: PoolName,
        terms: Box<DesiredPool>,
    },
    /// Sets the terms of the cluster.
    Cluster { terms: ClusterSpec },
    /// Sets the topology of the cluster.
    Topology { terms: TopologySpec },
    /// Sets the policy of a subject in a pool.
    Policy {
        pool: PoolName,
        subject: Subject,
        policy: PolicySpec,
    },
    /// Deletes the policy of a subject in a pool. Running steps go on.
    NoPolicy { pool: PoolName, subject: Subject },
    /// Sets the assertions of a validation document.
    Validation {
        validation: ValidationName,
        terms: ValidationSpec,
    },
    /// Deletes a validation document, which no pool may name.
    NoValidation { validation: ValidationName },
    /// Sets the terms of a platform of a pool.
    Platform {
        pool: PoolName,
        platform: PlatformName,
        terms: Box<PlatformSpec>,
    },
    /// Deletes a platform of a pool. Its hosts then belong to the remaining platforms.
    NoPlatform {
        pool: PoolName,
        platform: PlatformName,
    },
    /// Deletes a pool and its policies. The pool must have no nodes.
    NoPool { pool: PoolName },
    /// Sets the contents of a template.
    Template {
        template: TemplateName,
        terms: Box<Template>,
    },
    /// Deletes a template, which no pool may name.
    NoTemplate { template: TemplateName },
    /// Sets or deletes a role or a binding.
    Access { change: AccessChange },
}

/// The wanted terms of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredPool {
    pub spec: PoolSpec,
    /// The complete list of platforms. An empty list keeps the platforms that other changes of the same call set.
    /// `None` leaves all platforms as they are.
    pub platforms: Option<PlatformSpecs>,
}

impl From<PoolSpec> for DesiredPool {
    fn from(spec: PoolSpec) -> Self {
        let platforms = None;
        Self { spec, platforms }
    }
}

/// A change of a node. Repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Closes the node to new work; running steps go on.
    Cordon {
        /// Text of the admin. `None` keeps the earlier text.
        reason: Option<String>,
    },
    /// Opens the node to new work again.
    Uncordon,
    /// Closes the node to new work and stops preemptible steps there, which start elsewhere. The others may end.
    Drain {
        /// Text of the admin. `None` keeps the earlier text.
        reason: Option<String>,
        /// Time after which the others are stopped too. `None` keeps the earlier deadline.
        deadline: Option<Span>,
    },
    /// Drains the node, and moves it to this pool when it is empty.
    Move {
        pool: PoolName,
        /// Text of the admin. `None` keeps the earlier text.
        reason: Option<String>,
        /// Time after which the others are stopped too. `None` keeps the earlier deadline.
        deadline: Option<Span>,
    },
    /// Sets these labels, and removes those without a value; other labels stay.
    Label(BTreeMap<LabelKey, Option<LabelValue>>),
    /// Deletes the node, if it is away and holds nothing.
    Delete {
        /// Whether to delete a connected node too, and cut its connection. A node that holds attempts is deleted when
        /// it is lost.
        force: bool,
    },
    /// Closes one GPU of the node to new work; running steps go on.
    CordonGpu {
        /// Index or UUID. The UUID of a partitioned GPU means all of its instances.
        gpu: String,
        /// Text of the admin. `None` keeps the earlier text.
        reason: Option<String>,
    },
    /// Opens one GPU of the node again. A GPU that the host reports as unfit is checked first.
    UncordonGpu {
        /// Index or UUID.
        gpu: String,
    },
    /// Ends the access of the node and cuts its connection: no certificate admits it any more.
    Revoke,
}

/// A join token to be made. The API draws the id and the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJoinToken {
    pub id: JoinTokenId,
    /// Hash of the secret.
    pub hash: SecretHash,
    /// The pool that hosts join; `None` leaves it to the config of each host.
    pub pool: Option<PoolName>,
    /// The only node that may join; `None` allows any unused name.
    pub node: Option<NodeName>,
    /// Labels of the nodes that join.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Number of hosts that may join.
    pub uses: u32,
    pub ttl: Span,
}

/// A step to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    /// The id. Submitting the same spec under the same id again is harmless.
    pub id: StepId,
    pub spec: StepSpec,
    /// Whether the caller may submit to pools in maintenance, because the caller may change them.
    pub past_maintenance: bool,
}

impl NewStep {
    /// Makes a step of a caller whom maintenance keeps out.
    pub fn new(id: StepId, spec: StepSpec) -> Self {
        Self {
            id,
            spec,
            past_maintenance: false,
        }
    }
}

/// The pool to which a caller moves a queued step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveTarget {
    pub pool: PoolName,
    /// Whether the caller may move steps to pools in maintenance, because the caller may change them.
    pub past_maintenance: bool,
}

/// The purpose of a timer. Setting a timer again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The node has been silent for `unreachable_after` or `lost_after`.
    NodeSilence(NodeName),
    /// `min_runtime` of a run in the pool has passed.
    Pool(PoolName),
    /// The deadline of the node's drain has passed.
    DrainDeadline(NodeName),
    /// The attempt has been frozen for longer than allowed.
    Suspension(AttemptId),
    /// The step has been queued for longer than allowed.
    Queue(StepId),
    /// The lease of the allocation is over.
    Lease(StepId),
    /// The allocation in a pool without hosts has run for as long as it may, or its grace is over.
    Hostless(StepId),
    /// Something is due for the service: a pause, a drain or a deadline is over.
    Service(ServiceName),
    /// A rate-limited node may change once more.
    Changes(NodeName),
    /// The recovery may end.
    Recovery,
    /// A GPU of the pool that could not be cut may be tried again.
    Carving(PoolName),
}

/// Bounds of the stored steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Steps in a terminal state. Beyond it the oldest of the subject with most of them is forgotten first.
    pub keep_finished: usize,
    /// Bytes of the specs of these. Beyond it the oldest of the subject with most bytes is forgotten first.
    pub keep_finished_bytes: u64,
    /// Steps of one subject that are not in a terminal state.
    pub queued_steps: u64,
    /// Bytes of the specs of these.
    pub queued_bytes: u64,
}

impl Bounds {
    /// Bounds unless the config sets others: a hundred thousand steps of one subject, of some kB each, are a busy
    /// day. A step in a terminal state takes some 1 kB in memory and in a snapshot.
    pub const DEFAULT: Self = Self {
        keep_finished: 20_000,
        keep_finished_bytes: 1 << 30,
        queued_steps: 200_000,
        queued_bytes: 1 << 30,
    };
}

/// Settings from the driver's config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time for which attempts run on without an acknowledged heartbeat.
    pub lease: Span,
    /// Longest time to stop an attempt whose lease has expired.
    pub stop_limit: Span,
    /// Interval between two heartbeats.
    pub heartbeat: Span,
    /// Silence after which a node gets no new work. An order to start or resume an attempt is valid for two thirds of
    /// it.
    pub unreachable_after: Span,
    /// Silence after which a node is lost. The driver checks that it is at least lease + stop limit + keeper limit +
    /// drift margin.
    pub lost_after: Span,
    pub bounds: Bounds,
}
