//! The cluster's authority: issues the certificates by which its members know each other. Its key is as good as the
//! whole cluster; it is needed to issue and at no other time.

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

/// How long an authority is good for, and what it issues where nobody says otherwise: certificates that an admin
/// carries to a host are not renewed by themselves, so theirs is long.
pub const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How far behind a host's clock may be and still take a certificate that was just issued.
pub const SKEW: Duration = Duration::from_secs(3600);

/// By which the names of two authorities of a cluster differ.
const TAG_BYTES: usize = 4;

/// A cluster's authority, with its key.
pub struct Authority {
    cert_pem: String,
    fingerprint: Fingerprint,
    issuer: Issuer<'static, KeyPair>,
    /// Written into what it issues.
    cluster: Option<ClusterId>,
}

/// For whom a node's certificate is, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCertificateSpec {
    /// The node.
    pub node: NodeName,
    /// What the certificate says beside its name.
    pub claim: NodeClaim,
    /// How long it is good for.
    pub ttl: Duration,
}

/// A certificate and its key, both as PEM. The key is secret.
pub struct IssuedCertificate {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The node or cluster cannot have that name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds no certificate.
    #[error("{path} holds no certificate in PEM form", path = path.display())]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// The certificate may not issue others.
    #[error("the certificate in {path} is not an authority's", path = path.display())]
    NoAuthority {
        /// Which.
        path: PathBuf,
    },
    /// The file holds no key.
    #[error("{path} holds no private key of an authority", path = path.display())]
    Key {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rcgen::Error,
    },
    /// The two files do not belong together.
    #[error("{key} is not the key of {cert}", key = key.display(), cert = cert.display())]
    Mismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Issue(#[source] rcgen::Error),
}

impl Authority {
    /// A new authority for the cluster of this id, with a new key.
    ///
    /// # Errors
    /// Where that is no cluster id, or there is no randomness to be had.
    pub fn create(cluster: &str) -> Result<Self, AuthorityError> {
        let cluster = ClusterId::new(cluster)?;
        let key = new_key()?;
        // Two authorities of one cluster, of which one takes over from the other, have two names.
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

    /// The authority whose key is in the one file and whose certificate is in the other, perhaps among those of other
    /// authorities.
    ///
    /// # Errors
    /// Where a file is missing, exposed, or holds something else, or where they do not belong together.
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

    /// Has what it issues say of which cluster it is.
    #[must_use]
    pub fn with_cluster(self, cluster: ClusterId) -> Self {
        let cluster = Some(cluster);
        Self { cluster, ..self }
    }

    /// By which a joining host knows it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The authority's certificate, which every member of the cluster trusts.
    pub fn cert_pem(&self) -> String {
        self.cert_pem.clone()
    }

    /// The authority's private key.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Writes the authority's certificate and key, the key for its owner alone.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write(&self, ca_cert: &Path, ca_key: &Path) -> Result<(), FileError> {
        files::write_private(ca_key, &self.key_pem())?;
        files::write_public(ca_cert, &self.cert_pem)
    }

    /// A certificate by which agents know the coordinator, with a key of its own.
    ///
    /// # Errors
    /// Where there is no randomness to be had.
    pub fn issue_coordinator(&self) -> Result<IssuedCertificate, AuthorityError> {
        self.issue_coordinator_for(LIFETIME)
    }

    /// The same, for as long as this.
    ///
    /// # Errors
    /// Where there is no randomness to be had.
    pub fn issue_coordinator_for(
        &self,
        ttl: Duration,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = new_key()?;
        let cert_pem = self.certify_coordinator(&key, ttl)?;
        Ok(issued(cert_pem, &key))
    }

    /// A new certificate for the coordinator's key, which is given in PEM form.
    ///
    /// # Errors
    /// Where that is no key.
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

    /// A certificate by which the coordinator knows the node of this name, for any pool and for long, with a key of
    /// its own.
    ///
    /// # Errors
    /// Where that is no name of a node, or there is no randomness to be had.
    pub fn issue_node(&self, node: &str) -> Result<IssuedCertificate, AuthorityError> {
        let terms = NodeCertificateSpec {
            node: NodeName::new(node)?,
            claim: NodeClaim::default(),
            ttl: LIFETIME,
        };
        self.issue_node_with(&terms)
    }

    /// A node's certificate on these terms, with a key of its own.
    ///
    /// # Errors
    /// Where there is no randomness to be had.
    pub fn issue_node_with(
        &self,
        terms: &NodeCertificateSpec,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let key = new_key()?;
        let cert_pem = self.certify(node_params(terms), &key)?;
        Ok(issued(cert_pem, &key))
    }

    /// A node's certificate on these terms for the key of whoever asks. The terms alone count: names in the request
    /// are not looked at.
    ///
    /// # Errors
    /// Where the certificate cannot be made.
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
    /// Writes certificate and key, the key for its owner alone.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write(&self, cert: &Path, key: &Path) -> Result<(), FileError> {
        files::write_private(key, &self.key_pem)?;
        files::write_public(cert, &self.cert_pem)
    }
}

/// A key of the kind that every member has.
pub(crate) fn new_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(AuthorityError::Issue)
}

/// A key that other programs read as well: OpenSSL before 3.2 knows no Ed25519 key in the form in which ours are written,
/// which holds the public half too.
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

/// Whether the certificate may issue others and the key is its own. Otherwise what it issues would be refused by
/// everybody, later and without a word about the cause.
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
