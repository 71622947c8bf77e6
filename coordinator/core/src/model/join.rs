//! A host's request to join, and the certificate that it gets.

use sluice_common::credential::{Fingerprint, NodeClaim, SecretHash};
use sluice_common::id::{NodeName, PoolName};

/// A host that shows the secret of a join token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinApplication {
    /// Hash of the secret.
    pub hash: SecretHash,
    /// The wanted name.
    pub node: NodeName,
    /// The pool in its config, if any.
    pub pool: Option<PoolName>,
    /// The key that it made.
    pub key: Fingerprint,
}

/// A host that has joined: the contents of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub node: NodeName,
    pub claim: NodeClaim,
}
