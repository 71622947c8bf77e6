//! Tokens by which hosts join, as admins ask for them and see them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A token that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JoinTokenRequest {
    /// The pool that hosts join by it. Where it is absent, the one that each host's config names, or else `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// For how long it lets hosts in, such as `1h`, which it is where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// How many hosts it lets in; one where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// The only node that it lets in, which may be one that is there already: the host that had the name is out then.
    /// Any whose name is free where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What the nodes are labelled with.
    pub labels: BTreeMap<String, String>,
    /// Where hosts reach the coordinator, as HOST:PORT, in place of what its config says.
    pub addresses: Vec<String>,
}

/// A token that was made. The line is shown this once and kept nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NewJoinToken")
)]
pub struct NewJoinTokenView {
    /// What to give to `sluice-agent join` on the host. It holds the secret.
    pub line: String,
    /// The token.
    pub token: JoinTokenView,
}

/// How a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JoinTokenState {
    /// It lets hosts in.
    Open,
    /// It has let in as many as it may.
    UsedUp,
    /// Its time is over.
    Expired,
    /// An admin has taken it back.
    Revoked,
}

impl JoinTokenState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            JoinTokenState::Open => "open",
            JoinTokenState::UsedUp => "used_up",
            JoinTokenState::Expired => "expired",
            JoinTokenState::Revoked => "revoked",
        }
    }
}

/// A token by which hosts join. Its secret is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "JoinToken")
)]
pub struct JoinTokenView {
    /// Its id.
    pub id: String,
    /// How it stands.
    pub state: JoinTokenState,
    /// The pool that hosts join by it; absent where each host's config names its own.
    #[serde(default)]
    pub pool: Option<String>,
    /// The only node that it lets in.
    pub node: Option<String>,
    /// What the nodes are labelled with.
    pub labels: BTreeMap<String, String>,
    /// How many hosts it lets in.
    pub uses: u32,
    /// Those that it has let in, by name.
    pub nodes: Vec<String>,
    /// When it was made.
    pub made_at: Timestamp,
    /// Until when it lets hosts in.
    pub expires_at: Timestamp,
}
