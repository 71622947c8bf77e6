//! Who issues certificates while the coordinator runs: the authority's key, which authorities are trusted, how long a
//! certificate is good for, and where hosts are told to dial. Shared by sessions, joining hosts and the API.
//!
//! It says what a certificate looks like and never who may have one: that is the core's.

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

/// Where the files are, and the terms.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The coordinator's own certificate, its key and the authorities that are trusted.
    pub files: TlsFiles,
    /// The key of the authority that issues; there need be none.
    pub authority_key: PathBuf,
    /// Written into certificates.
    pub cluster: ClusterId,
    /// How long a certificate is good for.
    pub ttl: Duration,
    /// Where hosts dial at first, as HOST:PORT.
    pub addresses: Vec<String>,
}

/// Issues. Clones are the same.
#[derive(Clone, Debug)]
pub struct Issuance(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    terms: Terms,
    /// Where hosts dial now.
    addresses: RwLock<Vec<String>>,
    trust: watch::Sender<Arc<Trust>>,
    /// Under which authority each node came last.
    seen: Mutex<BTreeMap<NodeName, Fingerprint>>,
}

/// What is trusted and who issues, at one moment.
pub struct Trust {
    /// The authorities that are trusted, in PEM form.
    pub authorities: String,
    certificates: Vec<CertificateDer<'static>>,
    /// The one under which the coordinator's own certificate was issued: by it a joining host knows the coordinator.
    pub shown: Fingerprint,
    /// The one that issues, where its key is here.
    issuing: Option<Authority>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

/// Why nothing is issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The key is elsewhere.
    #[error(
        "this coordinator has no key of the cluster's authority: the certificate must come from where the key is"
    )]
    NoKey,
    /// The request is none.
    #[error(transparent)]
    Request(#[from] SigningRequestError),
    /// The certificate could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key is not that of an authority which is trusted.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

impl Trust {
    /// Reads the files; `own` is the coordinator's identity, read from the same.
    ///
    /// # Errors
    /// Where one cannot be read, or the key belongs to none of the authorities.
    pub fn read(terms: &Terms, own: &Identity) -> Result<Self, TrustError> {
        let authorities = read_public(&terms.files.ca)?;
        let issuing = match terms.authority_key.exists() {
            true => {
                let authority = Authority::load(&terms.files.ca, &terms.authority_key)?;
                Some(authority.with_cluster(terms.cluster.clone()))
            }
            false => None,
        };
        Ok(Self {
            // What is no certificate was found by whoever read the coordinator's identity.
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

    /// What a node is told.
    pub fn word(&self) -> CertificateMessage {
        CertificateMessage::Authorities {
            pem: self.authorities.clone(),
            issuing: self.issuing.as_ref().map(Authority::fingerprint),
        }
    }
}

impl Issuance {
    /// Over what is trusted now.
    pub fn new(mut terms: Terms, trust: Trust) -> Self {
        let (trust, _) = watch::channel(Arc::new(trust));
        let seen = Mutex::new(read_seen(&terms.files));
        Self(Arc::new(Shared {
            addresses: RwLock::new(std::mem::take(&mut terms.addresses)),
            terms,
            trust,
            seen,
        }))
    }

    /// Has hosts that join dial there from now on.
    pub fn advertise(&self, addresses: Vec<String>) {
        let told = self.0.addresses.write();
        *told.unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Under which authority each node came last.
    pub fn seen(&self) -> BTreeMap<NodeName, Fingerprint> {
        self.lock_seen().clone()
    }

    /// Notes under which authority a node has come.
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
        // The map is whole between any two statements that could panic.
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The terms.
    pub fn terms(&self) -> &Terms {
        &self.0.terms
    }

    /// What is trusted, and how it changes.
    pub fn trust(&self) -> watch::Receiver<Arc<Trust>> {
        self.0.trust.subscribe()
    }

    /// Trusts this from now on.
    pub fn change(&self, trust: Trust) {
        self.0.trust.send_replace(Arc::new(trust));
    }

    /// Whether the authority's key is here.
    pub fn can_issue(&self) -> bool {
        self.0.trust.borrow().can_issue()
    }

    /// A certificate for the key that signed the request.
    ///
    /// # Errors
    /// Where the authority's key is elsewhere, or the request is none.
    pub fn certify(
        &self,
        request: &[u8],
        node: NodeName,
        claim: NodeClaim,
    ) -> Result<Credentials, IssueError> {
        let request = SigningRequest::read(request)?;
        self.certify_checked(&request, node, claim)
    }

    /// A certificate for the key of a request that was read already.
    ///
    /// # Errors
    /// Where the authority's key is elsewhere.
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
        let told = self.0.addresses.read();
        told.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The line by which a host joins with this secret.
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
