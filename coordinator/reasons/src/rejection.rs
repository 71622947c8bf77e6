//! Reasons why a step can never be granted in a pool. The sentences are in `messages/rejection/`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::amount::ResourceKey;
use sluice_common::id::{
    LevelName, NodeName, PlatformName, PoolName, StepId, Subject, ValidationName,
};
use sluice_common::image::ImageKind;
use sluice_common::mig::{GpuClass, MigProfile};
use sluice_common::pool_rules::Setting;
use sluice_common::reason::ReasonCode;
use sluice_common::step::OnPreempt;
use sluice_common::time::Span;

use crate::SimilarPools;

/// A reason why a step can never be granted in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rejection", rename_all = "snake_case")]
pub enum Rejection {
    /// The step names a pool that does not exist.
    UnknownPool { pool: PoolName, near: SimilarPools },
    /// The subject has no policy in the named pool, or in any.
    NoPolicy {
        subject: Subject,
        pool: Option<PoolName>,
    },
    /// Neither hosts nor the pool declare the resource key.
    UnknownResource {
        pool: PoolName,
        key: ResourceKey,
        asked: u64,
    },
    /// The step asks for more than there can be.
    TooMuch {
        pool: PoolName,
        key: ResourceKey,
        asked: u64,
        most: u64,
        bound: AmountBound,
        /// The pool whose default amount it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_default: Option<PoolName>,
        /// Profile of the slices that the step asks for; `None` if it asks for whole GPUs or none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<MigProfile>,
    },
    /// Too few hosts could hold it, even when empty.
    NoHostFits { pool: PoolName, hosts: HostMismatch },
    /// The step asks for more than the allocation has on each of its hosts, inside which it is to run.
    ExceedsAllocation {
        allocation: StepId,
        key: ResourceKey,
        asked: u64,
        has: u64,
    },
    /// The step asks for more hosts than the allocation has, inside which it is to run.
    FewerHostsInside {
        allocation: StepId,
        asked: u32,
        has: u32,
    },
    /// The written fields of the step break a rule of the pool.
    BreaksRule { pool: PoolName, breach: RuleBreach },
    /// The step fails assertions of the pool's validations, or no host passes them for it.
    Invalid {
        pool: PoolName,
        judge: AssertionSource,
        /// The validation document of the assertion.
        validation: ValidationName,
        /// Advice by the author of the assertion.
        advice: String,
        unkept: FailedAssertion,
    },
}

/// A reason why a pool excludes a queued step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The pool was made after the step was submitted.
    MadeAfter,
    /// The pool would reject the step now.
    Never(Rejection),
    /// The pool is in maintenance; the text is the admin's.
    Maintenance(String),
    /// A rule excluded the step and has been removed since.
    BeforeChange,
}

/// The bound of an amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmountBound {
    /// The pool's capacity.
    Capacity,
    /// The subject's limit in the pool.
    Limit(Subject),
    /// The reserved amount of the subject in the pool, because the step is not preemptible.
    Reserved(Subject),
    /// The part of a host that `gpus` GPUs carry, because the step is not preemptible; of the host that comes closest.
    Entitlement { node: NodeName, gpus: u64 },
}

/// The reason why too few hosts of a pool could hold a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMismatch {
    /// Some hosts are large enough, but fewer than the step asks for.
    TooFew {
        asked: u32,
        large: u64,
        /// Whether the hosts must all be of one platform.
        of_one_platform: bool,
        closed: Option<ForbiddingHosts>,
    },
    /// No host is of a requested platform.
    OfNoPlatform {
        asked: Vec<PlatformName>,
        /// The requested platforms that the pool declares.
        declared: Vec<PlatformName>,
        /// Whether the step asks for them because they are the pool's default.
        by_default: bool,
        /// The platforms of the pool's hosts.
        there: Vec<PlatformName>,
    },
    /// The step asks for whole GPUs, or for slices of a profile, and no host has any.
    OfNoClass {
        /// Profile of the slices that it asks for; `None` for whole GPUs.
        asked: Option<String>,
        /// Number of whole GPUs of the pool, of the platforms that the step asks for.
        whole: u64,
        /// Number of slices of each profile.
        slices: BTreeMap<String, u64>,
    },
    /// The topology has no level of this name.
    NoLevel {
        level: LevelName,
        /// The levels that it has.
        levels: Vec<LevelName>,
    },
    /// Enough hosts are large enough, but too few within any one domain of the level that the step asks for.
    TooFewInDomain(DomainShortage),
    /// The hosts that are large enough forbid something that the step asks for.
    Closed(ForbiddingHosts),
    /// No host is large enough; the one that comes closest.
    TooSmall(Option<Shortage>),
}

/// The forbidden field where a platform takes only steps that name it.
pub const TAINT: &str = "taint";

/// Hosts that are large enough for a step and forbid something that it asks for, or have no container runtime for its
/// image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForbiddingHosts {
    /// One of the hosts.
    pub node: NodeName,
    /// The forbidden field.
    pub field: String,
    /// The platform of the host that decides.
    pub platform: Option<PlatformName>,
    /// The pool that forbids it; `None` if the platform itself does.
    pub by_pool: Option<PoolName>,
    /// Form of the step's image, if the host has no container runtime for it; then nothing is forbidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_runtime_for: Option<ImageKind>,
    /// Number of other hosts.
    pub others: u64,
}

