//! Why a step can never be granted in a pool. The sentences are in `messages/rejection/`.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::amount::ResourceKey;
use sluice_common::id::{NodeName, PlatformName, PoolName, Subject, ValidationName};
use sluice_common::pool_rules::Setting;
use sluice_common::reason::ReasonCode;
use sluice_common::step::OnPreempt;
use sluice_common::time::Span;

use crate::SimilarPools;

/// Why a step can never be granted in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rejection", rename_all = "snake_case")]
pub enum Rejection {
    /// The pool that it names is not there.
    UnknownPool { pool: PoolName, near: SimilarPools },
    /// The subject has no policy in the pool that it names, or in any.
    NoPolicy {
        subject: Subject,
        pool: Option<PoolName>,
    },
    /// Nobody counts the key.
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
    },
    /// Too few hosts could hold it, even when empty.
    NoHostFits { pool: PoolName, hosts: HostMismatch },
    /// The step breaks a rule of the pool by what it says.
    BreaksRule { pool: PoolName, breach: RuleBreach },
    /// The step does not keep the assertions of the pool's validations, or no host does for it.
    Invalid {
        pool: PoolName,
        judge: AssertionSource,
        /// The document of the assertion.
        validation: ValidationName,
        /// In the words of who wrote the assertion.
        advice: String,
        unkept: FailedAssertion,
    },
}

/// Why a pool does not take a step that waits for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The pool was made after the step was submitted.
    MadeAfter,
    /// The pool would reject the step now.
    Never(Rejection),
    /// The pool takes no new steps; the text is the admin's.
    Maintenance(String),
    /// A rule kept the step out that is there no more.
    BeforeChange,
}

/// What bounds an amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmountBound {
    /// What the pool has.
    Capacity,
    /// What its subject may ever use there.
    Limit(Subject),
    /// What is reserved for its subject there, since it is not preemptible.
    Reserved(Subject),
    /// What `gpus` GPUs of a host carry, since it is not preemptible; the host that comes closest.
    Entitlement { node: NodeName, gpus: u64 },
}

/// Why too few hosts of a pool could hold a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMismatch {
    /// Some are large enough, fewer than it asks for.
    TooFew {
        asked: u32,
        large: u64,
        /// Whether hosts of one platform alone may be taken together.
        of_one_platform: bool,
        closed: Option<ForbiddingHosts>,
    },
    /// None is of a platform that it asks for.
    OfNoPlatform {
        asked: Vec<PlatformName>,
        /// Those of them that the pool declares.
        declared: Vec<PlatformName>,
        /// Whether it asks for them because they are the pool's default.
        by_default: bool,
        /// Those that hosts are of.
        there: Vec<PlatformName>,
    },
    /// Those that are large enough do not let it in.
    Closed(ForbiddingHosts),
    /// None is large enough; the one that comes closest.
    TooSmall(Option<Shortage>),
}

/// Hosts that are large enough for a step and do not let it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForbiddingHosts {
    /// One of them.
    pub node: NodeName,
    /// What is not allowed there.
    pub field: String,
    /// The platform of it that counts.
    pub platform: Option<PlatformName>,
    /// The pool that does not allow it; `None` if the platform itself does not.
    pub by_pool: Option<PoolName>,
    /// Number of others there are.
    pub others: u64,
}

/// A host, and what it has too little of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub node: NodeName,
    pub key: String,
    pub asked: u64,
    pub has: u64,
}

impl Shortage {
    /// Of the host that comes closest: its name, a key, how much is asked of it and how much it has.
    pub fn of((node, key, asked, has): (&NodeName, &str, u64, u64)) -> Self {
        Self {
            node: node.clone(),
            key: String::from(key),
            asked,
            has,
        }
    }
}

/// A rule of a pool that a step breaks by what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleBreach {
    /// The step says more than it may.
    Above {
        setting: Setting,
        asked: SettingValue,
        most: SettingValue,
    },
    /// The step would be preempted in a mode that is not allowed.
    Mode {
        asked: OnPreempt,
        allowed: BTreeSet<OnPreempt>,
    },
    /// The step is to have processors of its own, and the pool does not see to it that its hosts can give them.
    NotPinned,
    /// The step asks for what the pool's templates do not let be.
    Template {
        code: ReasonCode,
        field: String,
        what: String,
    },
}

/// How much a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingValue {
    Lasting(Span),
    Unbounded,
    Times(u32),
}

/// Whose assertions judge a step together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionSource {
    Pool,
    /// The pool's and those of a platform that it names.
    Platform(PlatformName),
    /// The pool's and those of a platform that it may be granted because it takes any.
    AnyPlatform(PlatformName),
}

/// How a step fails assertions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedAssertion {
    Step {
        assert: String,
        found: String,
    },
    /// No host keeps all of them for it: how many were asked, and those that come closest.
    Hosts {
        asked: u64,
        nearest: Vec<FailingHost>,
    },
}

/// A host that breaks assertions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingHost {
    pub node: String,
    /// Each assertion, and what was found instead.
    pub broken: Vec<(String, String)>,
}

impl Rejection {
    /// The code that programs read.
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
            Rejection::BreaksRule { breach, .. } => match breach {
                RuleBreach::Above { .. } => ReasonCode::ExceedsMaximum,
                RuleBreach::Mode { .. } => ReasonCode::OnPreemptNotAllowed,
                RuleBreach::NotPinned => ReasonCode::CpuModeNotAllowed,
                RuleBreach::Template { code, .. } => *code,
            },
            Rejection::Invalid { .. } => ReasonCode::ValidationFailed,
        }
    }

    /// The pool that rejects it; `None` if none is named.
    pub fn pool(&self) -> Option<&PoolName> {
        match self {
            Rejection::NoPolicy { pool, .. } => pool.as_ref(),
            Rejection::UnknownPool { pool, .. }
            | Rejection::UnknownResource { pool, .. }
            | Rejection::TooMuch { pool, .. }
            | Rejection::NoHostFits { pool, .. }
            | Rejection::BreaksRule { pool, .. }
            | Rejection::Invalid { pool, .. } => Some(pool),
        }
    }
}
