//! Records of pools.

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, PoolName, Subject};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::{PolicySpec, PoolSpec};

use super::stored_spec::StoredPoolSpec;

/// A pool was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PoolPut {
    pub pool: PoolName,
    /// Terms of the pool. Platforms have records of their own.
    #[serde(flatten, with = "StoredPoolSpec")]
    pub spec: PoolSpec,
}

/// A policy of a subject in a pool was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PolicyPut {
    pub pool: PoolName,
    pub subject: Subject,
    pub policy: PolicySpec,
}

/// A platform of a pool was declared or changed. Running steps go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PlatformPut {
    pub pool: PoolName,
    pub platform: PlatformName,
    pub terms: PlatformSpec,
}
