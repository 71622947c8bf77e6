//! Join tokens as admins request and see them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Request to create a join token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JoinTokenRequest {
    /// The pool that hosts join with the token. If absent, the pool in each host's config, or else `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Lifetime of the token, such as `2h`; `1h` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Number of hosts that may join with the token; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// The only node name that may join. If a node of that name exists, its access is revoked. Any free name if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Labels given to the nodes.
    pub labels: BTreeMap<String, String>,
    /// Addresses of the coordinator as HOST:PORT, instead of those in its config.
    pub addresses: Vec<String>,
}

/// A newly created join token with its join line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NewJoinToken")
)]
pub struct NewJoinTokenView {
    /// Line to pass to `sluice-agent join` on the host. Contains the secret; returned only here and not stored.
    pub line: String,
    /// The token without its secret.
    pub token: JoinTokenView,
}

/// State of a join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinTokenState {
    /// Hosts can join with the token.
    Open,
    /// All permitted uses are spent.
    UsedUp,
    /// The lifetime has passed.
    Expired,
    /// An admin revoked the token.
    Revoked,
}

impl JoinTokenState {
    /// The name as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            JoinTokenState::Open => "open",
            JoinTokenState::UsedUp => "used_up",
            JoinTokenState::Expired => "expired",
            JoinTokenState::Revoked => "revoked",
        }
    }
}

/// A join token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "JoinToken")
)]
pub struct JoinTokenView {
    /// Token id, unique in the cluster.
    pub id: String,
    /// Whether hosts can still join with the token.
    pub state: JoinTokenState,
    /// The pool that hosts join; absent if each host's config decides.
    #[serde(default)]
    pub pool: Option<String>,
    /// The only node name that may join.
    pub node: Option<String>,
    /// Labels given to the nodes.
    pub labels: BTreeMap<String, String>,
    /// Number of hosts that may join with the token.
    pub uses: u32,
    /// Names of the nodes that have joined.
    pub nodes: Vec<String>,
    /// Time when the token was created.
    pub made_at: Timestamp,
    /// Time when the token expires.
    pub expires_at: Timestamp,
}
