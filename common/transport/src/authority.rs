//! The cluster's certificate authority. Its key controls the whole cluster and is needed only for issuing.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem;
use sluice_common::credential::{Fingerprint, Generation, NodeClaim};
use sluice_common::hex;
use sluice_common::id::{ClusterId, NameError, NodeName};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certificate::{fingerprint_of, parse_certificates, sha256, to_pem};
use crate::files::{self, FileError};
use crate::peer::{
    CLUSTER_URI_PREFIX, COORDINATOR_HOST, GENERATION_URI_PREFIX, NODE_URI_PREFIX, POOL_URI_PREFIX,
};
use crate::signing::SigningRequest;

/// Lifetime of an authority, and default lifetime of what it issues. Long, because certificates that an admin copies to
/// a host are not renewed automatically.
pub const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Largest delay of a host's clock with which it still accepts a newly issued certificate.
pub const SKEW: Duration = Duration::from_secs(3600);

/// Length of the tag that distinguishes authorities of the same cluster, in bytes.
const TAG_BYTES: usize = 4;

/// A certificate authority with its private key.
pub struct Authority {
    cert_pem: String,
    fingerprint: Fingerprint,
    issuer: Issuer<'static, KeyPair>,
    /// Cluster id written into issued certificates.
    cluster: Option<ClusterId>,
}

/// Name, claims and lifetime of a node's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCertificateSpec {
    /// Name of the node.
    pub node: NodeName,
    /// Statements besides the name.
    pub claim: NodeClaim,
    /// Lifetime of the certificate.
    pub ttl: Duration,
}

/// A certificate with its secret key, both as PEM.
pub struct IssuedCertificate {
    /// The certificate as PEM.
    pub cert_pem: String,
    /// The private key as PEM.
    pub key_pem: String,
}

