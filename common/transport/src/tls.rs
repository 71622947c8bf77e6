//! TLS configuration of all links: version 1.3 only, mutual authentication under the cluster's own authority. The
//! crypto provider is passed explicitly, never taken from a process-wide default.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use sluice_common::credential::Fingerprint;
use sluice_common::join::JOIN_ALPN;
use sluice_common::wire::ALPN;

use crate::certificate::fingerprint_of;
use crate::identity::Identity;
use crate::peer::{COORDINATOR_HOST, Peer};

/// The crypto provider of all connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Server configuration. Clients without a certificate may only speak [`JOIN_ALPN`], which the endpoint enforces.
/// Sessions are never resumed, so every link is verified.
pub(crate) fn server(identity: &Identity) -> QuicServerConfig {
    let certified = SingleCertAndKey::from(Arc::clone(&identity.certified));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring offers TLS 1.3")
        .with_client_cert_verifier(optional_client_verifier(&identity.roots))
        .with_cert_resolver(Arc::new(certified));
    config.alpn_protocols = vec![ALPN.to_vec(), JOIN_ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).expect("ring offers the cipher suite that QUIC begins with")
}

/// Client configuration: the server must be the coordinator, whatever its address.
pub(crate) fn client(identity: &Identity) -> QuicClientConfig {
    let certified = SingleCertAndKey::from(Arc::clone(&identity.certified));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring offers TLS 1.3")
        .with_root_certificates(Arc::clone(&identity.roots))
        .with_client_cert_resolver(Arc::new(certified));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    QuicClientConfig::try_from(config).expect("ring offers the cipher suite that QUIC begins with")
}

/// Verifies a program's own certificate as its peers will.
///
/// # Errors
/// The error that a peer would report.
pub(crate) fn verify_own(
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'_>],
    own: &Peer,
) -> Result<(), rustls::Error> {
    let (leaf, between) = chain.split_first().expect("a loaded chain is not empty");
    let now = UnixTime::now();
    match own {
        Peer::Node(_) => client_verifier(roots)
            .verify_client_cert(leaf, between, now)
            .map(drop),
        Peer::Coordinator => {
            let host = ServerName::try_from(COORDINATOR_HOST).expect("a constant host is a name");
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider())
                .build()
                .expect("an identity has an authority")
                .verify_server_cert(leaf, between, &host, &[], now)
                .map(drop)
        }
    }
}

fn client_verifier(roots: &Arc<RootCertStore>) -> Arc<dyn ClientCertVerifier> {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        .build()
        .expect("an identity has an authority")
}

/// Verifies a client's certificate, if it presents one.
fn optional_client_verifier(roots: &Arc<RootCertStore>) -> Arc<dyn ClientCertVerifier> {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
        .allow_unauthenticated()
        .build()
        .expect("an identity has an authority")
}

/// Client configuration of a joining host: the server must present the coordinator's certificate under the authority
/// with this fingerprint, and the authority's certificate. The host presents none.
pub(crate) fn joining(authority: Fingerprint) -> QuicClientConfig {
    let pinned = PinnedAuthorityVerifier {
        authority,
        algorithms: provider().signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring offers TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.alpn_protocols = vec![JOIN_ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    QuicClientConfig::try_from(config).expect("ring offers the cipher suite that QUIC begins with")
}

/// Trusts one authority, known only by its fingerprint and taken from the server's chain.
#[derive(Debug)]
struct PinnedAuthorityVerifier {
    authority: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedAuthorityVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_it = |shown: &&CertificateDer<'_>| fingerprint_of(shown) == self.authority;
        let Some(authority) = between.iter().find(is_it) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(leaf, between, host, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
