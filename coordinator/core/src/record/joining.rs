//! Records of join tokens.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::credential::{Fingerprint, Generation, SecretHash};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// A join token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinTokenMade {
    pub token: JoinTokenId,
    /// Hash of the secret.
    pub hash: SecretHash,
    /// The pool that hosts join; if absent, each host's config names its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The only node that may join; `None` allows any unused name.
    pub node: Option<NodeName>,
    /// Labels of the nodes that join.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Number of hosts that may join.
    pub uses: u32,
    pub expires_at: Time,
}

/// A host joined by a token: certificates of earlier generations admit nobody any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinTokenUsed {
    pub token: JoinTokenId,
    /// The name that the host got.
    pub node: NodeName,
    /// The key that it made.
    pub key: Fingerprint,
    /// Generation of its access.
    pub generation: Generation,
}

/// A host showed the secret of a join token and was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct JoinRefused {
    pub token: JoinTokenId,
    /// The name that the host wanted.
    pub node: NodeName,
    pub why: String,
}
