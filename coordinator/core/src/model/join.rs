//! A host's request to join, and the certificate that it gets.

use sluice_common::credential::{Fingerprint, NodeClaim, SecretHash};
use sluice_common::id::{NodeName, PoolName};

/// A host that shows the secret of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinApplication {
    /// What the secret hashes to.
    pub hash: SecretHash,
    /// The name that it wants to have.
    pub node: NodeName,
    /// The pool that its config names, if it names one.
    pub pool: Option<PoolName>,
    /// The key that it made for itself.
    pub key: Fingerprint,
}

/// A host that is let in: its certificate is to say this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub node: NodeName,
    pub claim: NodeClaim,
}
