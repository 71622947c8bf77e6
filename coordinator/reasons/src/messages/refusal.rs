//! Why a call was not carried out, as text for whoever called.

mod in_use;
mod parts;

use alloc::{string::String, vec::Vec};

use sluice_common::id::{
    BindingName, JoinTokenId, NodeName, PlatformName, PoolName, RoleName, StepId, Subject,
    TemplateName, TokenName, ValidationName,
};
use sluice_common::platform::spec::MAX_PLATFORMS;
use sluice_common::state::StepState;
use sluice_scheduler::PolicyError;

use super::quoted;

pub use in_use::{InUse, Shrunk, Use};

use parts::{
    declared, elsewhere, gpus_of, hosts, in_use, instead, named, of_platform, queue_full, standing,
};

/// What is bounded of a subject's steps that are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBound {
    /// How many there are.
    Steps,
    /// What they take in the store.
    Bytes,
}

impl QueueBound {
    /// The key of the coordinator's config that says how much it is.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Steps => "max_queued_steps",
            Self::Bytes => "max_queued_bytes",
        }
    }
}

/// How a subject would go beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull {
    pub subject: Subject,
    pub bound: QueueBound,
    pub has: u64,
    /// What would be added.
    pub asked: u64,
    /// The most that it may have.
    pub limit: u64,
}

