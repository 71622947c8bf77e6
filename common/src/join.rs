//! Messages by which a host gets its first certificate and a node its next one.
//!
//! Joining uses its own protocol ([`JOIN_ALPN`]) on the coordinator's port, without a client certificate. The host
//! knows the authority's fingerprint from the join line and sends nothing until the coordinator has presented a
//! certificate under that authority. Then it opens one stream, sends a [`JoinRequest`] and receives a [`JoinReply`].
//!
//! A linked node keeps a stream of kind [`StreamKind::Certificates`](crate::wire::StreamKind) open: the coordinator
//! announces trusted authorities there, and the node requests its next certificate.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::credential::Fingerprint;
use crate::id::{NodeName, PoolName};

/// ALPN name of the join protocol.
pub const JOIN_ALPN: &[u8] = b"sluice-join/1";

/// Largest frame from a host without a certificate, in bytes. A request takes a few hundred.
pub const MAX_JOIN_FRAME_BYTES: usize = 16 * 1024;

/// Largest reply, in bytes: a certificate and as many authorities as a cluster may trust at once.
pub const MAX_JOIN_REPLY_BYTES: usize = 256 * 1024;

/// Length of a join token's secret, in bytes.
pub const SECRET_BYTES: usize = 32;

/// Secret of a join token; hidden in `Debug` output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSecret(pub [u8; SECRET_BYTES]);

impl fmt::Debug for JoinSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Request of a host to join the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Version of the agent, for people.
    pub version: String,
    /// Secret of the join token.
    pub secret: JoinSecret,
    /// Requested node name.
    pub node: NodeName,
    /// The pool in the host's config, if any.
    pub pool: Option<PoolName>,
    /// Signing request (PKCS #10, DER) for a key that the host generated. Names in it are ignored.
    pub request: Vec<u8>,
}

/// Reply to a [`JoinRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinReply {
    /// The host has joined.
    Joined(Credentials),
    /// The host may not join.
    Refused {
        /// Why, and what to do next.
        message: String,
        /// Whether the same request may succeed later.
        later: bool,
    },
}

/// Certificates of a node. Nothing here is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The node's certificate followed by intermediate ones, as PEM.
    pub certificate: String,
    /// Trusted authorities, as PEM.
    pub authorities: String,
}

/// Request of a node for its next certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    /// Signing request (PKCS #10, DER) for a new key.
    pub request: Vec<u8>,
}

/// Message to a node on its stream for certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateMessage {
    /// Authorities to trust from now on. Sent first, and after every change.
    Authorities {
        /// All trusted authorities, as PEM.
        pem: String,
        /// The authority that issues certificates; `None` if this coordinator does not issue.
        issuing: Option<Fingerprint>,
    },
    /// Reply with the requested certificate.
    Certificate(Credentials),
    /// Reply to a refused request; the node may ask again later.
    Refused {
        /// Reason of the refusal.
        message: String,
    },
}
