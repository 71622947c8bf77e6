//! A token by which hosts join, as it is made.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::proof::SecretHash;
use sluice_common::time::Time;

/// What an admin gave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinTokenMade {
    /// Its id.
    pub token: JoinTokenId,
    /// What its secret hashes to.
    pub hash: SecretHash,
    /// The pool that it lets into; each host's config names its own where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The only node that it lets in; `None` is any whose name is free.
    pub node: Option<NodeName>,
    /// What the nodes are labelled with.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// How many hosts it lets in.
    pub uses: u32,
    /// Until when.
    pub expires_at: Time,
}
