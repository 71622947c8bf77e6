//! Stored admission: the tokens by which hosts join, and the generation of each node's access. Secrets of tokens are
//! stored only as hashes.

use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

use sluice_common::credential::{Fingerprint, Generation, SecretHash};
use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// Most tokens that are remembered. Beyond them those that let nobody in any more are dropped, the oldest first.
pub const MAX_JOIN_TOKENS: usize = 1000;

/// Refusals of one token that are recorded; whoever knows an old secret must not fill the log.
pub(crate) const MAX_REFUSALS: u32 = 100;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    tokens: BTreeMap<JoinTokenId, JoinToken>,
    access: BTreeMap<NodeName, NodeAccess>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    pub id: JoinTokenId,
    /// What its secret hashes to.
    pub hash: SecretHash,
    /// The pool that it lets into; `None` leaves it to the config of each host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The only node that it lets in; `None` is any.
    pub node: Option<NodeName>,
    /// What the nodes are labelled with.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// Number of hosts it lets in.
    pub uses: u32,
    /// When it was made.
    pub made_at: Time,
    /// Time until which it lets in.
    pub expires_at: Time,
    /// When an admin took it back.
    pub revoked_at: Option<Time>,
    /// Whom it has let in, by the key that each made for itself.
    pub used: BTreeMap<Fingerprint, TokenUse>,
    /// Number of times it was shown in vain, as far as that was recorded.
    pub refusals: u32,
}

/// One host that a token has let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// The name that it was given.
    pub node: NodeName,
    /// The generation of its access.
    pub generation: Generation,
}

/// What is known of a node's access. It outlives the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccess {
    /// Certificates of earlier generations open nothing.
    pub generation: Generation,
    /// Whether a host has joined under this name whose access has not ended.
    pub admitted: bool,
    /// What it is labelled with when it is linked first.
    pub labels: BTreeMap<LabelKey, LabelValue>,
}

/// How a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStatus {
    /// The token lets hosts in.
    Open,
    /// The token has let in as many as it may.
    UsedUp,
    /// The time is over.
    Expired,
    /// An admin has taken it back.
    Revoked,
}

impl JoinToken {
    /// How it stands at `now`.
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

    /// The token whose secret hashes to this.
    pub fn by_hash(&self, hash: &SecretHash) -> Option<&JoinToken> {
        self.tokens.values().find(|token| token.hash == *hash)
    }

    /// What is known of each node's access, by name.
    pub fn accesses(&self) -> &BTreeMap<NodeName, NodeAccess> {
        &self.access
    }

    /// The generation below which certificates of a node open nothing.
    pub fn generation(&self, node: &NodeName) -> Generation {
        self.access
            .get(node)
            .map_or(Generation::default(), |access| access.generation)
    }

    /// Whether one more token can be kept at `now`.
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

    /// Makes room for one more where there is none.
    pub(crate) fn make_room(&mut self, now: Time) {
        if self.tokens.len() >= MAX_JOIN_TOKENS
            && let Some(oldest) = self.oldest_closed(now)
        {
            self.tokens.remove(&oldest);
        }
    }
}