/// Error while loading an authority or issuing a certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The name of the node or cluster is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file contains no certificate.
    #[error("{path} holds no certificate in PEM form", path = path.display())]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: pem::Error,
    },
    /// The certificate is not an authority's.
    #[error("the certificate in {path} is not an authority's", path = path.display())]
    NoAuthority {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file contains no private key.
    #[error("{path} holds no private key of an authority", path = path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: rcgen::Error,
    },
    /// Certificate and key do not match.
    #[error("{key} is not the key of {cert}", key = key.display(), cert = cert.display())]
    Mismatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// The certificate could not be created.
    #[error("cannot make a certificate")]
    Issue(#[source] rcgen::Error),
}

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// If `cluster` is not a cluster id, or no randomness is available.
    pub fn create(cluster: &str) -> Result<Self, AuthorityError> {
        let cluster = ClusterId::new(cluster)?;
        let key = new_key()?;
        // Two authorities of one cluster, such as an old and a new one, need distinct names.
        let tag = hex::encode(&sha256(key.public_key_raw())[..TAG_BYTES]);
        let mut params = params(&format!("Sluice authority {cluster} {tag}"), LIFETIME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).map_err(AuthorityError::Issue)?;
        Ok(Self {
            cert_pem: cert.pem(),
            fingerprint: fingerprint_of(cert.der()),
            issuer: Issuer::new(params, key),
            cluster: Some(cluster),
        })
    }

    /// Loads an authority from its key and its certificate, which may be bundled with those of other authorities.
    ///
    /// # Errors
    /// If a file is missing, exposed or invalid, or if certificate and key do not match.
    pub fn load(ca_cert: &Path, ca_key: &Path) -> Result<Self, AuthorityError> {
        let text = files::read_public(ca_cert)?;
        let no_certificate = |source| {
            let path = ca_cert.to_owned();
            AuthorityError::Certificate { path, source }
        };
        let certificates = parse_certificates(&text).map_err(no_certificate)?;
        let first = certificates.first().cloned();
        let first = first.ok_or_else(|| no_certificate(pem::Error::NoItemsFound))?;
        let key_error = |source| AuthorityError::Key {
            path: ca_key.to_owned(),
            source,
        };
        let key = KeyPair::from_pem(&files::read_private(ca_key)?).map_err(key_error)?;
        let mut certificates = certificates.into_iter();
        let own = certificates.find(|der| check_pair(der, &key, ca_cert, ca_key).is_ok());
        let der = own.unwrap_or(first);
        check_pair(&der, &key, ca_cert, ca_key)?;
        let cert_pem = to_pem(&der);
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(AuthorityError::Issue)?;
        Ok(Self {
            fingerprint: fingerprint_of(&der),
            cert_pem,
            issuer,
            cluster: None,
        })
    }

    /// Writes this cluster id into issued certificates.
    #[must_use]
    pub fn with_cluster(self, cluster: ClusterId) -> Self {
        let cluster = Some(cluster);
        Self { cluster, ..self }
    }

    /// Fingerprint by which a joining host verifies the authority.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The authority's certificate as PEM.
    pub fn cert_pem(&self) -> String {
        self.cert_pem.clone()
    }

    /// The authority's private key as PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Writes certificate and key; only the owner may read the key.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, ca_cert: &Path, ca_key: &Path) -> Result<(), FileError> {
        files::write_private(ca_key, &self.key_pem())?;
        files::write_public(ca_cert, &self.cert_pem)
    }

    /// Issues a certificate with a new key for the coordinator.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn issue_coordinator(&self) -> Result<IssuedCertificate, AuthorityError> {
        self.issue_coordinator_for(LIFETIME)
    }

    /// Like [`Self::issue_coordinator`], with this lifetime.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn issue_coordinator_for(
        &self,
        ttl: Duration,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = new_key()?;
        let cert_pem = self.certify_coordinator(&key, ttl)?;
        Ok(issued(cert_pem, &key))
    }

    /// Issues a new certificate for the coordinator's existing key, given as PEM.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn renew_coordinator(
        &self,
        key_pem: &str,
        ttl: Duration,
    ) -> Result<String, AuthorityError> {
        let key = KeyPair::from_pem(key_pem).map_err(AuthorityError::Issue)?;
        self.certify_coordinator(&key, ttl)
    }

    fn certify_coordinator(&self, key: &KeyPair, ttl: Duration) -> Result<String, AuthorityError> {
        let mut params = params("Sluice coordinator", ttl);
        let host = COORDINATOR_HOST
            .try_into()
            .expect("a constant host is ASCII");
        params.subject_alt_names = vec![SanType::DnsName(host)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.certify(params, key)
    }

    /// Issues a long-lived certificate with a new key for a node in any pool.
    ///
    /// # Errors
    /// If `node` is not a node name, or no randomness is available.
    pub fn issue_node(&self, node: &str) -> Result<IssuedCertificate, AuthorityError> {
        let terms = NodeCertificateSpec {
            node: NodeName::new(node)?,
            claim: NodeClaim::default(),
            ttl: LIFETIME,
        };
        self.issue_node_with(&terms)
    }

    /// Issues a node's certificate with a new key.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn issue_node_with(
        &self,
        terms: &NodeCertificateSpec,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = new_key()?;
        let cert_pem = self.certify(node_params(terms), &key)?;
        Ok(issued(cert_pem, &key))
    }

    /// Issues a node's certificate for the key in a signing request. Names in the request are ignored.
    ///
    /// # Errors
    /// If the certificate cannot be created.
    pub fn certify_node(
        &self,
        request: &SigningRequest,
        terms: &NodeCertificateSpec,
    ) -> Result<String, AuthorityError> {
        self.certify(node_params(terms), request.public_key())
    }

    pub(crate) fn issue(
        &self,
        params: CertificateParams,
    ) -> Result<IssuedCertificate, AuthorityError> {
        self.issue_for(params, &new_key()?)
    }

    pub(crate) fn issue_for(
        &self,
        params: CertificateParams,
        key: &KeyPair,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let cert_pem = self.certify(params, key)?;
        Ok(issued(cert_pem, key))
    }

    fn certify(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<String, AuthorityError> {
        let cluster = self.cluster.as_ref();
        let cluster = cluster.map(|cluster| uri(CLUSTER_URI_PREFIX, cluster));
        params.subject_alt_names.extend(cluster);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let cert = params
            .signed_by(key, &self.issuer)
            .map_err(AuthorityError::Issue)?;
        Ok(cert.pem())
    }
}

fn issued(cert_pem: String, key: &KeyPair) -> IssuedCertificate {
    IssuedCertificate {
        cert_pem,
        key_pem: key.serialize_pem(),
    }
}

fn node_params(terms: &NodeCertificateSpec) -> CertificateParams {
    let NodeCertificateSpec { node, claim, ttl } = terms;
    let mut params = params(&format!("Sluice node {node}"), *ttl);
    params.subject_alt_names = vec![uri(NODE_URI_PREFIX, node)];
    let pool = claim.pool.as_ref().map(|pool| uri(POOL_URI_PREFIX, pool));
    params.subject_alt_names.extend(pool);
    if claim.generation > Generation::default() {
        let generation = uri(GENERATION_URI_PREFIX, &claim.generation);
        params.subject_alt_names.push(generation);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn uri(prefix: &str, value: &impl ToString) -> SanType {
    let text = format!("{prefix}{}", value.to_string());
    SanType::URI(text.try_into().expect("a checked name is ASCII"))
}

impl IssuedCertificate {
    /// Writes certificate and key; only the owner may read the key.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, cert: &Path, key: &Path) -> Result<(), FileError> {
        files::write_private(key, &self.key_pem)?;
        files::write_public(cert, &self.cert_pem)
    }
}

/// Generates a key of the kind that nodes and coordinators use.
pub(crate) fn new_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(AuthorityError::Issue)
}

/// Generates a key that other programs can read: OpenSSL before 3.2 does not read our Ed25519 keys, which include the
/// public half.
pub(crate) fn new_user_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Issue)
}

pub(crate) fn params(common_name: &str, ttl: Duration) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + ttl).into();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

