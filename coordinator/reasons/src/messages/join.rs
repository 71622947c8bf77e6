//! Sentences about hosts that are refused although they show the secret of a join token.

use sluice_common::id::{JoinTokenId, NodeName, PoolName};
use sluice_common::time::Span;

use super::SimilarPools;

/// The reason why a host that shows the secret of a join token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// No token has this secret.
    #[error(
        "no join token has this secret: make one with `sluice token create`, and paste its line whole"
    )]
    Unknown,
    /// The token has expired.
    #[error("join token `{token}` expired {ago} ago: make another with `sluice token create`")]
    Expired {
        token: JoinTokenId,
        /// Time since then.
        ago: Span,
    },
    /// The token has admitted as many hosts as it may.
    #[error(
        "join token `{token}` is used up, it was for {uses}: make another with `sluice token create`"
    )]
    UsedUp { token: JoinTokenId, uses: u32 },
    /// An admin has revoked the token.
    #[error("join token `{token}` was revoked: ask whoever gave it to you")]
    Revoked { token: JoinTokenId },
    /// The token is for another node.
    #[error(
        "join token `{token}` is for node `{only}` alone and this host calls itself `{node}`: set `node` in agent.toml, or make \
         a token for it"
    )]
    OtherNode {
        token: JoinTokenId,
        /// The node of the token.
        only: NodeName,
        /// The name of the host.
        node: NodeName,
    },
    /// The token is for another pool.
    #[error(
        "join token `{token}` is for pool `{only}` and the agent's config says pool `{pool}`: leave `pool` out of agent.toml, or \
         make a token by `sluice token create --pool {pool}`"
    )]
    OtherPool {
        token: JoinTokenId,
        /// The pool of the token.
        only: PoolName,
        /// The pool in the config.
        pool: PoolName,
    },
    /// The name is taken by another host.
    #[error(
        "node `{node}` exists already: give this host another name (`node` in agent.toml); if it is the same host, `sluice token create --node {node}` makes a token that admits it again"
    )]
    NodeTaken { node: NodeName },
    /// The access that this use of the token gave was ended.
    #[error(
        "the access of node `{node}` was ended since it joined with this token: make another with `sluice token create`"
    )]
    Ended { node: NodeName },
    /// The pool was deleted.
    #[error(
        "join token `{token}` is for pool `{pool}`, which is not there any more: make a token for another pool by \
         `sluice token create --pool POOL`"
    )]
    NoPool { token: JoinTokenId, pool: PoolName },
    /// The pool has no hosts by its terms.
    #[error(
        "pool `{pool}` has no hosts (`hosts: none`), and none can join it: make a token by `sluice token create --pool POOL` for \
         a pool with hosts, or set `pool` in agent.toml"
    )]
    PoolWithoutHosts { pool: PoolName },
    /// The name stands for a pool without hosts.
    #[error(
        "`{node}` is no name for a host, because pools without hosts have such names: set another `node` in agent.toml"
    )]
    ReservedName { node: NodeName },
    /// The token leaves the pool to the host, and there is no pool of that name.
    #[error(
        "join token `{token}` leaves the pool to the host, and there is no pool `{pool}`{near}: set `pool` in agent.toml, or \
         make a token by `sluice token create --pool POOL`"
    )]
    NoSuchPool {
        token: JoinTokenId,
        /// The pool in the config.
        pool: PoolName,
        /// Similar names of pools.
        near: SimilarPools,
    },
}
