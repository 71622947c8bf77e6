//! Stored admission: the tokens by which hosts join, and the generation of each node's access. Secrets of tokens are
//! stored only as hashes.

use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

use sluice_common::credential::{Fingerprint, Generation, SecretHash};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// Most join tokens that are remembered. Beyond it the oldest that admit nobody any more are dropped.
pub const MAX_JOIN_TOKENS: usize = 1000;

/// Most refusals of one token that are recorded, so that nobody with an old secret can fill the log.
pub(crate) const MAX_REFUSALS: u32 = 100;

/// Join tokens, and the access of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    tokens: BTreeMap<JoinTokenId, JoinToken>,
    access: BTreeMap<NodeName, NodeAccess>,
}

/// A token by which hosts join, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    pub id: JoinTokenId,
    /// Hash of the secret.
    pub hash: SecretHash,
    /// The pool that hosts join; `None` leaves it to the config of each host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The only node that may join; `None` allows any.
    pub node: Option<NodeName>,
    /// Labels of the nodes that join.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Number of hosts that may join.
    pub uses: u32,
    pub made_at: Time,
    pub expires_at: Time,
    pub revoked_at: Option<Time>,
    /// Hosts that have joined by the token, by the key that each made.
    pub used: BTreeMap<Fingerprint, TokenUse>,
    /// Number of recorded refusals.
    pub refusals: u32,
}

/// One host that has joined by a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    pub node: NodeName,
    /// Generation of its access.
    pub generation: Generation,
}

/// The access of a node. Outlives the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccess {
    /// Lowest generation of certificates that admit the node.
    pub generation: Generation,
    /// Whether a host has joined under this name whose access has not ended.
    pub admitted: bool,
    /// Labels that the node gets when it connects first.
    pub labels: BTreeMap<LabelKey, LabelValue>,
}

/// The status of a join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStatus {
    /// The token admits hosts.
    Open,
    /// The token has admitted as many hosts as it may.
    UsedUp,
    /// The token has expired.
    Expired,
    /// An admin has revoked the token.
    Revoked,
}

impl JoinToken {
    /// The status at `now`.
    pub fn standing(&self, now: Time) -> TokenStatus {
        if self.revoked_at.is_some() {
            TokenStatus::Revoked
        } else if now >= self.expires_at {
            TokenStatus::Expired
        } else if self.used.len() >= self.uses as usize {
            TokenStatus::UsedUp
        } else {
            TokenStatus::Open
        }
    }
}

impl Admission {
    /// Every remembered token, by id.
    pub fn tokens(&self) -> &BTreeMap<JoinTokenId, JoinToken> {
        &self.tokens
    }

    /// The token whose secret has this hash.
    pub fn by_hash(&self, hash: &SecretHash) -> Option<&JoinToken> {
        self.tokens.values().find(|token| token.hash == *hash)
    }

    /// The access of each node, by name.
    pub fn accesses(&self) -> &BTreeMap<NodeName, NodeAccess> {
        &self.access
    }

    /// The lowest generation of certificates that admit a node.
    pub fn generation(&self, node: &NodeName) -> Generation {
        self.access
            .get(node)
            .map_or(Generation::default(), |access| access.generation)
    }

    /// Whether one more token can be stored at `now`.
    pub fn has_room(&self, now: Time) -> bool {
        self.tokens.len() < MAX_JOIN_TOKENS || self.oldest_closed(now).is_some()
    }

    fn oldest_closed(&self, now: Time) -> Option<JoinTokenId> {
        let closed = self
            .tokens
            .values()
            .filter(|token| token.standing(now) != TokenStatus::Open);
        closed
            .min_by_key(|token| token.made_at)
            .map(|token| token.id.clone())
    }

    pub(crate) fn tokens_mut(&mut self) -> &mut BTreeMap<JoinTokenId, JoinToken> {
        &mut self.tokens
    }

    pub(crate) fn access_mut(&mut self, node: &NodeName) -> &mut NodeAccess {
        self.access.entry(node.clone()).or_default()
    }

    /// Drops old tokens if there is no space for another.
    pub(crate) fn make_room(&mut self, now: Time) {
        if self.tokens.len() >= MAX_JOIN_TOKENS
            && let Some(oldest) = self.oldest_closed(now)
        {
            self.tokens.remove(&oldest);
        }
    }
}
