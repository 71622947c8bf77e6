//! How a host that has no certificate yet gets one, and how a node gets its next.
//!
//! Joining has a protocol of its own ([`JOIN_ALPN`]) on the coordinator's port, on which no certificate is asked for.
//! The host knows the authority's fingerprint from the line that an admin gave it, and says nothing before the
//! coordinator has shown a certificate under that authority. Then it opens one stream, sends a [`JoinRequest`] and is
//! answered by a [`JoinReply`].
//!
//! A linked node keeps a stream of kind [`StreamKind::Certificates`](crate::wire::StreamKind) open: the coordinator says
//! there which authorities are to be trusted, and the node asks there for its next certificate.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::credential::Fingerprint;
use crate::id::{NodeName, PoolName};

/// ALPN name of joining.
pub const JOIN_ALPN: &[u8] = b"sluice-join/1";

/// Largest frame of somebody who has no certificate, in bytes: a request takes some hundred.
pub const MAX_JOIN_FRAME_BYTES: usize = 16 * 1024;

/// Largest answer, in bytes: a certificate and as many authorities as a cluster may have beside each other.
pub const MAX_JOIN_REPLY_BYTES: usize = 256 * 1024;

/// The secret of a join token.
pub const SECRET_BYTES: usize = 32;

/// A secret, shown to nobody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSecret(pub [u8; SECRET_BYTES]);

impl fmt::Debug for JoinSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a host that wants in says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The agent's build, for people.
    pub version: String,
    /// Of the token.
    pub secret: JoinSecret,
    /// The name that it wants to have.
    pub node: NodeName,
    /// The pool that its config names, if it names one.
    pub pool: Option<PoolName>,
    /// A signing request (PKCS #10, DER) by the key that it made for itself. The names in it do not count.
    pub request: Vec<u8>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinReply {
    /// It is in.
    Joined(Credentials),
    /// It is not.
    Refused {
        /// Why, and what would help.
        message: String,
        /// Whether the same again may be answered otherwise later.
        later: bool,
    },
}

/// By what a node shows who it is, and knows who the coordinator is. Nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The certificate, followed by those between it and the authority, in PEM form.
    pub certificate: String,
    /// The authorities that are to be trusted, in PEM form.
    pub authorities: String,
}

/// From a node, on its stream for certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    /// A signing request (PKCS #10, DER) by the key that it made for the purpose.
    pub request: Vec<u8>,
}

/// To a node, on its stream for certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateMessage {
    /// Which authorities are to be trusted from now on. Said first, and whenever they change.
    Authorities {
        /// All of them, in PEM form.
        pem: String,
        /// The one that issues now; `None` where this coordinator does not issue.
        issuing: Option<Fingerprint>,
    },
    /// The answer to a request.
    Certificate(Credentials),
    /// The answer to a request that is refused; the node may ask again later.
    Refused {
        /// Why.
        message: String,
    },
}
