//! Sentences about refused calls, for the caller.

mod in_use;
mod parts;
mod queue_full;

use alloc::{boxed::Box, string::String, vec::Vec};

use sluice_common::api::timestamp;
use sluice_common::array::IndexSet;
use sluice_common::id::{
    BindingName, JoinTokenId, NodeName, PlatformName, PoolName, RoleName, ServiceName, StepId,
    Subject, TemplateName, TokenName, ValidationName,
};
use sluice_common::platform::spec::MAX_PLATFORMS;
use sluice_common::state::StepState;
use sluice_common::time::Time;
use sluice_scheduler::PolicyError;

use super::quoted;
use crate::Cause;

pub use in_use::{InUse, Shrunk, Use};
pub use queue_full::{QueueBound, QueueFull};

use parts::{
    cycle, declared, elsewhere, gpus_of, held_by, hosts, in_use, indexes_of, instead, missing,
    named, no_revision, of_platform, standing, way_on, way_to_delete, way_to_move,
};
use queue_full::queue_full;

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No step has this id.
    #[error("there is no step `{step}`: `sluice get steps` lists those that are remembered")]
    UnknownStep { step: StepId },
    /// No service has this name.
    #[error("there is no service `{service}`: `sluice get services` lists those that there are")]
    UnknownService { service: ServiceName },
    /// The service was deleted.
    #[error(
        "service `{service}` was deleted and its replicas are stopping: apply it again once it is gone"
    )]
    ServiceDeleting { service: ServiceName },
    /// The service belongs to another subject.
    #[error(
        "service `{service}` belongs to subject `{subject}`, which cannot change: delete it first, or choose another name"
    )]
    ServiceSubject {
        service: ServiceName,
        subject: Subject,
    },
    /// The subject has as many services as one may have.
    #[error("subject `{subject}` has {limit} services, which is the most: delete one first")]
    TooManyServices { subject: Subject, limit: usize },
    /// The number of replicas is not one that the service allows.
    #[error(
        "service `{service}` has {min} to {max} replicas, not {count}: write a number between them, or change \
         `min_replicas` and `max_replicas`"
    )]
    ScaleOutOfRange {
        service: ServiceName,
        count: u32,
        min: u32,
        max: u32,
    },
    /// The service has no such version.
    #[error("{}", no_revision(service, *revision, known))]
    UnknownRevision {
        service: ServiceName,
        /// The version; the one before the present one if `None`.
        revision: Option<u32>,
        /// The versions that are kept.
        known: Vec<u32>,
    },
    /// No pool has this name.
    #[error("there is no pool `{pool}`: `sluice get pools` lists those that there are")]
    UnknownPool { pool: PoolName },
    /// The subject has no policy in the pool.
    #[error("subject `{subject}` has no policy in pool `{pool}`")]
    UnknownPolicy { pool: PoolName, subject: Subject },
    /// The pool cannot keep this policy.
    #[error("policy of `{subject}` in pool `{pool}`: {why}")]
    InvalidPolicy {
        pool: PoolName,
        subject: Subject,
        why: PolicyError,
    },
    /// The object was changed since the caller read it.
    #[error(
        "{what} {}, and the change expects that it {}: read it again, and change the current version",
        standing(*version),
        standing(*expected)
    )]
    VersionConflict {
        what: String,
        /// The expected version; 0 means that the object does not exist.
        expected: u64,
        /// The current version; 0 means that the object does not exist.
        version: u64,
    },
    /// Two changes of one call are about the same object.
    #[error("{what} is listed twice: remove one")]
    Twice {
        what: String,
        /// Index of the first change.
        first: usize,
    },
    /// Steps or documents use what a change takes away.
    #[error("{}", in_use(uses))]
    InUse {
        /// The users, and what they use.
        uses: Vec<Use>,
    },
    /// The deadline of a new step has passed.
    #[error(
        "`deadline` of step `{step}` is {}, which has passed, so it could not start any more: name a later one",
        timestamp(*deadline)
    )]
    DeadlinePassed { step: StepId, deadline: Time },
    /// The step is to start after a step that does not exist.
    #[error(
        "there is no step `{on}`, after which `{step}` is to start: `sluice get steps` lists those that are remembered"
    )]
    UnknownDependency { step: StepId, on: StepId },
    /// The array has no part with this index.
    #[error(
        "array `{array}` has no part {index}: it has {}; name one of them, such as `{array}.{}`",
        indexes_of(indexes),
        indexes.first().unwrap_or_default()
    )]
    UnknownPart {
        array: StepId,
        index: u32,
        indexes: IndexSet,
    },
    /// Parts are to be paired with those of a step that is no array.
    #[error(
        "step `{on}` is no array, so `{on}:each` of `{step}` pairs nothing: write `{on}` to start after all of it"
    )]
    NotAnArray { step: StepId, on: StepId },
    /// A part has no counterpart in the array with which it is paired.
    #[error(
        "array `{on}` has no part {index}, after which `{step}.{index}` is to start: leave out that index, or write `{on}` \
         without `:each` to start after all of it"
    )]
    UnpairedPart {
        step: StepId,
        on: StepId,
        /// The first index without a counterpart.
        index: u32,
    },
    /// A part that has not entered the queue was to be suspended.
    #[error(
        "part `{step}` has not entered the queue, so there is nothing to suspend: `sluice suspend {array}` holds all parts \
         back, `sluice cancel {step}` ends this one"
    )]
    PartNotQueued { step: StepId, array: StepId },
    /// A part is not moved to another pool alone.
    #[error(
        "`{step}` is a part of array `{array}` and is not moved alone: `sluice move step {array}` moves the array, as long as \
         no part has started"
    )]
    CannotMovePart { step: StepId, array: StepId },
    /// Steps are to start after each other.
    #[error("{}", cycle(steps))]
    DependencyCycle {
        /// The steps, each to start after the next, and the last after the first.
        steps: Vec<StepId>,
    },
    /// The node has no such GPU.
    #[error("node `{node}` has no GPU `{gpu}`: {}", gpus_of(known))]
    UnknownGpu {
        node: NodeName,
        /// The GPU as the caller named it.
        gpu: String,
        /// The UUIDs of the node's GPUs, by index.
        known: Vec<String>,
    },
    /// Nodes are in the pool.
    #[error(
        "{} in pool `{pool}`: move each to another pool by `sluice move node {} --pool POOL`, or forget it by \
         `sluice delete node {}` once its agent is stopped, and delete the pool then",
        hosts(nodes),
        nodes.first().map_or("NODE", NodeName::as_str),
        nodes.first().map_or("NODE", NodeName::as_str)
    )]
    PoolHasNodes {
        pool: PoolName,
        nodes: Vec<NodeName>,
    },
    /// The pool is the default of nodes and steps that name none.
    #[error(
        "pool `{pool}` is the default of nodes and steps that name no pool, and cannot be deleted"
    )]
    PoolIsDefault { pool: PoolName },
    /// The pool has no hosts, and the call needs some, or would give it some.
    #[error("pool `{pool}` has no hosts (`hosts: none`), and none can join it: name another pool")]
    PoolWithoutHosts { pool: PoolName },
    /// The step holds what a pool without hosts counts.
    #[error(
        "`{step}` has no host, because pool `{pool}` has none: run the program where its resources are"
    )]
    StepWithoutHost { step: StepId, pool: PoolName },
    /// The change would give hosts to a pool without any, or take them.
    #[error(
        "`hosts` of pool `{pool}` was set when it was created and cannot be changed: keep it, or create another pool"
    )]
    PoolHostsFixed { pool: PoolName },
    /// Allocations hold what the pool counts.
    #[error(
        "{} in pool `{pool}`: release each by `sluice release {}`, or wait for its end, and delete the pool then",
        held_by(steps),
        steps.first().map_or("ID", StepId::as_str)
    )]
    PoolHoldsAllocations {
        pool: PoolName,
        /// The allocations that are held there.
        steps: Vec<StepId>,
    },
    /// The cluster's terms name a pool that would not exist.
    #[error(
        "pool `{pool}` is not there, and `{field}` of the cluster names it: name another there, or make it too"
    )]
    ClusterNamesPool { pool: PoolName, field: &'static str },
    /// No validation document has this name.
    #[error(
        "there is no validation `{validation}`: `sluice get validations` lists those that there are"
    )]
    UnknownValidation { validation: ValidationName },
    /// A pool names a validation document that would not exist.
    #[error(
        "validation `{validation}` {} {}pool `{pool}` names it in `validations`: {}",
        missing(*is_deleted),
        of_platform(platform.as_ref()),
        instead(nearest.as_deref(), *is_deleted)
    )]
    PoolNamesValidation {
        validation: ValidationName,
        pool: PoolName,
        /// The platform that names it; `None` if the pool does.
        platform: Option<PlatformName>,
        /// Whether the change deletes it.
        is_deleted: bool,
        /// A similar name.
        nearest: Option<String>,
    },
    /// No such platform is declared, and no host is of it.
    #[error("pool `{pool}` has no platform `{platform}`{}", declared(*named, known))]
    UnknownPlatform {
        pool: PoolName,
        /// The platform as the caller named it.
        platform: PlatformName,
        /// The platforms that the pool declares or its hosts are of.
        known: Vec<PlatformName>,
        /// Whether it is the default of its pool.
        named: bool,
    },
    /// The name is reserved and cannot be that of a platform.
    #[error("`{platform}` is reserved for steps that accept any platform: choose another name")]
    ReservedPlatform {
        /// The reserved name.
        platform: PlatformName,
    },
    /// The pool would declare too many platforms.
    #[error(
        "pool `{pool}` would declare {count} platforms, and {MAX_PLATFORMS} are the maximum: remove some"
    )]
    TooManyPlatforms { pool: PoolName, count: usize },
    /// No template has this name.
    #[error("there is no template `{template}`: `sluice get templates` lists those that there are")]
    UnknownTemplate { template: TemplateName },
    /// A pool names a template that would not exist.
    #[error("there is no template `{template}`, and pool `{pool}` names it: {hint}")]
    PoolNamesTemplate {
        pool: PoolName,
        template: TemplateName,
        /// A hint about what to do.
        hint: String,
    },
    /// Another step has this id.
    #[error(
        "the id `{step}` belongs to a step that was submitted with another body ({differs}): choose another id"
    )]
    IdInUse {
        step: StepId,
        /// The first field that differs.
        differs: String,
    },
    /// A step that had this id was deleted.
    #[error(
        "the id `{step}` belonged to a step that was deleted, and no second step gets it: choose another id"
    )]
    IdDeleted { step: StepId },
    /// The step is in a terminal state.
    #[error("{}", way_on(step, *state, ended.as_deref()))]
    StepOver {
        step: StepId,
        state: StepState,
        /// The reason for its end, if it is an allocation.
        ended: Option<Box<Cause>>,
    },
    /// The step has not ended, or still holds resources.
    #[error("step `{step}` is {state}, and {}", way_to_delete(step, *state))]
    CannotDelete { step: StepId, state: StepState },
    /// Parts are remembered with their array.
    #[error(
        "step `{step}` is a part of the array `{array}` and is kept as long as that: `sluice delete step {array}`"
    )]
    CannotDeletePart { step: StepId, array: StepId },
    /// The pool is in maintenance, and the step may run in no other.
    #[error(
        "pool `{pool}` is in maintenance and takes no new steps: {message}; try again when that is over{}",
        elsewhere(named)
    )]
    PoolInMaintenance {
        pool: PoolName,
        /// Text of the admin.
        message: String,
        /// Whether the step names the pool.
        named: bool,
    },
    /// The step runs on several hosts.
    #[error(
        "step `{step}` runs on {hosts} hosts at once and cannot be suspended, because its parts would lose each other: \
         `sluice requeue {step}` or `sluice cancel {step}`"
    )]
    CannotSuspend {
        step: StepId,
        /// Number of hosts.
        hosts: u32,
    },
    /// The step has a program.
    #[error(
        "step `{step}` is no allocation: it runs a program, and is neither renewed nor released; `sluice cancel {step}` \
         ends it, and `sluice resume {step}` lets a suspended one go on"
    )]
    NotAnAllocation { step: StepId },
    /// The step is an allocation, which nobody but its holder can take up again.
    #[error(
        "`{step}` is an allocation, and is neither suspended nor queued again: `sluice release {step}`, and ask for \
         another"
    )]
    IsAllocation { step: StepId },
    /// The allocation inside which the step is to run belongs to another subject.
    #[error(
        "the allocation `{allocation}` belongs to subject `{owner}`, and the step to `{asked}`: submit it for `{owner}`"
    )]
    OthersAllocation {
        allocation: StepId,
        owner: Subject,
        asked: Subject,
    },
    /// The allocation holds something that is not divided among steps yet.
    #[error(
        "steps inside the allocation `{allocation}` are not supported yet, because it has {what}: `sluice exec` runs programs in it"
    )]
    NotDividable {
        allocation: StepId,
        what: &'static str,
    },
    /// The step runs inside an allocation.
    #[error(
        "step `{step}` runs inside the allocation `{allocation}`, and is neither suspended nor moved: `sluice cancel {step}`, \
         and submit it again"
    )]
    IsInside { step: StepId, allocation: StepId },
    /// The step does not wait.
    #[error(
        "step `{step}` is {state}, and a step is moved to another pool only while it is queued: {}",
        way_to_move(step, *state)
    )]
    CannotMove { step: StepId, state: StepState },
    /// An earlier attempt of the step still holds resources.
    #[error(
        "step `{step}` cannot be moved yet, because its last attempt still holds resources on `{node}`: move it once they \
         are free, which `sluice explain {step}` shows"
    )]
    CannotMoveYet { step: StepId, node: NodeName },
    /// The pool would reject the step.
    #[error(
        "step `{step}` stays where it is, because pool `{pool}` would reject it: {}",
        reason.to_reason().message
    )]
    MoveRejected {
        step: StepId,
        pool: PoolName,
        /// The reason, as for a submit to the pool.
        reason: Box<Cause>,
    },
    /// No node has this name.
    #[error("there is no node `{node}`: `sluice get nodes` lists those that are remembered")]
    UnknownNode { node: NodeName },
    /// The node is connected, so it is not deleted by accident.
    #[error(
        "node `{node}` is linked: `sluice drain {node} --wait`, stop its agent, and delete it when it is away; or end its \
         access at once with `sluice revoke node {node}`, or with `--force` here"
    )]
    NodeLinked { node: NodeName },
    /// The node is away and may still run something.
    #[error(
        "node `{node}` is away and may still run {}: wait until it is declared lost and they restart elsewhere, or delete it as soon as it is lost with `--force`",
        named(steps)
    )]
    NodeHoldsSteps {
        node: NodeName,
        /// The steps that it holds.
        steps: Vec<StepId>,
    },
    /// The GPU must be checked, and its node is away.
    #[error(
        "node `{node}` is away, so nothing can check whether GPU `{gpu}`, which it calls unfit, still fails: retry when \
         `sluice get nodes` shows it linked"
    )]
    CannotLookAtGpu {
        node: NodeName,
        /// The GPU as the caller named it.
        gpu: String,
    },
    /// No token has this id.
    #[error(
        "there is no join token `{token}`: `sluice token list` shows those that are remembered"
    )]
    UnknownJoinToken { token: JoinTokenId },
    /// The maximum of open tokens is reached.
    #[error(
        "{limit} join tokens are open: revoke some with `sluice token revoke`, or wait until some expire"
    )]
    TooManyJoinTokens { limit: usize },
    /// The node would have too many labels.
    #[error(
        "node `{node}` would have {count} labels that an admin set: the maximum is {limit}, remove some"
    )]
    TooManyLabels {
        node: NodeName,
        /// Number of labels that it would have.
        count: usize,
        /// Most labels that it may have.
        limit: usize,
    },
    /// No role has this name.
    #[error("there is no role `{role}`: `sluice get roles` lists those that there are")]
    UnknownRole { role: RoleName },
    /// The role is built in and cannot be changed.
    #[error("role `{role}` is built in, as are all that begin with `pool-`: choose another name")]
    ReservedRole { role: RoleName },
    /// The role is in use.
    #[error("role `{role}` is granted by {by}: remove it there first")]
    RoleInUse {
        role: RoleName,
        /// The token or binding that gives it.
        by: String,
    },
    /// No binding has this name.
    #[error("there is no binding `{binding}`: `sluice get bindings` lists those that there are")]
    UnknownBinding { binding: BindingName },
    /// No API token has this name.
    #[error("there is no API token `{token}`: `sluice get api-tokens` lists those that there are")]
    UnknownApiToken { token: String },
    /// An API token has this name already.
    #[error(
        "there is an API token `{token}` already: choose another name, or revoke it with `sluice delete api-token {token}`"
    )]
    ApiTokenExists { token: TokenName },
    /// The maximum of API tokens is reached.
    #[error("there are {limit} API tokens, the maximum: delete unused ones")]
    TooManyApiTokens { limit: usize },
    /// The submit would exceed a bound of its subject's live steps.
    #[error("{}", queue_full(_0))]
    QueueFull(QueueFull),
    /// No recovery is under way.
    #[error("the coordinator is not recovering: queued steps may start")]
    NotRecovering,
}
