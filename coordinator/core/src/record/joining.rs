//! Records of join tokens.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::credential::{Fingerprint, Generation, SecretHash};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// What an admin gave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinTokenMade {
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
    /// Number of hosts it lets in.
    pub uses: u32,
    pub expires_at: Time,
}

/// A host joined by a token: certificates of earlier generations open nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinTokenUsed {
    pub token: JoinTokenId,
    /// The name that the host was given.
    pub node: NodeName,
    /// The key that it made for itself.
    pub key: Fingerprint,
    /// The generation of its access.
    pub generation: Generation,
}

/// A host showed the secret of a token and was not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinRefused {
    pub token: JoinTokenId,
    /// The name that the host wanted to have.
    pub node: NodeName,
    pub why: String,
}
