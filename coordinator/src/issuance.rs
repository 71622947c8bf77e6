//! Issues certificates while the coordinator runs. Holds the authority's key, the trusted authorities, the lifetime of
//! certificates and the addresses that hosts dial; shared by sessions, joining hosts and the API.
//!
//! The core decides who gets a certificate; this module decides what it contains.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use sluice_common::credential::{Fingerprint, NodeClaim};
use sluice_common::id::{ClusterId, NodeName};
use sluice_common::join::{CertificateMessage, Credentials, JoinSecret};
use sluice_transport::files::read_public;
use sluice_transport::{
    Authority, AuthorityError, CertificateDer, FileError, Identity, JoinLine, NodeCertificateSpec,
    SigningRequest, SigningRequestError, TlsFiles, fingerprint_of, names_issuer,
    parse_certificates,
};
use tokio::sync::watch;

use crate::identity::read_seen;

/// Paths and settings of a [`CertificateIssuer`].
#[derive(Clone, Debug)]
pub struct IssuanceConfig {
    /// The coordinator's own certificate, its key and the trusted authorities.
    pub files: TlsFiles,
    /// Key of the issuing authority; the file may be absent.
    pub authority_key: PathBuf,
    /// Cluster id, written into certificates.
    pub cluster: ClusterId,
    /// Lifetime of a certificate.
    pub ttl: Duration,
    /// Addresses (HOST:PORT) for the first connection of a host.
    pub addresses: Vec<String>,
}

/// Issues certificates. Clones share their state.
#[derive(Clone, Debug)]
pub struct CertificateIssuer(Arc<IssuanceShared>);

#[derive(Debug)]
struct IssuanceShared {
    terms: IssuanceConfig,
    /// Current addresses for hosts to dial.
    addresses: RwLock<Vec<String>>,
    trust: watch::Sender<Arc<Trust>>,
    /// Authority under which each node connected last.
    seen: Mutex<BTreeMap<NodeName, Fingerprint>>,
}

