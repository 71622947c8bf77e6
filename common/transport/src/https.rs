//! TLS 1.3 for the HTTP API, with certificates from the cluster's authority or from files, and client certificates of
//! users.
//!
//! A user's certificate names the URI `sluice:user:NAME`. One from an outside authority names the user as its common
//! name. Node certificates are never accepted as users'.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sluice_common::id::Subject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::authority::{Authority, AuthorityError, IssuedCertificate, new_user_key, params};
use crate::certificate::Validity;
use crate::files::{self, FileError};
use crate::peer::{COORDINATOR_HOST, NODE_URI_PREFIX};

/// Prefix of the URI with a user's name.
const USER_URI_PREFIX: &str = "sluice:user:";

/// Error while setting up TLS.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// A file cannot be read, or others can access the key.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authority could not issue a certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A file does not contain what it should.
    #[error("{path} holds no {what} in PEM form", path = path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// Either `certificate` or `private key`.
        what: &'static str,
        /// Error of the parser.
        source: pem::Error,
    },
    /// Certificate, key or authorities are unusable.
    #[error("the certificates for HTTP cannot be used")]
    Unusable(#[source] rustls::Error),
    /// The authorities of users are unusable.
    #[error("the authority of users cannot be used")]
    Users(#[source] rustls::server::VerifierBuilderError),
}

/// PEM text with its path, for messages.
struct PemSource<'a> {
    text: &'a str,
    path: &'a Path,
}

impl PemSource<'_> {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, HttpsError> {
        let read = CertificateDer::pem_slice_iter(self.text.as_bytes());
        let all: Result<Vec<_>, _> = read.collect();
        let wrong = |source| HttpsError::Pem {
            path: self.path.to_owned(),
            what: "certificate",
            source,
        };
        match all {
            Ok(all) if all.is_empty() => Err(wrong(pem::Error::NoItemsFound)),
            all => all.map_err(wrong),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, HttpsError> {
        PrivateKeyDer::from_pem_slice(self.text.as_bytes()).map_err(|source| HttpsError::Pem {
            path: self.path.to_owned(),
            what: "private key",
            source,
        })
    }

    fn roots(&self) -> Result<RootCertStore, HttpsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(HttpsError::Unusable)?;
        }
        Ok(roots)
    }
}

/// TLS config of the server, with its certificate's validity.
pub struct HttpsServer {
    /// Config of the TLS server.
    pub config: Arc<ServerConfig>,
    /// Validity of the server's certificate.
    pub validity: Validity,
    users: Arc<dyn ClientCertVerifier>,
}

impl std::fmt::Debug for HttpsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("HttpsServer");
        shown
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl HttpsServer {
    /// Whether a user's certificate chain is valid now.
    pub fn accepts_user(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((own, between)) = chain.split_first() else {
            return false;
        };
        let verified = self.users.verify_client_cert(own, between, UnixTime::now());
        verified.is_ok()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Config with a certificate from files, which accepts user certificates issued by `users`.
///
/// # Errors
/// If a file is unusable; the error names it.
pub fn server_from_files(cert: &Path, key: &Path, users: &Path) -> Result<HttpsServer, HttpsError> {
    let chain = files::read_public(cert)?;
    let secret = files::read_private(key)?;
    let users_pem = files::read_public(users)?;
    let chain = PemSource {
        text: &chain,
        path: cert,
    };
    let secret = PemSource {
        text: &secret,
        path: key,
    };
    let users = PemSource {
        text: &users_pem,
        path: users,
    };
    server(chain.certificates()?, secret.key()?, users.roots()?)
}

/// Config with a new certificate from the cluster's authority, for these names and addresses. Accepts user certificates
/// issued by the authorities in the file `users`, which include this one.
///
/// # Errors
/// If a name is invalid, the file contains no certificates, or no randomness is available.
pub fn server_from_authority(
    authority: &Authority,
    users: &Path,
    names: &[String],
    ttl: Duration,
) -> Result<HttpsServer, HttpsError> {
    let issued = issue_server(authority, names, ttl)?;
    let own = Path::new("the certificate that was just issued");
    let read = |text| PemSource { text, path: own };
    let users_pem = files::read_public(users)?;
    let users = PemSource {
        text: &users_pem,
        path: users,
    };
    server(
        read(&issued.cert_pem).certificates()?,
        read(&issued.key_pem).key()?,
        users.roots()?,
    )
}

fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    users: RootCertStore,
) -> Result<HttpsServer, HttpsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(users), provider());
    let verifier = verifier.allow_unauthenticated().build();
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(HttpsError::Unusable)?;
    let users = verifier.map_err(HttpsError::Users)?;
    let builder = builder.with_client_cert_verifier(Arc::clone(&users));
    // Malformed certificates are rejected below with a better message.
    let validity = chain.first().and_then(Validity::of).unwrap_or(Validity {
        from: UNIX_EPOCH,
        until: UNIX_EPOCH,
    });
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(HttpsError::Unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(HttpsServer {
        config: Arc::new(config),
        validity,
        users,
    })
}

