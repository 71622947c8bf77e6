//! The inputs of the core.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use sluice_common::platform::spec::PlatformSpecs;
use sluice_common::pool::PoolSpec;

use sluice_common::access::AuditEntry;
use sluice_common::cluster::ClusterSpec;
use sluice_common::credential::{NodeClaim, SecretHash};
use sluice_common::id::{
    AttemptId, JoinTokenId, NodeName, PlatformName, PoolName, StepId, Subject, TemplateName,
    ValidationName,
};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PolicySpec;
use sluice_common::step::StepSpec;
use sluice_common::template::Template;
use sluice_common::time::Span;
use sluice_common::validation::ValidationSpec;
use sluice_common::wire::{FromNode, Heartbeat, Hello};

use crate::model::access::AccessChange;
use crate::model::join::JoinApplication;
use crate::model::recovery::Warrant;

/// A caller that waits for an answer; drawn by the driver, never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// One connection of one agent; drawn by the driver, counted up, never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A caller submits steps: one, or a batch.
    Submit {
        /// Caller that waits for [`crate::Answer::Submitted`].
        reply: ReplyId,
        /// The steps, in order. Ids are chosen by the client or drawn by the edge.
        steps: Vec<NewStep>,
    },
    /// A caller asks what a submit would come to. Nothing of it is stored.
    Preview {
        /// Caller that waits for [`crate::Answer::Previewed`].
        reply: ReplyId,
        /// The step, under an id that nobody has.
        step: Box<NewStep>,
    },
    /// A caller cancels a step.
    Cancel {
        /// Caller that waits for [`crate::Answer::Cancelled`].
        reply: ReplyId,
        step: StepId,
        /// After how long what is left of it is killed, if that is sooner than it would be.
        grace: Option<Span>,
    },
    /// A caller suspends a step, resumes it or has it start again.
    StepAction {
        /// Caller that waits for [`crate::Answer::Steered`].
        reply: ReplyId,
        step: StepId,
        action: StepAction,
    },
    /// A caller sets the terms of pools and of subjects in them: all of these changes are made, or none.
    Apply {
        /// Caller that waits for [`crate::Answer::Applied`].
        reply: ReplyId,
        /// The changes. Their order does not matter, and no two may be of one thing.
        changes: Vec<TermsChange>,
        /// Whether to make them though a caller uses what they take away.
        force: bool,
        /// Whether to tell only what they would mean.
        dry_run: bool,
    },
    /// An agent has said hello; its certificate was checked against the name.
    NodeHello {
        session: SessionId,
        hello: Box<Hello>,
        /// What its certificate says beside its name.
        claim: NodeClaim,
        /// Whether the cluster's own key has sealed the highest epoch that it shows, for this node.
        epoch_is_proven: bool,
    },
    /// An agent has said something after its hello.
    FromNode {
        /// The connection; words of one that was replaced are ignored.
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
    /// An agent shows the warrant of an attempt, which the driver has found to be ours, or has none.
    Warrant {
        session: SessionId,
        node: NodeName,
        attempt: AttemptId,
        warrant: Option<Box<Warrant>>,
    },
    /// The time that we were started with is so much later than what is known to have passed: comes after the start,
    /// before anything else.
    ClockJumped(Span),
    /// The driver's config says otherwise than [`Settings`] how much is remembered.
    Bounds(Bounds),
    /// An admin ends a recovery before all hosts have reported.
    EndRecovery {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
    },
    /// A connection is gone.
    NodeGone { session: SessionId, node: NodeName },
    /// An admin closes a node, opens, labels or forgets it.
    ChangeNode {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        node: NodeName,
        change: NodeChange,
    },
    /// A caller makes a token for the API or takes one back.
    Access {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        change: AccessChange,
    },
    /// A caller called; nobody waits for it to be noted.
    Audit { entry: AuditEntry },
    /// An admin makes a token by which hosts join.
    MakeJoinToken {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        token: NewJoinToken,
    },
    /// An admin takes a token back. Hosts that it has let in stay.
    RevokeJoinToken {
        /// Caller that waits for [`crate::Answer::Changed`].
        reply: ReplyId,
        token: JoinTokenId,
    },
    /// A host shows the secret of a token.
    Join {
        /// Caller that waits for [`crate::Answer::Joined`].
        reply: ReplyId,
        ask: JoinApplication,
    },
    /// A timer that was set has come due. Timers may fire late and may fire though they were set again: the core
    /// looks at the time and the state, not at the fact.
    Timer(TimerKey),
}

/// What a caller wants of a step. The same again changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// What runs is frozen, what waits is held back, until a caller resumes it.
    Suspend,
    /// What was suspended so goes on.
    Resume,
    /// What runs is stopped and waits again, in its old place.
    Requeue,
}

/// One change of terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsChange {
    pub desired: Desired,
    /// The version that whoever asks has seen; 0 is that it is not there. The change is refused where it is another.
    pub version: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// A pool on these terms and no others. Its policies stay.
    Pool {
        pool: PoolName,
        terms: Box<DesiredPool>,
    },
    /// The cluster as a whole on these terms and no others.
    Cluster { terms: ClusterSpec },
    /// A subject bound to a pool on these terms and no others.
    Policy {
        pool: PoolName,
        subject: Subject,
        /// On which terms.
        policy: PolicySpec,
    },
    /// A subject not bound to a pool. What it runs there goes on.
    NoPolicy { pool: PoolName, subject: Subject },
    /// A document of assertions with these and no others.
    Validation {
        validation: ValidationName,
        terms: ValidationSpec,
    },
    /// No such document. No pool may name it.
    NoValidation { validation: ValidationName },
    /// A platform of a pool on these terms and no others.
    Platform {
        pool: PoolName,
        platform: PlatformName,
        terms: Box<PlatformSpec>,
    },
    /// A pool that does not declare a platform. Its hosts are of those then that are left.
    NoPlatform {
        pool: PoolName,
        platform: PlatformName,
    },
    /// No such pool, and none of its policies. It must have no nodes.
    NoPool { pool: PoolName },
    /// A template that says this and nothing else.
    Template {
        template: TemplateName,
        terms: Box<Template>,
    },
    /// No such template. No pool may name it.
    NoTemplate { template: TemplateName },
    /// A role or a binding as it is written, or none.
    Access { change: AccessChange },
}