/// The trusted and the issuing authorities at one moment.
pub struct Trust {
    /// Trusted authorities in PEM form.
    pub authorities: String,
    certificates: Vec<CertificateDer<'static>>,
    /// Authority that issued the coordinator's own certificate; a joining host checks it.
    pub shown: Fingerprint,
    /// Issuing authority, if its key is here.
    issuing: Option<Authority>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

/// Why no certificate is issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The authority's key is elsewhere.
    #[error(
        "this coordinator has no key of the cluster's authority: the certificate must come from where the key is"
    )]
    NoKey,
    /// The certificate request is malformed.
    #[error(transparent)]
    Request(#[from] SigningRequestError),
    /// The certificate could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(transparent)]
    File(#[from] FileError),
    /// The key belongs to none of the trusted authorities.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

impl Trust {
    /// Reads the files; `own` is the coordinator's identity, read from the same files.
    ///
    /// # Errors
    /// If a file cannot be read, or the key belongs to none of the authorities.
    pub fn read(terms: &IssuanceConfig, own: &Identity) -> Result<Self, TrustError> {
        let authorities = read_public(&terms.files.ca)?;
        let issuing = match terms.authority_key.exists() {
            true => {
                let authority = Authority::load(&terms.files.ca, &terms.authority_key)?;
                Some(authority.with_cluster(terms.cluster.clone()))
            }
            false => None,
        };
        Ok(Self {
            // The code that reads the coordinator's identity rejects invalid certificates.
            certificates: parse_certificates(&authorities).unwrap_or_default(),
            authorities,
            shown: own.authority(),
            issuing,
        })
    }

    /// Whether the authority's key is here.
    pub fn can_issue(&self) -> bool {
        self.issuing.is_some()
    }

    /// Returns the authorities as they are sent to nodes.
    pub fn word(&self) -> CertificateMessage {
        CertificateMessage::Authorities {
            pem: self.authorities.clone(),
            issuing: self.issuing.as_ref().map(Authority::fingerprint),
        }
    }
}

impl CertificateIssuer {
    /// Starts with the authorities in `trust`.
    pub fn new(mut terms: IssuanceConfig, trust: Trust) -> Self {
        let (trust, _) = watch::channel(Arc::new(trust));
        let seen = Mutex::new(read_seen(&terms.files));
        Self(Arc::new(IssuanceShared {
            addresses: RwLock::new(std::mem::take(&mut terms.addresses)),
            terms,
            trust,
            seen,
        }))
    }

    /// Replaces the addresses that joining hosts dial.
    pub fn advertise(&self, addresses: Vec<String>) {
        let reported = self.0.addresses.write();
        *reported.unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Returns the authority under which each node connected last.
    pub fn seen(&self) -> BTreeMap<NodeName, Fingerprint> {
        self.lock_seen().clone()
    }

    /// Records the authority under which a node connected.
    pub fn note(&self, node: &NodeName, certificate: &CertificateDer<'_>) {
        let trust = Arc::clone(&self.0.trust.borrow());
        let issuer = trust
            .certificates
            .iter()
            .find(|ca| names_issuer(certificate, ca));
        if let Some(issuer) = issuer {
            self.lock_seen()
                .insert(node.clone(), fingerprint_of(issuer));
        }
    }

    /// Forgets all nodes but these.
    pub fn forget_others(&self, nodes: &[NodeName]) {
        self.lock_seen().retain(|node, _| nodes.contains(node));
    }

    fn lock_seen(&self) -> MutexGuard<'_, BTreeMap<NodeName, Fingerprint>> {
        // No statement that could panic leaves the map half-changed.
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The terms under which certificates are issued.
    pub fn terms(&self) -> &IssuanceConfig {
        &self.0.terms
    }

    /// Returns the authorities, and their changes.
    pub fn trust(&self) -> watch::Receiver<Arc<Trust>> {
        self.0.trust.subscribe()
    }

    /// Replaces the authorities.
    pub fn change(&self, trust: Trust) {
        self.0.trust.send_replace(Arc::new(trust));
    }

    /// Whether the authority's key is here.
    pub fn can_issue(&self) -> bool {
        self.0.trust.borrow().can_issue()
    }

    /// Issues a certificate for the key that signed the request.
    ///
    /// # Errors
    /// If the authority's key is elsewhere, or the request is malformed.
    pub fn certify(
        &self,
        request: &[u8],
        node: NodeName,
        claim: NodeClaim,
    ) -> Result<Credentials, IssueError> {
        let request = SigningRequest::read(request)?;
        self.certify_checked(&request, node, claim)
    }

    /// Issues a certificate for the key of a checked request.
    ///
    /// # Errors
    /// If the authority's key is elsewhere.
    pub fn certify_checked(
        &self,
        request: &SigningRequest,
        node: NodeName,
        claim: NodeClaim,
    ) -> Result<Credentials, IssueError> {
        let trust = Arc::clone(&self.0.trust.borrow());
        let authority = trust.issuing.as_ref().ok_or(IssueError::NoKey)?;
        let ttl = self.0.terms.ttl;
        let certificate =
            authority.certify_node(request, &NodeCertificateSpec { node, claim, ttl })?;
        Ok(Credentials {
            certificate,
            authorities: trust.authorities.clone(),
        })
    }

    fn addresses(&self) -> Vec<String> {
        let reported = self.0.addresses.read();
        reported.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the join line that carries this secret.
    pub fn line(
        &self,
        secret: JoinSecret,
        node: Option<NodeName>,
        addresses: Vec<String>,
    ) -> JoinLine {
        let addresses = match addresses.is_empty() {
            true => self.addresses(),
            false => addresses,
        };
        JoinLine {
            addresses,
            authority: self.0.trust.borrow().shown,
            secret,
            node,
        }
    }
}