/// Issues a certificate for the API server, with the coordinator's own name and these.
///
/// # Errors
/// If a name is invalid, or no randomness is available.
pub fn issue_server(
    authority: &Authority,
    names: &[String],
    ttl: Duration,
) -> Result<IssuedCertificate, AuthorityError> {
    let names = names.iter().cloned().chain([COORDINATOR_HOST.to_owned()]);
    let named = CertificateParams::new(names.collect::<Vec<_>>());
    let mut params = params("Sluice API", ttl);
    params.subject_alt_names = named.map_err(AuthorityError::Issue)?.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    authority.issue(params)
}

/// Issues a certificate for a user of the API.
///
/// # Errors
/// If the name is invalid, or no randomness is available.
pub fn issue_user(
    authority: &Authority,
    user: &str,
    ttl: Duration,
) -> Result<IssuedCertificate, AuthorityError> {
    // User names follow the rule of subjects.
    let user = Subject::new(user)?;
    let mut params = params(&format!("Sluice user {user}"), ttl);
    let uri = format!("{USER_URI_PREFIX}{user}");
    let uri = uri.try_into().expect("a checked name is ASCII");
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    // Users call with arbitrary programs, which must be able to read the key.
    authority.issue_for(params, &new_user_key()?)
}

/// The user named in a verified certificate.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let extension = certificate.subject_alternative_name().ok()?;
    let names = extension.iter().flat_map(|it| &it.value.general_names);
    let uris = names.filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let uris: Vec<&str> = uris.collect();
    if uris.iter().any(|uri| uri.starts_with(NODE_URI_PREFIX)) {
        return None;
    }
    let mut users = uris
        .iter()
        .filter_map(|uri| uri.strip_prefix(USER_URI_PREFIX));
    let name = match (users.next(), users.next()) {
        (Some(user), None) => user,
        (Some(_), Some(_)) => return None,
        (None, _) => {
            let mut common = certificate.subject().iter_common_name();
            common.next()?.as_str().ok()?
        }
    };
    Subject::new(name).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::LIFETIME;

    fn der(issued: &IssuedCertificate) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_user_is_known_by_name_and_a_node_is_no_user() {
        let authority = Authority::create("c1").unwrap();
        let alice = issue_user(&authority, "alice", LIFETIME).unwrap();
        assert_eq!(user_of(&der(&alice)).as_deref(), Some("alice"));
        let node = authority.issue_node("gpu-7").unwrap();
        assert_eq!(user_of(&der(&node)), None);
        assert!(issue_user(&authority, "../x", LIFETIME).is_err());
    }

    #[test]
    fn a_user_s_key_is_of_a_form_that_every_program_reads() {
        let authority = Authority::create("c1").unwrap();
        let alice = issue_user(&authority, "alice", LIFETIME).unwrap();
        let key = PrivateKeyDer::from_pem_slice(alice.key_pem.as_bytes()).unwrap();
        let PrivateKeyDer::Pkcs8(key) = key else {
            panic!("{key:?}");
        };
        // First version of RFC 5958, without the public half: a sequence with a long length that begins with a 0.
        let key = key.secret_pkcs8_der();
        assert_eq!((key[0], &key[3..6]), (0x30, &[2, 1, 0][..]));
    }

    #[test]
    fn a_certificate_of_an_outside_authority_names_its_user_as_common_name() {
        for (common, user) in [("bob", Some("bob")), ("Bob Smith", None)] {
            let key = rcgen::KeyPair::generate().unwrap();
            let cert = params(common, LIFETIME).self_signed(&key).unwrap();
            assert_eq!(user_of(cert.der()).as_deref(), user);
        }
    }

    #[test]
    fn the_api_is_known_by_the_names_that_it_is_called_by() {
        let authority = Authority::create("c1").unwrap();
        let names = ["10.0.0.7".to_owned(), "coord-1".to_owned()];
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        files::write_public(&ca, &authority.cert_pem()).unwrap();
        assert!(server_from_authority(&authority, &ca, &names, LIFETIME).is_ok());
        let issued = issue_server(&authority, &names, LIFETIME).unwrap();
        let der = der(&issued);
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 4);
    }
}
