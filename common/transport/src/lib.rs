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
pub mod peer;
mod prefix;
mod reset;
mod settings;
pub mod signing;
mod tls;

pub use authority::{Authority, AuthorityError, Issued, NodeTerms};
pub use backoff::Backoff;
pub use rustls::pki_types::CertificateDer;

pub use certificate::{Validity, certificates_in, digest_of, fingerprint_of, names_issuer, pem_of};
pub use connection::{Connection, FrameReader, FrameWriter};
pub use endpoint::{Dialer, Handshake, Listener, Visitor};
pub use error::TransportError;
pub use files::FileError;
pub use https::{HttpsError, HttpsServer};
pub use identity::{Identity, IdentityError, TlsFiles};
pub use join::{JoinDialer, Stranger};
pub use join_line::{JoinLine, LineError};
pub use peer::{CertificateError, Member, Peer, cluster_in};
pub use prefix::Prefix;
pub use signing::{RequestError, SigningRequest};
