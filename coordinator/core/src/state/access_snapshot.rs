//! The access rules that callers are checked against, copied from the state after a commit.

use alloc::vec::Vec;

use sluice_common::access::RoleSpec;
use sluice_common::id::{PoolName, RoleName};

use super::State;
use crate::model::access::Access;
use crate::record::Record;

/// All data by which callers are checked, as of one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSnapshot {
    /// Roles, bindings and tokens.
    pub access: Access,
    /// The existing pools: each has roles of its own.
    pub pools: Vec<PoolName>,
}

impl AccessSnapshot {
    /// Copies the data of a state.
    pub fn of(state: &State) -> Self {
        Self {
            access: state.access().clone(),
            pools: state.pools().keys().cloned().collect(),
        }
    }

    /// Whether this record changes the snapshot.
    pub fn is_changed_by(record: &Record) -> bool {
        // A list, not a match: the test that rebuilds the snapshot finds a record that is missing here.
        matches!(
            record,
            Record::AccessChanged { .. } | Record::PoolPut(_) | Record::PoolDeleted { .. }
        )
    }

    /// The contents of a role.
    pub fn role(&self, role: &RoleName) -> Option<RoleSpec> {
        let pool_exists = |pool: &str| self.pools.iter().any(|known| known.as_str() == pool);
        self.access.role(role, pool_exists)
    }
}
