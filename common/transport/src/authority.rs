//! The cluster's authority: issues the certificates by which its members know each other. Its key is as good as the
//! whole cluster; it is needed to issue and at no other time.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use sluice_common::id::{ClusterId, NameError, NodeName};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::files::{self, FileError};
use crate::peer::{COORDINATOR_HOST, NODE_URI_PREFIX};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long certificates are good for. There is no renewal by itself, so it is long; who must be shut out earlier is
/// shut out by a new authority.
const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How far behind a host's clock may be and still take a certificate that was just issued.
const SKEW: Duration = DAY;

/// A cluster's authority, with its key.
pub struct Authority {
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM. The key is secret.
pub struct Issued {
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
        let mut params = params(&format!("Sluice authority {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = new_key()?;
        let cert = params.self_signed(&key).map_err(AuthorityError::Issue)?;
        Ok(Self {
            cert_pem: cert.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority whose certificate and key are in these files.
    ///
    /// # Errors
    /// Where a file is missing, exposed, or holds something else, or where they do not belong together.
    pub fn load(ca_cert: &Path, ca_key: &Path) -> Result<Self, AuthorityError> {
        let cert_pem = files::read_public(ca_cert)?;
        let der = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(|source| {
            let path = ca_cert.to_owned();
            AuthorityError::Certificate { path, source }
        })?;
        let key_error = |source| AuthorityError::Key {
            path: ca_key.to_owned(),
            source,
        };
        let key = KeyPair::from_pem(&files::read_private(ca_key)?).map_err(key_error)?;
        check_pair(&der, &key, ca_cert, ca_key)?;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(AuthorityError::Issue)?;
        Ok(Self { cert_pem, issuer })
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

    /// A certificate by which agents know the coordinator.
    ///
    /// # Errors
    /// Where there is no randomness to be had.
    pub fn issue_coordinator(&self) -> Result<Issued, AuthorityError> {
        let mut params = params("Sluice coordinator");
        let host = COORDINATOR_HOST
            .try_into()
            .expect("a constant host is ASCII");
        params.subject_alt_names = vec![SanType::DnsName(host)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// A certificate by which the coordinator knows the node of this name.
    ///
    /// # Errors
    /// Where that is no name of a node, or there is no randomness to be had.
    pub fn issue_node(&self, node: &str) -> Result<Issued, AuthorityError> {
        let node = NodeName::new(node)?;
        let mut params = params(&format!("Sluice node {node}"));
        let uri = format!("{NODE_URI_PREFIX}{node}");
        let uri = uri.try_into().expect("a checked name is ASCII");
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    pub(crate) fn issue(&self, mut params: CertificateParams) -> Result<Issued, AuthorityError> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let cert = params
            .signed_by(&key, &self.issuer)
            .map_err(AuthorityError::Issue)?;
        Ok(Issued {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl Issued {
    /// Writes certificate and key, the key for its owner alone.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write(&self, cert: &Path, key: &Path) -> Result<(), FileError> {
        files::write_private(key, &self.key_pem)?;
        files::write_public(cert, &self.cert_pem)
    }
}

fn new_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(AuthorityError::Issue)
}

pub(crate) fn params(common_name: &str) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + LIFETIME).into();
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
    use crate::peer::{Peer, peer_of};

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
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
        assert_eq!(loaded.cert_pem(), authority.cert_pem());
        assert_eq!(loaded.key_pem(), authority.key_pem());
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
