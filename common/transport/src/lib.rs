//! Authenticated links between a coordinator and its agents: QUIC with mutual TLS, and frames on streams.
//!
//! The agent dials, the coordinator listens; both run as `tokio` tasks. Callers interpret messages and decide when to
//! dial again ([`backoff`] computes the pauses).
//!
//! ```text
//! agent                                    coordinator
//! Dialer::dial ---- TLS 1.3, sluice/1 ---> Listener::accept -> Handshake::finish
//!              <--- one byte: admitted --
//! Connection  <=== streams of frames ===>  Connection
//! ```
//!
//! Peers are identified only by certificates, both issued by one authority of the cluster:
//! - the coordinator's is a server certificate for the host `coordinator.sluice`, whatever its address;
//! - a node's is a client certificate for the URI `sluice:node:NAME`.
//!
//! Either may state its cluster (`sluice:cluster:ID`), and a node's its pool (`sluice:pool:NAME`) and its generation
//! (`sluice:generation:N`).
//!
//! A host without a certificate speaks `sluice-join/1` on the same port ([`join`]): it verifies the authority by its
//! fingerprint, presents no certificate, and gets one stream with small frames.
//!
//! No check can be switched off.

pub mod authority;
pub mod backoff;
pub mod certificate;
pub mod connection;
pub mod endpoint;
pub mod error;
pub mod files;
pub mod gate;
pub mod https;
mod identity;
pub mod join;
pub mod join_line;
mod network_prefix;
pub mod peer;
mod settings;
pub mod signing;
mod stateless_reset;
mod tls;

pub use authority::{Authority, AuthorityError, IssuedCertificate, NodeCertificateSpec};
pub use backoff::Backoff;
pub use rustls::pki_types::CertificateDer;

pub use certificate::{
    Validity, digest_of, fingerprint_of, names_issuer, parse_certificates, to_pem,
};
pub use connection::{Connection, FrameReader, FrameWriter};
pub use endpoint::{AcceptedPeer, Dialer, Handshake, Listener};
pub use error::TransportError;
pub use files::FileError;
pub use https::{HttpsError, HttpsServer};
pub use identity::{Identity, IdentityError, TlsFiles};
pub use join::{JoinDialer, JoiningPeer};
pub use join_line::{JoinLine, JoinLineError};
pub use network_prefix::NetworkPrefix;
pub use peer::{CertificateError, Peer, PeerIdentity, cluster_of};
pub use signing::{SigningRequest, SigningRequestError};