/// A pool that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredPool {
    /// What it is to be.
    pub spec: PoolSpec,
    /// The platforms that it declares, and no others; where it is to declare none, those stay of which the same call has
    /// changes of their own. `None` leaves them all as they are: no document says so.
    pub platforms: Option<PlatformSpecs>,
}

impl From<PoolSpec> for DesiredPool {
    fn from(spec: PoolSpec) -> Self {
        let platforms = None;
        Self { spec, platforms }
    }
}

/// What an admin wants of a node. The same again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// The node gets no new work; what runs there goes on.
    Cordon {
        /// Text of the admin. Without it one that was given before stays.
        reason: Option<String>,
    },
    /// The node gets work again.
    Uncordon,
    /// The node gets no new work, what is preemptible is stopped and starts elsewhere, and the rest may end.
    Drain {
        /// Text of the admin. Without it one that was given before stays.
        reason: Option<String>,
        /// After how long the rest is stopped too. Without it one that was given before stays.
        deadline: Option<Span>,
    },
    /// The node is in this pool as soon as it is empty, and is emptied as by a drain.
    Move {
        pool: PoolName,
        /// Text of the admin. Without it one that was given before stays.
        reason: Option<String>,
        /// After how long the rest is stopped too. Without it one that was given before stays.
        deadline: Option<Span>,
    },
    /// The node has these labels, and none where there is no value; others stay as they are.
    Label(BTreeMap<LabelKey, Option<LabelValue>>),
    /// The node is forgotten, if it is away and holds nothing.
    Delete {
        /// Also where it is linked, which cuts the link; where it holds something, it is forgotten as soon as it is lost.
        force: bool,
    },
    /// One of its GPUs gets no new work; what runs there goes on.
    CordonGpu {
        /// The index or UUID; that of a GPU which is cut means all of its instances.
        gpu: String,
        /// Text of the admin. Without it one that was given before stays.
        reason: Option<String>,
    },
    /// One of its GPUs gets work again. One that its host calls unfit is checked first.
    UncordonGpu {
        /// The index or UUID.
        gpu: String,
    },
    /// The access ends, with its link: no certificate that it has lets it in.
    Revoke,
}

/// A token to be made. Id and secret are drawn by the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJoinToken {
    pub id: JoinTokenId,
    /// What its secret hashes to.
    pub hash: SecretHash,
    /// The pool that it lets into; `None` leaves it to the config of each host.
    pub pool: Option<PoolName>,
    /// The only node that it lets in; `None` is any whose name is free.
    pub node: Option<NodeName>,
    /// What the nodes are labelled with.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Number of hosts it lets in.
    pub uses: u32,
    /// For how long.
    pub ttl: Span,
}

/// A step to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    /// The id. The same id with the same spec again is a repeat and harmless.
    pub id: StepId,
    pub spec: StepSpec,
    /// Whether maintenance is no matter to whoever submits it: he may change the pools that it may run in.
    pub past_maintenance: bool,
}

impl NewStep {
    /// A step of a caller whom maintenance keeps out.
    pub fn new(id: StepId, spec: StepSpec) -> Self {
        Self {
            id,
            spec,
            past_maintenance: false,
        }
    }
}

/// What a timer is for. Setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The node was silent for `unreachable_after`, or for `lost_after`.
    NodeSilence(NodeName),
    /// A run of the pool is spared no longer.
    Pool(PoolName),
    /// The time to empty the node is up.
    DrainDeadline(NodeName),
    /// A frozen attempt has been so for too long.
    Suspension(AttemptId),
    /// A step has waited for its resources for too long.
    Queue(StepId),
    /// A node that was held back may change once more.
    Changes(NodeName),
    /// A recovery may be over.
    Recovery,
}

/// How much is remembered, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Steps in a terminal state; the oldest of the subject with most of them is forgotten first.
    pub keep_finished: usize,
    /// Bytes that these were submitted with; the oldest of the subject with most of them is forgotten first.
    pub keep_finished_bytes: u64,
    /// Steps of one subject that are not over.
    pub queued_steps: u64,
    /// Bytes that these were submitted with.
    pub queued_bytes: u64,
}

impl Bounds {
    /// What holds unless the config says otherwise: a hundred thousand steps of one subject, of some kB each, are no more
    /// than a busy day. One that has ended takes some 1 kB in memory and in a snapshot.
    pub const DEFAULT: Self = Self {
        keep_finished: 20_000,
        keep_finished_bytes: 1 << 30,
        queued_steps: 200_000,
        queued_bytes: 1 << 30,
    };
}

/// Terms that the driver's config sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time for which attempts run on without an acknowledged heartbeat.
    pub lease: Span,
    /// How long stopping one whose lease has passed may take.
    pub stop_limit: Span,
    /// Between two heartbeats.
    pub heartbeat: Span,
    /// Silence after which a node gets no new work. An order to start or resume something is valid for two thirds of it.
    pub unreachable_after: Span,
    /// Silence after which a node is lost; at least lease + stop limit + keeper limit + drift margin, which
    /// the driver checks.
    pub lost_after: Span,
    /// How much is remembered.
    pub bounds: Bounds,
}
