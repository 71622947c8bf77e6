//! Identity of this program: certificate, key and trusted authorities, loaded at the start. Whatever a peer would
//! reject later is rejected here, with the file's name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use sluice_common::credential::Fingerprint;
use sluice_common::time::Span;

use crate::certificate::{Validity, fingerprint_of};
use crate::files::{self, FileError};
use crate::peer::{CertificateError, Peer, PeerIdentity, peer_identity_of};
use crate::stateless_reset::ResetKey;
use crate::tls;

/// Paths of a program's PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Trusted authorities: one, or two during a rollover.
    pub ca: PathBuf,
    /// This program's certificate, followed by intermediate ones.
    pub cert: PathBuf,
    /// Private key, readable only by its owner.
    pub key: PathBuf,
}

/// A verified certificate with its key and trusted authorities.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) reset: ResetKey,
    /// Path of the certificate, for messages.
    pub(crate) cert: PathBuf,
    member: PeerIdentity,
    authority: Fingerprint,
    validity: Validity,
}

/// Error while loading an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read, or others can access the key.
    #[error(transparent)]
    File(#[from] FileError),
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
    /// The authority's certificate is unusable.
    #[error("the authority's certificate in {path} cannot be used", path = path.display())]
    Authority {
        /// Path of the file.
        path: PathBuf,
        /// Error of the TLS library.
        source: rustls::Error,
    },
    /// The private key is unusable.
    #[error("the private key in {path} cannot be used", path = path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Error of the TLS library.
        source: rustls::Error,
    },
    /// Certificate and key do not match.
    #[error("{key} is not the key of {cert}", key = key.display(), cert = cert.display())]
    Mismatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// The certificate names no member of a cluster.
    #[error("{path} cannot be used", path = path.display())]
    NotAMember {
        /// Path of the certificate.
        path: PathBuf,
        /// Problem with the certificate.
        source: CertificateError,
    },
    /// The certificate has expired or is not valid yet, by this host's clock.
    #[error(
        "{cert} {}: check this host's clock (`date`) first; if it is right, get a new certificate (`sluice token create` \
         prints a join line, `sluice-coordinator issue-node` writes files)",
        validity_problem(*is_over, *by),
        cert = cert.display()
    )]
    NotValidNow {
        /// Path of the certificate.
        cert: PathBuf,
        /// Whether it has expired, or is not valid yet.
        is_over: bool,
        /// Time since its expiry, or until its start.
        by: Duration,
    },
    /// Peers that trust the same authority would reject the certificate.
    #[error(
        "{cert} is not valid now under the authority in {ca}: issue it again, or configure the authority that issued it",
        cert = cert.display(), ca = ca.display()
    )]
    Untrusted {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the authority's certificate.
        ca: PathBuf,
        /// Error that a peer would report.
        source: rustls::Error,
    },
}

impl Identity {
    /// Loads and verifies the three files.
    ///
    /// # Errors
    /// If a file is unusable; the error names it.
    pub fn load(files: &TlsFiles) -> Result<Self, IdentityError> {
        let trusted = load_certificates(&files.ca)?;
        let roots = Arc::new(load_roots(files, &trusted)?);
        let chain = load_certificates(&files.cert)?;
        let key = load_key(files)?;
        let reset = ResetKey::of(&key);
        let mut certified = CertifiedKey::from_der(chain, key, &tls::provider())
            .map_err(|source| key_error(files, source))?;
        let leaf = certified.cert.first().expect("a loaded chain is not empty");
        let nobody = |source| IdentityError::NotAMember {
            path: files.cert.clone(),
            source,
        };
        let member = peer_identity_of(leaf).map_err(nobody)?;
        let validity = Validity::of(leaf).expect("a certificate that was read can be read");
        check_time(files, &validity)?;
        let untrusted = |source| IdentityError::Untrusted {
            cert: files.cert.clone(),
            ca: files.ca.clone(),
            source,
        };
        tls::verify_own(&roots, &certified.cert, &member.peer).map_err(untrusted)?;
        let authority = authority_of(&trusted, &certified.cert, &member.peer);
        let authority = authority.expect("one of the authorities has issued it");
        if member.peer == Peer::Coordinator && !certified.cert.contains(&authority) {
            // A joining host knows only the authority's fingerprint, so the chain must include its certificate.
            certified.cert.push(authority.clone());
        }
        Ok(Self {
            roots,
            certified: Arc::new(certified),
            reset,
            cert: files.cert.clone(),
            member,
            authority: fingerprint_of(&authority),
            validity,
        })
    }

    /// The peer that the certificate names.
    pub fn peer(&self) -> &Peer {
        &self.member.peer
    }

    /// Everything that the certificate states.
    pub fn peer_identity(&self) -> &PeerIdentity {
        &self.member
    }

    /// Fingerprint of the issuing authority.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// Validity period of the certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }
}

/// Checks the validity period first, because a wrong clock is the usual cause of errors.
fn check_time(files: &TlsFiles, validity: &Validity) -> Result<(), IdentityError> {
    let now = SystemTime::now();
    let (is_over, by) = match (
        now.duration_since(validity.until),
        validity.from.duration_since(now),
    ) {
        (Ok(over), _) if !over.is_zero() => (true, over),
        (_, Ok(ahead)) if !ahead.is_zero() => (false, ahead),
        _ => return Ok(()),
    };
    let cert = files.cert.clone();
    Err(IdentityError::NotValidNow { cert, is_over, by })
}

fn validity_problem(is_over: bool, by: Duration) -> String {
    let by = Span::from_secs(by.as_secs());
    match is_over {
        true => format!("has expired {by} ago by this host's clock"),
        false => format!("is not valid before {by} from now by this host's clock"),
    }
}

/// The trusted authority that issued a certificate, directly or not.
fn authority_of(
    trusted: &[CertificateDer<'static>],
    chain: &[CertificateDer<'_>],
    peer: &Peer,
) -> Option<CertificateDer<'static>> {
    let mut trusted = trusted.iter();
    let found = trusted.find(|authority| {
        let mut roots = RootCertStore::empty();
        let added = roots.add((*authority).clone());
        added.is_ok() && tls::verify_own(&Arc::new(roots), chain, peer).is_ok()
    });
    found.cloned()
}

fn load_roots(
    files: &TlsFiles,
    trusted: &[CertificateDer<'static>],
) -> Result<RootCertStore, IdentityError> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.clone()).map_err(|source| {
            let path = files.ca.clone();
            IdentityError::Authority { path, source }
        })?;
    }
    Ok(roots)
}

/// Loads all certificates of a file, at least one.
fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let error = |source| IdentityError::Pem {
        path: path.to_owned(),
        what: "certificate",
        source,
    };
    let text = files::read_public(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(error)?;
    if all.is_empty() {
        return Err(error(pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn load_key(files: &TlsFiles) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let text = files::read_private(&files.key)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|source| IdentityError::Pem {
        path: files.key.clone(),
        what: "private key",
        source,
    })
}

fn key_error(files: &TlsFiles, source: rustls::Error) -> IdentityError {
    if matches!(
        source,
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)
    ) {
        return IdentityError::Mismatch {
            cert: files.cert.clone(),
            key: files.key.clone(),
        };
    }
    let path = files.key.clone();
    IdentityError::Key { path, source }
}
