//! What may have been meant by the name of a pool that is not there.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use sluice_common::id::PoolName;
use sluice_common::nearest::nearest;

/// What may have been meant by the name of a pool that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimilarPools {
    /// A pool has a name that is near.
    Near(PoolName),
    /// No name is near: those that there are.
    Among(Vec<PoolName>),
}

impl SimilarPools {
    /// Of these pools.
    pub fn to<'a>(wanted: &PoolName, pools: impl Iterator<Item = &'a PoolName> + Clone) -> Self {
        let near = nearest(wanted.as_str(), pools.clone().map(PoolName::as_str));
        let near = near.and_then(|near| pools.clone().find(|pool| pool.as_str() == near));
        match near {
            Some(near) => SimilarPools::Near(near.clone()),
            None => SimilarPools::Among(pools.cloned().collect()),
        }
    }
}

impl fmt::Display for SimilarPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimilarPools::Near(near) => write!(f, ", did you mean `{near}`?"),
            SimilarPools::Among(pools) => {
                let names: Vec<&str> = pools.iter().map(PoolName::as_str).collect();
                write!(f, " among `{}`", names.join("`, `"))
            }
        }
    }
}
