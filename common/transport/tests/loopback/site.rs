//! Fixtures: authorities, identities, a listener, a link, and raw endpoints that misbehave.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sluice_transport::files::{write_private, write_public};
use sluice_transport::{
    Authority, Connection, Dialer, Identity, IssuedCertificate, Listener, TlsFiles, TransportError,
};
use tempfile::TempDir;

pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Deadline for operations that take milliseconds unless something is broken.
const DEADLINE: Duration = Duration::from_secs(20);

/// Awaits `future` and fails the test if that takes too long.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("this should not take long")
}

/// Formats an error with its causes on one line, as daemons log it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Writes an identity's files and returns their paths.
pub(crate) fn files(dir: &Path, trusted: &[&Authority], issued: &IssuedCertificate) -> TlsFiles {
    let files = TlsFiles {
        ca: dir.join("ca.pem"),
        cert: dir.join("cert.pem"),
        key: dir.join("cert.key"),
    };
    let bundle: String = trusted.iter().map(|ca| ca.cert_pem()).collect();
    write_public(&files.ca, &bundle).unwrap();
    issued.write(&files.cert, &files.key).unwrap();
    files
}

pub(crate) fn identity(trusted: &[&Authority], issued: &IssuedCertificate) -> Identity {
    let dir = tempfile::tempdir().unwrap();
    Identity::load(&files(dir.path(), trusted, issued)).unwrap()
}

/// A cluster with a listening coordinator.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) listener: Listener,
}

impl Site {
    pub(crate) fn new() -> Self {
        let authority = Authority::create("c1").unwrap();
        let coordinator = authority.issue_coordinator().unwrap();
        let identity = identity(&[&authority], &coordinator);
        let listener = Listener::bind(LOOPBACK, &identity).unwrap();
        Self {
            authority,
            listener,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().to_string()
    }

    pub(crate) fn dialer(&self, node: &str) -> Dialer {
        let issued = self.authority.issue_node(node).unwrap();
        Dialer::new(&identity(&[&self.authority], &issued)).unwrap()
    }

    /// Accepts the next connection and finishes its handshake.
    pub(crate) async fn accepted(&self) -> Result<Connection, TransportError> {
        let handshake = soon(self.listener.accept()).await.unwrap();
        soon(handshake.finish()).await
    }

    /// Results at both ends if a client that ignores the rules connects.
    pub(crate) async fn raw_link(
        &self,
        client: &quinn::Endpoint,
    ) -> (
        Result<quinn::Connection, quinn::ConnectionError>,
        Result<Connection, TransportError>,
    ) {
        let connecting = client
            .connect(self.listener.local_addr(), "coordinator.sluice")
            .unwrap();
        tokio::join!(soon(connecting), self.accepted())
    }

    /// Establishes a link and returns both ends: the agent's and the coordinator's.
    pub(crate) async fn link(&self) -> Link {
        let dialer = self.dialer("gpu-7");
        let address = self.address();
        let (agent, coordinator) = tokio::join!(dialer.dial(&address), self.accepted());
        Link {
            agent: agent.unwrap(),
            coordinator: coordinator.unwrap(),
            _dialer: dialer,
        }
    }
}

/// Both ends of a link.
pub(crate) struct Link {
    pub(crate) agent: Connection,
    pub(crate) coordinator: Connection,
    _dialer: Dialer,
}

/// Makes certificates that violate [`Authority`]'s rules, under an authority of its own.
pub(crate) struct Forge {
    pub(crate) dir: TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Forge {
    pub(crate) fn new(authority: &Authority) -> Self {
        let key = rcgen::KeyPair::from_pem(&authority.key_pem()).unwrap();
        Self {
            dir: tempfile::tempdir().unwrap(),
            issuer: rcgen::Issuer::from_ca_cert_pem(&authority.cert_pem(), key).unwrap(),
        }
    }

    pub(crate) fn issue(
        &self,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> IssuedCertificate {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::default();
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        IssuedCertificate {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        write_private(&path, text).unwrap();
        path
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.cert_pem())).unwrap();
    roots
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn key(issued: &IssuedCertificate) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap()
}

/// A client with this certificate, or none, that speaks this protocol.
pub(crate) fn raw_client(
    authority: &Authority,
    issued: Option<&IssuedCertificate>,
    alpn: &[u8],
) -> quinn::Endpoint {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(authority));
    let mut config = match issued {
        Some(issued) => config
            .with_client_auth_cert(vec![certificate(&issued.cert_pem)], key(issued))
            .unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let mut endpoint = quinn::Endpoint::client(LOOPBACK).unwrap();
    let config = QuicClientConfig::try_from(config).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    endpoint
}

/// A server with this certificate that asks for none and accepts everyone.
pub(crate) fn raw_server(issued: &IssuedCertificate) -> quinn::Endpoint {
    raw_server_for(issued, &[], b"sluice/1")
}

/// Like [`raw_server`], for this protocol and with these intermediate certificates.
pub(crate) fn raw_server_for(
    issued: &IssuedCertificate,
    behind: &[String],
    alpn: &[u8],
) -> quinn::Endpoint {
    let pems = [&issued.cert_pem].into_iter().chain(behind);
    let chain = pems.map(|pem| certificate(pem)).collect();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key(issued))
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let config = QuicServerConfig::try_from(config).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(config));
    quinn::Endpoint::server(config, LOOPBACK).unwrap()
}