/// Checks that the certificate is an authority's and matches the key. Otherwise peers would reject everything it
/// issues, without a clear cause.
fn check_pair(
    der: &CertificateDer<'_>,
    key: &KeyPair,
    cert_path: &Path,
    key_path: &Path,
) -> Result<(), AuthorityError> {
    let parsed = X509Certificate::from_der(der).ok();
    let authority = parsed.as_ref().filter(|(_, cert)| cert.is_ca());
    let Some((_, certificate)) = authority else {
        let path = cert_path.to_owned();
        return Err(AuthorityError::NoAuthority { path });
    };
    if certificate.public_key().subject_public_key.data.as_ref() == key.public_key_raw() {
        return Ok(());
    }
    Err(AuthorityError::Mismatch {
        cert: cert_path.to_owned(),
        key: key_path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Peer, peer_identity_of};
    use rustls::pki_types::pem::PemObject;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn peer_of(der: &CertificateDer<'_>) -> Result<Peer, crate::CertificateError> {
        peer_identity_of(der).map(|member| member.peer)
    }

    #[test]
    fn a_certificate_says_what_its_terms_say_and_nothing_that_the_request_says() {
        let authority = Authority::create("c1").unwrap();
        let (_key, request) = SigningRequest::make().unwrap();
        let terms = NodeCertificateSpec {
            node: NodeName::new("gpu-7").unwrap(),
            claim: NodeClaim {
                pool: Some(sluice_common::id::PoolName::new("training").unwrap()),
                generation: Generation::new(2),
            },
            ttl: Duration::from_secs(60),
        };
        let request = SigningRequest::read(&request).unwrap();
        let certificate = authority.certify_node(&request, &terms).unwrap();
        let member = peer_identity_of(&der(&certificate)).unwrap();
        assert_eq!(member.peer, Peer::Node("gpu-7".into()));
        assert_eq!(member.claim, terms.claim);
        assert_eq!(member.cluster, Some(ClusterId::new("c1").unwrap()));
    }

    #[test]
    fn certificates_name_their_members() {
        let authority = Authority::create("c1").unwrap();
        let node = authority.issue_node("gpu-7").unwrap();
        assert_eq!(
            peer_of(&der(&node.cert_pem)).unwrap(),
            Peer::Node("gpu-7".into())
        );
        let coordinator = authority.issue_coordinator().unwrap();
        assert_eq!(
            peer_of(&der(&coordinator.cert_pem)).unwrap(),
            Peer::Coordinator
        );
        let error = peer_of(&der(&authority.cert_pem()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("names 0 members"), "{error}");
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        assert!(matches!(
            Authority::create("a b"),
            Err(AuthorityError::Name(_))
        ));
        let authority = Authority::create("c1").unwrap();
        let error = authority.issue_node("../x").err().unwrap().to_string();
        assert!(error.contains("not a valid node name"), "{error}");
    }

    #[test]
    fn a_loaded_authority_is_the_one_that_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let [cert, key] = ["ca.pem", "ca.key"].map(|name| dir.path().join(name));
        let authority = Authority::create("c1").unwrap();
        authority.write(&cert, &key).unwrap();
        let loaded = Authority::load(&cert, &key).unwrap();
        assert_eq!(der(&loaded.cert_pem()), der(&authority.cert_pem()));
        assert_eq!(loaded.key_pem(), authority.key_pem());
    }

    #[test]
    fn an_authority_is_found_among_others_by_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let [cert, key] = ["ca.pem", "ca.key"].map(|name| dir.path().join(name));
        let [first, second] = ["c1", "c1"].map(|name| Authority::create(name).unwrap());
        files::write_public(&cert, &(first.cert_pem() + &second.cert_pem())).unwrap();
        files::write_private(&key, &second.key_pem()).unwrap();
        let loaded = Authority::load(&cert, &key).unwrap();
        assert_eq!(loaded.fingerprint(), second.fingerprint());
        assert_eq!(der(&loaded.cert_pem()), der(&second.cert_pem()));
    }

    #[test]
    fn files_that_do_not_fit_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let [cert, key, other, leaf] =
            ["ca.pem", "ca.key", "other.key", "leaf.pem"].map(|name| dir.path().join(name));
        let authority = Authority::create("c1").unwrap();
        authority.write(&cert, &key).unwrap();
        let message = |cert: &Path, key: &Path| {
            let error = Authority::load(cert, key).err().unwrap();
            error.to_string()
        };
        files::write_private(&other, &Authority::create("c2").unwrap().key_pem()).unwrap();
        let text = message(&cert, &other);
        assert!(text.contains("other.key is not the key of"), "{text}");
        let issued = authority.issue_node("n").unwrap();
        issued.write(&leaf, &other).unwrap();
        let text = message(&leaf, &other);
        assert!(text.contains("leaf.pem is not an authority's"), "{text}");
        let text = message(&key, &key);
        assert!(text.contains("ca.key holds no certificate"), "{text}");
        files::write_private(&other, &authority.cert_pem()).unwrap();
        let text = message(&cert, &other);
        assert!(text.contains("other.key holds no private key"), "{text}");
    }
}
