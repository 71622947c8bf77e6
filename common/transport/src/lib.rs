//! Authenticated links between a coordinator and its agents: QUIC with certificates checked both ways, and frames on
//! its streams.
//!
//! The agent dials, the coordinator listens. Both are driven by tasks of `tokio`. What a message means is left to the
//! caller, and so is when to dial again ([`backoff`] says how long to wait).
//!
//! ```text
//! agent                                    coordinator
//! Dialer::dial ---- TLS 1.3, sluice/1 ---> Listener::accept -> Handshake::finish
//!              <--- one byte: let in ----
//! Connection  <=== streams of frames ===>  Connection
//! ```
//!
//! Who is who is in the certificates, both issued by one authority of the cluster, and nothing else counts:
//! - the coordinator's is for servers and names the host `coordinator.sluice`, whatever its address is;
//! - a node's is for clients and names the URI `sluice:node:NAME`.
//!
//! Either may name its cluster (`sluice:cluster:ID`), and a node's its pool (`sluice:pool:NAME`) and how often its access
//! was given anew (`sluice:generation:N`).
//!
//! A host that has no certificate yet speaks `sluice-join/1` on the same port ([`join`]): it knows the authority by its
//! fingerprint, shows no certificate, and gets one stream with small frames.
//!
//! There is no way to switch a check off.

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
