//! Sentences about hosts with a certificate that are refused.

use alloc::string::String;

use sluice_common::credential::Generation;
use sluice_common::id::{ClusterId, NodeName, PoolName};
use sluice_common::time::Span;
use sluice_common::wire::PROTOCOL_VERSION;

use super::SimilarPools;

/// The reason why a host with a certificate is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// The certificate is no longer valid.
    #[error(
        "the access of node `{node}` was ended, or given to a host that joined later: to let this host in, `sluice token create --node {node}` makes a line for `sluice-agent join`, and `sluice-coordinator issue-node {node} \
         --generation {wanted}` a certificate"
    )]
    AccessEnded {
        node: NodeName,
        /// The generation that its certificate must have.
        wanted: Generation,
    },
    /// The agent is of another release.
    #[error(
        "protocol {protocol} of agent {version} is not protocol {PROTOCOL_VERSION} of this coordinator: install the same \
         release on both"
    )]
    OtherProtocol {
        /// Protocol version of the agent.
        protocol: u32,
        /// Version of the agent.
        version: String,
    },
    /// The pool does not exist.
    #[error("there is no pool `{pool}`{near}: {}", way_out(*by_certificate))]
    NoPool {
        pool: PoolName,
        /// Similar names of pools.
        near: SimilarPools,
        /// Whether its certificate names the pool.
        by_certificate: bool,
    },
    /// The pool has no hosts by its terms.
    #[error("pool `{pool}` has no hosts (`hosts: none`), and none can join it: {}", way_out(*by_certificate))]
    PoolWithoutHosts {
        pool: PoolName,
        /// Whether its certificate names the pool.
        by_certificate: bool,
    },
    /// The name stands for a pool without hosts.
    #[error(
        "`{node}` is no name for a host, because pools without hosts have such names: join it anew under another name"
    )]
    ReservedName { node: NodeName },
    /// The host belongs to another cluster.
    #[error(
        "this host belongs to cluster `{theirs}` and this coordinator to `{ours}`: point the agent at its own cluster, or \
         move it here by emptying its `state_dir` while nothing runs on it"
    )]
    OtherCluster { theirs: ClusterId, ours: ClusterId },
    /// The host claims an epoch that is impossible.
    #[error(
        "this host claims to have obeyed epoch {claimed}, which no coordinator can have reached: stop its agent, run \
         `sluice-agent forget-epoch` there, and start it again"
    )]
    ImpossibleEpoch {
        /// The claimed epoch.
        claimed: u64,
    },
    /// The host claims a later epoch without a proof.
    #[error(
        "this host claims to have obeyed epoch {claimed} without a proof, and this coordinator speaks with epoch {ours}: a \
         later epoch counts only with the seal of this cluster's `warrants.key`. If the claim is wrong, stop the agent, run \
         `sluice-agent forget-epoch` there, and start it again. If the coordinator has lost its store, stop it and put \
         `warrants.key` of the cluster back, or, if that is lost as well, run `sluice-coordinator repair-epoch --above \
         {claimed}`"
    )]
    UnprovenEpoch {
        /// The claimed epoch.
        claimed: u64,
        ours: u64,
    },
    /// Another host of this name is connected.
    #[error(
        "node `{node}` is linked already, from a host that was booted another time: give each host a name and a certificate \
         of its own, by joining this one anew; if it is the same host, which has just been booted, it is let in once its \
         earlier link has been silent for {after}"
    )]
    LinkedFromOtherBoot {
        node: NodeName,
        /// Silence after which another host of this name is admitted.
        after: Span,
    },
    /// Another agent of this machine is connected.
    #[error(
        "node `{node}` is linked already, from another state directory on the same machine: one of the two is a copy; stop \
         the agent of the one that is too many, or join it anew with an empty `state_dir` and a name of its own"
    )]
    LinkedFromOtherDirectory { node: NodeName },
    /// Steps on another machine of this name may still be running.
    #[error(
        "node `{node}` is known from another machine, whose steps may still run: if this one is a copy of its disk, join it \
         anew with an empty `state_dir` and a name of its own; if it replaces that machine, it is let in by itself once that \
         counts as lost, {lost_after} after it was heard last"
    )]
    OtherMachine {
        node: NodeName,
        /// Silence after which a node is lost.
        lost_after: Span,
    },
}

fn way_out(by_certificate: bool) -> &'static str {
    match by_certificate {
        true => "have it join anew by a line of `sluice token create --pool POOL`",
        false => "set `pool` in agent.toml",
    }
}