/// Why a call was not carried out. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No step has this id.
    #[error("there is no step `{step}`: `sluice get steps` lists those that are remembered")]
    UnknownStep { step: StepId },
    /// No pool has this name.
    #[error("there is no pool `{pool}`: `sluice get pools` lists those that there are")]
    UnknownPool { pool: PoolName },
    /// The subject is not bound to the pool.
    #[error("subject `{subject}` has no policy in pool `{pool}`")]
    UnknownPolicy { pool: PoolName, subject: Subject },
    /// The pool cannot keep this policy.
    #[error("policy of `{subject}` in pool `{pool}`: {why}")]
    InvalidPolicy {
        pool: PoolName,
        subject: Subject,
        why: PolicyError,
    },
    /// It was changed since whoever asks has looked.
    #[error(
        "{what} {}, and the change expects that it {}: read it again, and change the current version",
        standing(*version),
        standing(*expected)
    )]
    VersionConflict {
        what: String,
        /// The version that was expected; 0 is that it is not there.
        expected: u64,
        /// The version that it has; 0 is that it is not there.
        version: u64,
    },
    /// Two changes of one call are of one thing.
    #[error("{what} is listed twice: remove one")]
    Twice {
        what: String,
        /// The place of the first.
        first: usize,
    },
    /// A caller uses what a change takes away.
    #[error("{}", in_use(uses))]
    InUse {
        /// Who, and what of.
        uses: Vec<Use>,
    },
    /// The node has no such GPU.
    #[error("node `{node}` has no GPU `{gpu}`: {}", gpus_of(known))]
    UnknownGpu {
        node: NodeName,
        /// As it was named.
        gpu: String,
        /// The UUIDs of those that it has, by index.
        known: Vec<String>,
    },
    /// Hosts are in the pool.
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
    /// The pool of nodes and steps that name none.
    #[error(
        "pool `{pool}` is the default of nodes and steps that name no pool, and cannot be deleted"
    )]
    PoolIsDefault { pool: PoolName },
    /// The cluster's terms name a pool that would not be there.
    #[error(
        "pool `{pool}` is not there, and `{field}` of the cluster names it: name another there, or make it too"
    )]
    ClusterNamesPool { pool: PoolName, field: &'static str },
    /// No document of assertions has this name.
    #[error(
        "there is no validation `{validation}`: `sluice get validations` lists those that there are"
    )]
    UnknownValidation { validation: ValidationName },
    /// A pool names a document of assertions that would not be there.
    #[error(
        "validation `{validation}` is not there, and {}pool `{pool}` names it in `validations`: {}",
        of_platform(platform.as_ref()),
        instead(nearest)
    )]
    PoolNamesValidation {
        validation: ValidationName,
        pool: PoolName,
        /// The platform of it, if that names it.
        platform: Option<PlatformName>,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// No such platform is declared, and no host is of it.
    #[error("pool `{pool}` has no platform `{platform}`{}", declared(*named, known))]
    UnknownPlatform {
        pool: PoolName,
        /// As it was named.
        platform: PlatformName,
        /// Those that the pool declares, or that its hosts are of.
        known: Vec<PlatformName>,
        /// Whether it is the default of its pool.
        named: bool,
    },
    /// A platform may not be called so.
    #[error("`{platform}` is reserved for steps that accept any platform: choose another name")]
    ReservedPlatform {
        /// As it was called.
        platform: PlatformName,
    },
    /// The pool declares more platforms than it may.
    #[error(
        "pool `{pool}` would declare {count} platforms, and {MAX_PLATFORMS} are the maximum: remove some"
    )]
    TooManyPlatforms { pool: PoolName, count: usize },
    /// No template has this name.
    #[error("there is no template `{template}`: `sluice get templates` lists those that there are")]
    UnknownTemplate { template: TemplateName },
    /// A pool names a template that would not be there.
    #[error("there is no template `{template}`, and pool `{pool}` names it: {hint}")]
    PoolNamesTemplate {
        pool: PoolName,
        template: TemplateName,
        /// The way out.
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
    /// The step is in a terminal state.
    #[error("step `{step}` is {state}: it is over, submit it again to run it again")]
    StepOver {
        step: StepId,
        /// Where it is.
        state: StepState,
    },
    /// The pool takes no new steps, and the step may run in no other.
    #[error(
        "pool `{pool}` is in maintenance and takes no new steps: {message}; submit it again when that is over{}",
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
        /// On how many.
        hosts: u32,
    },
    /// No node has this name.
    #[error("there is no node `{node}`: `sluice get nodes` lists those that are remembered")]
    UnknownNode { node: NodeName },
    /// A node that is linked is not deleted by a slip.
    #[error(
        "node `{node}` is linked: `sluice drain {node} --wait`, stop its agent, and delete it when it is away; or end its \
         access at once with `sluice revoke node {node}`, or with `--force` here"
    )]
    NodeLinked { node: NodeName },
    /// A node that is away may still run something.
    #[error(
        "node `{node}` is away and may still run {}: wait until it is declared lost and they restart elsewhere, or delete it as soon as it is lost with `--force`",
        named(steps)
    )]
    NodeHoldsSteps {
        node: NodeName,
        /// What it holds.
        steps: Vec<StepId>,
    },
    /// A GPU that failed is to be checked, and its node is away.
    #[error(
        "node `{node}` is away, so nothing can check whether GPU `{gpu}`, which it calls unfit, still fails: retry when \
         `sluice get nodes` shows it linked"
    )]
    CannotLookAtGpu {
        node: NodeName,
        /// As it was asked for.
        gpu: String,
    },
    /// No token has this id.
    #[error(
        "there is no join token `{token}`: `sluice token list` shows those that are remembered"
    )]
    UnknownJoinToken { token: JoinTokenId },
    /// As many tokens are open as may be.
    #[error(
        "{limit} join tokens are open: revoke some with `sluice token revoke`, or wait until some expire"
    )]
    TooManyJoinTokens { limit: usize },
    /// A node has more labels than one may have.
    #[error(
        "node `{node}` would have {count} labels that an admin set: {limit} are the most, remove some"
    )]
    TooManyLabels {
        node: NodeName,
        /// How many it would have.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// No role has this name.
    #[error("there is no role `{role}`: `sluice get roles` lists those that there are")]
    UnknownRole { role: RoleName },
    /// The role is always there, as it is.
    #[error("role `{role}` is built in, as are all that begin with `pool-`: choose another name")]
    ReservedRole { role: RoleName },
    /// A caller has the role.
    #[error("role `{role}` is granted by {by}: remove it there first")]
    RoleInUse {
        role: RoleName,
        /// Who gives it.
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
    /// There are as many API tokens as there may be.
    #[error("there are {limit} API tokens, the maximum: delete unused ones")]
    TooManyApiTokens { limit: usize },
    /// A subject would have more that is not over than it may.
    #[error("{}", queue_full(_0))]
    QueueFull(QueueFull),
    /// There is no recovery to be ended.
    #[error("the coordinator is not recovering: queued steps may start")]
    NotRecovering,
}