/// The domain of a level that comes closest to holding a step on several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainShortage {
    pub level: LevelName,
    /// Path of the domain, the widest level first; empty if no host is in a domain of the level.
    pub domain: Vec<String>,
    /// Number of hosts that the step asks for.
    pub asked: u32,
    /// Number of hosts of the domain that are large enough, or have room.
    pub has: u64,
}

impl DomainShortage {
    /// Makes the shortage of the closest domain from its level and path, and the requested and the available number of
    /// hosts.
    pub fn of(level: &LevelName, domain: &[String], asked: u32, has: usize) -> Self {
        Self {
            level: level.clone(),
            domain: domain.to_vec(),
            asked,
            has: has as u64,
        }
    }
}

/// A host, and the resource that it has too little of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub node: NodeName,
    pub key: String,
    pub asked: u64,
    pub has: u64,
    /// The pool whose default amount is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_default: Option<PoolName>,
    /// Profile of the slices that the step asks for; `None` if it asks for whole GPUs or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
}

impl Shortage {
    /// Makes the shortage of the closest host from its name, a key, the requested and the available amount, for a step
    /// that asks for GPUs of a class.
    pub fn of(
        (node, key, asked, has): (&NodeName, &str, u64, u64),
        by_default: Option<PoolName>,
        class: &GpuClass,
    ) -> Self {
        Self {
            node: node.clone(),
            key: String::from(key),
            asked,
            has,
            by_default,
            profile: class.profile().cloned(),
        }
    }
}

/// A rule of a pool that the written fields of a step break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleBreach {
    /// The step exceeds a maximum.
    Above {
        setting: Setting,
        asked: SettingValue,
        most: SettingValue,
    },
    /// The step has a mode of preemption that is not allowed.
    Mode {
        asked: OnPreempt,
        allowed: BTreeSet<OnPreempt>,
    },
    /// The step asks for exclusive cores, and the pool does not require hosts that can give them.
    NotPinned,
    /// The pool has no hosts, and the step asks for what only hosts have.
    NoHosts {
        /// The first such field: `command` if it runs a program.
        field: String,
    },
    /// The pool's templates forbid something that the step asks for.
    Template {
        code: ReasonCode,
        field: String,
        what: String,
    },
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingValue {
    Lasting(Span),
    Unbounded,
    Times(u32),
}

/// The assertions that are checked together for a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionSource {
    Pool,
    /// Those of the pool and of a platform that the step names.
    Platform(PlatformName),
    /// Those of the pool and of a platform that the step may be granted because it takes any.
    AnyPlatform(PlatformName),
}

/// The way in which a step fails assertions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedAssertion {
    Step {
        assert: String,
        found: String,
    },
    /// No host passes all of them: the number of checked hosts, and the closest ones.
    Hosts {
        asked: u64,
        nearest: Vec<FailingHost>,
    },
}

/// A host that fails assertions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHost {
    pub node: String,
    /// Each failed assertion, with the value that was found.
    pub broken: Vec<(String, String)>,
}

impl Rejection {
    /// Stable code for programs.
    pub fn code(&self) -> ReasonCode {
        match self {
            Rejection::UnknownPool { .. } => ReasonCode::UnknownPool,
            Rejection::NoPolicy { .. } => ReasonCode::NoPolicy,
            Rejection::UnknownResource { .. } => ReasonCode::UnknownResource,
            Rejection::TooMuch { bound, .. } => match bound {
                AmountBound::Capacity => ReasonCode::ExceedsPoolCapacity,
                AmountBound::Limit(_) => ReasonCode::ExceedsLimit,
                AmountBound::Reserved(_) => ReasonCode::ExceedsReserved,
                AmountBound::Entitlement { .. } => ReasonCode::ExceedsEntitlement,
            },
            Rejection::NoHostFits { .. } => ReasonCode::NoHostFits,
            Rejection::ExceedsAllocation { .. } | Rejection::FewerHostsInside { .. } => {
                ReasonCode::ExceedsAllocation
            }
            Rejection::BreaksRule { breach, .. } => match breach {
                RuleBreach::Above { .. } => ReasonCode::ExceedsMaximum,
                RuleBreach::Mode { .. } => ReasonCode::OnPreemptNotAllowed,
                RuleBreach::NotPinned => ReasonCode::CpuModeNotAllowed,
                RuleBreach::NoHosts { .. } => ReasonCode::PoolWithoutHosts,
                RuleBreach::Template { code, .. } => *code,
            },
            Rejection::Invalid { .. } => ReasonCode::ValidationFailed,
        }
    }

    /// The pool that rejects the step; `None` if no pool is named.
    pub fn pool(&self) -> Option<&PoolName> {
        match self {
            Rejection::NoPolicy { pool, .. } => pool.as_ref(),
            Rejection::ExceedsAllocation { .. } | Rejection::FewerHostsInside { .. } => None,
            Rejection::UnknownPool { pool, .. }
            | Rejection::UnknownResource { pool, .. }
            | Rejection::TooMuch { pool, .. }
            | Rejection::NoHostFits { pool, .. }
            | Rejection::BreaksRule { pool, .. }
            | Rejection::Invalid { pool, .. } => Some(pool),
        }
    }
}
