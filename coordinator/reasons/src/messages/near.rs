//! Suggestions for the name of a pool that does not exist.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use sluice_common::id::PoolName;
use sluice_common::nearest::nearest;

/// Suggestions for the name of a pool that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimilarPools {
    /// The pool with a similar name.
    Near(PoolName),
    /// All pools, because no name is similar.
    Among(Vec<PoolName>),
}

impl SimilarPools {
    /// Finds suggestions among these pools.
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
