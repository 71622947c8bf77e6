//! What is written of pools, as records say it.

use crate::model::pool::PoolSpec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, PoolName, Subject};
use sluice_common::platform::terms::PlatformTerms;
use sluice_scheduler::Policy;

/// A pool was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PoolPut {
    /// Its name.
    pub pool: PoolName,
    /// What it is.
    #[serde(flatten)]
    pub spec: PoolSpec,
}

/// A subject was bound to a pool, or on other terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PolicyPut {
    /// The pool.
    pub pool: PoolName,
    /// Who.
    pub subject: Subject,
    /// On which terms.
    pub policy: Policy,
}

/// A platform of a pool was declared or changed. What runs on its GPUs goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PlatformPut {
    /// The pool.
    pub pool: PoolName,
    /// Its name.
    pub platform: PlatformName,
    /// What it is.
    pub terms: PlatformTerms,
}
