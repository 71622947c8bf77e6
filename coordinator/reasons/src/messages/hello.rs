//! Why a host that has a certificate is not let in, as text.

use alloc::string::String;

use sluice_common::credential::Generation;
use sluice_common::id::{ClusterId, NodeName, PoolName};
use sluice_common::time::Span;
use sluice_common::wire::PROTOCOL_VERSION;

use super::SimilarPools;

/// Why a host that has a certificate is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloRefusal {
    /// The certificate opens nothing any more.
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
        /// The version that the agent speaks.
        protocol: u32,
        /// Of the agent.
        version: String,
    },
    /// The pool is not there.
    #[error("there is no pool `{pool}`{near}: {}", way_out(*by_certificate))]
    NoPool {
        pool: PoolName,
        /// What may have been meant.
        near: SimilarPools,
        /// Whether its certificate names the pool.
        by_certificate: bool,
    },
    /// It obeys another cluster.
    #[error(
        "this host belongs to cluster `{theirs}` and this coordinator to `{ours}`: point the agent at its own cluster, or \
         move it here by emptying its `state_dir` while nothing runs on it"
    )]
    OtherCluster { theirs: ClusterId, ours: ClusterId },
    /// It claims an epoch that cannot be.
    #[error(
        "this host claims to have obeyed epoch {claimed}, which no coordinator can have reached: stop its agent, run \
         `sluice-agent forget-epoch` there, and start it again"
    )]
    ImpossibleEpoch {
        /// What it claims.
        claimed: u64,
    },
    /// It claims a later epoch without a proof.
    #[error(
        "this host claims to have obeyed epoch {claimed} without a proof, and this coordinator speaks with epoch {ours}: a \
         later epoch counts only with the seal of this cluster's `warrants.key`. If the claim is wrong, stop the agent, run \
         `sluice-agent forget-epoch` there, and start it again. If the coordinator has lost its store, stop it and put \
         `warrants.key` of the cluster back, or, if that is lost as well, run `sluice-coordinator repair-epoch --above \
         {claimed}`"
    )]
    UnprovenEpoch {
        /// What it claims.
        claimed: u64,
        ours: u64,
    },
    /// Another host of this name is linked.
    #[error(
        "node `{node}` is linked already, from a host that was booted another time: give each host a name and a certificate \
         of its own, by joining this one anew; if it is the same host, which has just been booted, it is let in once its \
         earlier link has been silent for {after}"
    )]
    LinkedFromOtherBoot {
        node: NodeName,
        /// Time for which a link is silent before another is let in.
        after: Span,
    },
    /// Another agent of this machine is linked.
    #[error(
        "node `{node}` is linked already, from another state directory on the same machine: one of the two is a copy; stop \
         the agent of the one that is too many, or join it anew with an empty `state_dir` and a name of its own"
    )]
    LinkedFromOtherDirectory { node: NodeName },
    /// What runs on another machine of this name may run still.
    #[error(
        "node `{node}` is known from another machine, whose steps may still run: if this one is a copy of its disk, join it \
         anew with an empty `state_dir` and a name of its own; if it replaces that machine, it is let in by itself once that \
         counts as lost, {lost_after} after it was heard last"
    )]
    OtherMachine {
        node: NodeName,
        /// Time for which a node is silent before it counts as lost.
        lost_after: Span,
    },
}

fn way_out(by_certificate: bool) -> &'static str {
    match by_certificate {
        true => "have it join anew by a line of `sluice token create --pool POOL`",
        false => "set `pool` in agent.toml",
    }
}
