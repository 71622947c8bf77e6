//! Facts. What is in the log is what happened, never what was asked: a newer scheduler reads an older log and comes to
//! the same state. The same records are the audit log, the event stream and the input of a replay.

mod about;
pub(crate) mod clock;
mod joining;
mod stamped;
mod words;

pub use {about::About, joining::JoinTokenMade, stamped::Stamped};

use crate::model::placement::Placement;
use words::*;

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// A coordinator began to speak for the cluster, or an admin set the epoch after which the next one does.
    CoordinatorStarted {
        /// Its epoch.
        epoch: Epoch,
        /// Silence after which it calls a node lost. The leases that it gives run out before that.
        #[serde(default)]
        lost_after: Span,
    },
    /// A coordinator started with a clock that was ahead.
    ClockJumped(clock::ClockJump),
    /// A pool was made or changed.
    PoolPut {
        /// Its name.
        pool: PoolName,
        /// For people.
        description: String,
        /// Capacity by key, where it is declared.
        #[serde(default)]
        capacity: Table,
        /// For how long after its start a run is spared by others' priority and reclaim.
        #[serde(default)]
        min_runtime: Span,
        /// What its nodes must be able to do to the processes of a step; one that cannot gets no new work.
        #[serde(default)]
        require: BTreeSet<Capability>,
        /// Its rules over what is submitted to it.
        #[serde(default, skip_serializing_if = "PoolRules::is_empty")]
        rules: PoolRules,
    },
    /// A subject was bound to a pool, or on other terms.
    PolicyPut {
        /// The pool.
        pool: PoolName,
        /// Who.
        subject: Subject,
        /// On which terms.
        policy: Policy,
    },
    /// A subject is bound to a pool no longer. What it runs there goes on.
    PolicyDeleted {
        /// The pool.
        pool: PoolName,
        /// Who.
        subject: Subject,
    },
    /// A node was let in, with what it has; also when it comes back changed or its inventory changes.
    NodeReported {
        /// Its name.
        node: NodeName,
        /// The pool that it is in.
        pool: PoolName,
        /// The pool that its config names, or else its certificate. Absent in logs of releases in which a config moved a
        /// node: there it is `pool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool_of_config: Option<PoolName>,
        /// From its config.
        labels: BTreeMap<String, String>,
        /// Where the other hosts of a gang reach it; empty in logs of before there was one, for its name.
        #[serde(default)]
        address: String,
        /// Version of its agent.
        version: String,
        /// Its boot.
        boot_id: BootId,
        /// What it has.
        inventory: Inventory,
    },
    /// A node is linked, heard and reconciled: it takes work.
    NodeReady {
        /// Its name.
        node: NodeName,
    },
    /// A node is linked and heard, and still holds attempts that were ended here: no new work until they are gone.
    NodeReconciling {
        /// Its name.
        node: NodeName,
    },
    /// A node is heard, and its agent has no supervisor: no new work.
    NodeUnsupervised {
        /// Its name.
        node: NodeName,
        /// Why, and what to do there, in the agent's words.
        why: String,
    },
    /// A node is silent or its link is down: no new work.
    NodeUnreachable {
        /// Its name.
        node: NodeName,
    },
    /// A node was silent for so long that its attempts must have stopped: they end, and their steps go on elsewhere.
    NodeLost {
        /// Its name.
        node: NodeName,
    },
    /// A step was accepted and waits.
    StepQueued {
        /// Its id.
        step: StepId,
        /// What to run. The values of its variables are never written with it: they are kept apart.
        #[serde(serialize_with = "without_values")]
        spec: StepSpec,
        /// Pools whose rules did not let it in.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        barred: BTreeSet<PoolName>,
        /// Where the cluster's defaults send it.
        #[serde(default, skip_serializing_if = "Home::is_empty")]
        home: Home,
        /// What templates lay under it, wherever it may be granted.
        #[serde(default, skip_serializing_if = "Grounds::is_empty")]
        grounds: Grounds,
    },
    /// A step was refused for good: it could never be granted. It is stored all the same.
    StepRejected {
        /// Its id.
        step: StepId,
        /// What it asked for, written like that of [`Record::StepQueued`].
        #[serde(serialize_with = "without_values")]
        spec: StepSpec,
        /// Why, with the numbers.
        reason: Reason,
    },
    /// Units were granted to a new attempt.
    Allocated {
        /// The attempt.
        attempt: AttemptId,
        /// Which pool granted them.
        pool: PoolName,
        /// Where, by rank.
        placements: Vec<Placement>,
        /// The waiters around which they were granted: these may take them back.
        #[serde(default)]
        backfill: BTreeSet<StepId>,
        /// The port at which the parts of a gang meet, on the host of rank 0.
        #[serde(default)]
        port: Option<u16>,
    },
    /// A step that cannot start yet was promised a place.
    Nominated {
        /// Its id.
        step: StepId,
        /// Where, and whose end it awaits.
        nomination: Nomination,
    },
    /// A promise ended without its step having started.
    Withdrawn {
        /// Its id.
        step: StepId,
    },
    /// A host works on an attempt.
    Starting {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
    },
    /// An attempt's process runs.
    Started {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
        /// The process.
        process: Started,
    },
    /// An attempt is to stop.
    Stopping {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        why: StopWhy,
        /// The step that it gives way to, where it does.
        #[serde(default)]
        by: Option<StepId>,
        /// After how long what is left of it is killed, where whoever stops it said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace: Option<Span>,
    },
    /// An attempt's process has ended; its units are not free yet.
    Ended {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
        /// How.
        end: AttemptEnd,
    },
    /// An attempt's units on a host are free.
    Released {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
    },
    /// A step waits again, in its old place.
    Requeued {
        /// Its id.
        step: StepId,
        /// Why its attempt is over.
        reason: Reason,
    },
    /// A step came to a terminal state.
    StepEnded {
        /// Its id.
        step: StepId,
        /// Which.
        state: StepState,
        /// Why.
        reason: Reason,
    },
    /// A step in a terminal state was dropped from memory: more have ended since than are kept.
    StepForgotten {
        /// Its id.
        step: StepId,
    },
    /// An admin closed a node to new work, or changed why. What runs there goes on.
    NodeCordoned {
        /// Its name.
        node: NodeName,
        /// In the admin's words; empty where none were given.
        reason: String,
    },
    /// An admin closed a node to new work and wants it empty, or changed why or until when.
    NodeDraining {
        /// Its name.
        node: NodeName,
        /// In the admin's words; empty where none were given.
        reason: String,
        /// When what cannot be made to give way is stopped too.
        deadline: Option<Time>,
    },
    /// An admin opened a node again: it is neither cordoned nor drained.
    NodeUncordoned {
        /// Its name.
        node: NodeName,
    },
    /// An admin set labels of a node, or took some away.
    NodeLabelled {
        /// Its name.
        node: NodeName,
        /// Those that were set.
        set: BTreeMap<LabelKey, LabelValue>,
        /// Those that were taken away.
        removed: BTreeSet<LabelKey>,
    },
    /// An admin wants a silent node forgotten; what it holds may run on until it is lost, so it is kept until then.
    NodeLeaving {
        /// Its name.
        node: NodeName,
    },
    /// A node was forgotten: its pool no longer has what it had.
    NodeDeleted {
        /// Its name.
        node: NodeName,
    },
    /// A node that was to become empty is.
    NodeDrained {
        /// Its name.
        node: NodeName,
    },
    /// A pool without nodes is no more, nor are its policies.
    PoolDeleted {
        /// Its name.
        pool: PoolName,
    },
    /// An attempt is to be frozen.
    Suspending {
        /// The attempt.
        attempt: AttemptId,
        /// The step that it gives way to; `None` where somebody asked for it.
        by: Option<StepId>,
        /// Host memory that is kept for what will be moved from its GPUs.
        room_mb: u64,
    },
    /// An attempt is frozen: all that it held but its memory is free.
    Suspended {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
        /// What was moved from its GPUs to the host's memory, which it holds too.
        moved_mb: u64,
    },
    /// A frozen attempt holds again all that it asked for, and is to be brought back.
    Resuming {
        /// The attempt.
        attempt: AttemptId,
        /// The waiters around which that was granted: these may take it back.
        backfill: BTreeSet<StepId>,
    },
    /// An attempt that was frozen runs again.
    Resumed {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
    },
    /// An attempt was to be frozen or brought back, which could not be done.
    NotSuspended {
        /// The attempt.
        attempt: AttemptId,
        /// The host.
        node: NodeName,
        /// Why not.
        why: SuspendFailure,
    },
    /// Somebody suspended a step: it waits for nothing but to be let go again.
    Held {
        /// Its id.
        step: StepId,
    },
    /// A step that somebody had suspended may go on.
    Unheld {
        /// Its id.
        step: StepId,
    },
    /// A node's agent told which of its GPUs are not to be granted, and why; of all others that they are.
    GpusReported {
        /// The node.
        node: NodeName,
        /// All that is wrong.
        states: GpuStates,
    },
    /// An admin closed GPUs of a node to new work, or changed why. What runs on them goes on.
    GpusCordoned {
        /// The node.
        node: NodeName,
        /// Their UUIDs.
        gpus: Vec<String>,
        /// In the admin's words; empty where none were given.
        reason: String,
    },
    /// An admin opened GPUs of a node again, or had those looked at that their host called unfit.
    GpusUncordoned {
        /// The node.
        node: NodeName,
        /// Their UUIDs.
        gpus: Vec<String>,
    },
    /// The terms of the cluster as a whole were set.
    ClusterPut {
        /// Which.
        terms: ClusterTerms,
    },
    /// A template was made or changed. What was submitted before stands on what it was.
    TemplatePut {
        /// Its name.
        template: TemplateName,
        /// What it says.
        terms: Template,
    },
    /// A template is no more.
    TemplateDeleted {
        /// Its name.
        template: TemplateName,
    },
    /// An attempt has saved its work: what its loss would cost counts from there.
    Checkpointed {
        /// The attempt.
        attempt: AttemptId,
        /// When, by the coordinator's clock; earlier than the record.
        saved_at: Time,
    },
    /// A document of assertions was made or changed.
    ValidationPut {
        /// Its name.
        validation: ValidationName,
        /// What is asserted.
        terms: ValidationTerms,
    },
    /// A document of assertions is there no longer.
    ValidationDeleted {
        /// Its name.
        validation: ValidationName,
    },
    /// A platform of a pool was declared or changed. What runs on its GPUs goes on.
    PlatformPut {
        /// The pool.
        pool: PoolName,
        /// Its name.
        platform: PlatformName,
        /// What it is.
        terms: PlatformTerms,
    },
    /// An admin wants a node in another pool as soon as it is empty.
    NodeMoving {
        /// Its name.
        node: NodeName,
        /// Where to.
        pool: PoolName,
    },
    /// A node is in another pool, whatever its config says. It is open again, unless it was closed before.
    NodeMoved {
        /// Its name.
        node: NodeName,
        /// Where it is.
        pool: PoolName,
    },
    /// A pool declares a platform no longer.
    PlatformDeleted {
        /// The pool.
        pool: PoolName,
        /// Its name.
        platform: PlatformName,
    },
    /// It was changed who may do what.
    AccessChanged {
        /// How.
        change: AccessChange,
    },
    /// Somebody changed something, or was refused.
    Audited {
        /// Who did what.
        entry: AuditEntry,
    },
    /// An admin made a token by which hosts join. Its secret is kept nowhere.
    JoinTokenMade(JoinTokenMade),
    /// A host joined by a token: certificates of earlier generations open nothing any more.
    JoinTokenUsed {
        /// The token.
        token: JoinTokenId,
        /// The name that the host was given.
        node: NodeName,
        /// The key that it made for itself.
        key: Fingerprint,
        /// The generation of its access.
        generation: Generation,
    },
    /// An admin took a token back. Hosts that it has let in stay.
    JoinTokenRevoked {
        /// The token.
        token: JoinTokenId,
    },
    /// A host showed the secret of a token and was not let in.
    JoinRefused {
        /// The token.
        token: JoinTokenId,
        /// The name that the host wanted to have.
        node: NodeName,
        /// Why not.
        why: String,
    },
    /// A host with the certificate of a node was not let in. Said once until the node is let in again.
    NodeRefused {
        /// The node.
        node: NodeName,
        /// Why not, and what would help.
        why: String,
    },
    /// The access of a node was ended: certificates of earlier generations open nothing any more.
    NodeRevoked {
        /// The node.
        node: NodeName,
        /// The generation that a new certificate must have at least.
        generation: Generation,
    },
    /// The store is of an earlier time than the hosts: nothing new starts until they have told what they run.
    RecoveryBegan {
        /// Why.
        why: RecoveryWhy,
        /// Up to where the store knows what was granted.
        known: LogPoint,
    },
    /// What hosts run is known again: what waits may start.
    RecoveryEnded {
        /// How it came to its end.
        end: RecoveryEnd,
    },
    /// An attempt that was not known here runs on a host, or has run: it is one of ours again, and so is its step.
    Adopted {
        /// The attempt.
        attempt: AttemptId,
        /// The host that showed its warrant.
        node: NodeName,
        /// What it is.
        #[serde(serialize_with = "Warrant::without_values")]
        warrant: Box<Warrant>,
        /// Where it is frozen, its process and what was moved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frozen: Option<FrozenOnHost>,
    },
}
