//! The access rules that callers are checked against, copied from the state after a commit.

use alloc::vec::Vec;

use sluice_common::access::RoleSpec;
use sluice_common::id::{PoolName, RoleName};

use super::State;
use crate::model::access::Access;
use crate::record::Record;

/// Everything by which callers are judged, as it stood after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSnapshot {
    /// Roles, bindings and tokens.
    pub access: Access,
    /// The pools that there are: each has roles of its own.
    pub pools: Vec<PoolName>,
}

impl AccessSnapshot {
    /// As a state has it.
    pub fn of(state: &State) -> Self {
        Self {
            access: state.access().clone(),
            pools: state.pools().keys().cloned().collect(),
        }
    }

    /// Whether it is another after this record.
    pub fn is_changed_by(record: &Record) -> bool {
        // A list, not a match: what is forgotten here is found by the test that rebuilds the book.
        matches!(
            record,
            Record::AccessChanged { .. } | Record::PoolPut(_) | Record::PoolDeleted { .. }
        )
    }

    /// What a role is.
    pub fn role(&self, role: &RoleName) -> Option<RoleSpec> {
        let there = |pool: &str| self.pools.iter().any(|known| known.as_str() == pool);
        self.access.role(role, there)
    }
}
