//! Stores the credentials from joining: the certificate with its key, the trusted authorities, and the coordinators'
//! addresses. They are in the state directory, written at joining and renewal, read at the start and before each dial.
//!
//! ```text
//! STATE_DIR/tls/ca.pem     the authorities
//! STATE_DIR/tls/node.pem   certificate and key in one file, so that they always match
//! STATE_DIR/tls/join.json  the coordinators' addresses
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_common::join::Credentials;
use sluice_transport::files::{read_public, write_private, write_public};
use sluice_transport::{FileError, Identity, IdentityError, TlsFiles};

/// The files, which may be missing.
#[derive(Clone, Debug)]
pub(crate) struct CredentialsDir {
    state_dir: PathBuf,
}

/// Why they cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("cannot make {}", path.display())]
    Dir { path: PathBuf, source: io::Error },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("what the coordinator has issued cannot be used")]
    Unusable(#[source] IdentityError),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct JoinRecord {
    coordinators: Vec<String>,
}

impl CredentialsDir {
    pub(crate) fn new(state_dir: &Path) -> Self {
        let state_dir = state_dir.to_owned();
        Self { state_dir }
    }

    fn dir(&self) -> PathBuf {
        self.state_dir.join("tls")
    }

    /// Whether this host has joined.
    pub(crate) fn is_there(&self) -> bool {
        self.dir().join("node.pem").exists()
    }

    /// The paths for the transport.
    pub(crate) fn files(&self) -> TlsFiles {
        let dir = self.dir();
        TlsFiles {
            ca: dir.join("ca.pem"),
            cert: dir.join("node.pem"),
            key: dir.join("node.pem"),
        }
    }

    /// Name and pool of this host, from its certificate.
    pub(crate) fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::load(&self.files())
    }

    /// Addresses of the coordinators at joining; empty if they cannot be read.
    pub(crate) fn coordinators(&self) -> Vec<String> {
        let text = read_public(&self.dir().join("join.json")).unwrap_or_default();
        let joined: JoinRecord = serde_json::from_str(&text).unwrap_or_default();
        joined.coordinators
    }

    /// Stores the result of joining. The certificate comes last, because it marks the host as joined.
    pub(crate) fn keep(
        &self,
        given: &Credentials,
        key_pem: &str,
        coordinators: &[String],
    ) -> Result<(), CredentialsError> {
        let dir = self.dir();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| CredentialsError::Dir {
            path: dir.clone(),
            source,
        })?;
        let coordinators = coordinators.to_vec();
        let joined = serde_json::to_string(&JoinRecord { coordinators });
        let joined = joined.expect("addresses are JSON");
        write_public(&dir.join("join.json"), &joined)?;
        self.trust(&given.authorities)?;
        self.renew(given, key_pem)
    }

    /// Replaces the trusted authorities.
    pub(crate) fn trust(&self, authorities: &str) -> Result<(), CredentialsError> {
        let path = self.files().ca;
        if read_public(&path).is_ok_and(|before| before == authorities) {
            return Ok(());
        }
        Ok(write_public(&path, authorities)?)
    }

    /// Replaces certificate and key atomically, after checking that they are usable.
    pub(crate) fn renew(&self, given: &Credentials, key_pem: &str) -> Result<(), CredentialsError> {
        let both = format!("{}{key_pem}", given.certificate);
        let trial = self.dir().join("node.pem.trial");
        write_private(&trial, &both)?;
        let files = TlsFiles {
            ca: self.files().ca,
            cert: trial.clone(),
            key: trial.clone(),
        };
        let good = Identity::load(&files).map_err(CredentialsError::Unusable);
        let _gone_already = fs::remove_file(&trial);
        good?;
        Ok(write_private(&self.files().cert, &both)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sluice_common::credential::NodeClaim;
    use sluice_common::id::NodeName;
    use sluice_transport::{Authority, NodeCertificateSpec, SigningRequest};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    /// A certificate of `authority` for the node, and its key.
    pub(crate) fn issued(authority: &Authority, node: &str) -> (Credentials, String) {
        let (key, request) = SigningRequest::make().unwrap();
        let request = SigningRequest::read(&request).unwrap();
        let terms = NodeCertificateSpec {
            node: NodeName::new(node).unwrap(),
            claim: NodeClaim::default(),
            ttl: Duration::from_secs(3600),
        };
        let given = Credentials {
            certificate: authority.certify_node(&request, &terms).unwrap(),
            authorities: authority.cert_pem(),
        };
        (given, key)
    }

    #[test]
    fn what_was_given_is_kept_for_its_owner_alone_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let kept = CredentialsDir::new(dir.path());
        assert!(!kept.is_there() && kept.coordinators().is_empty());
        let authority = Authority::create("c1").unwrap();
        let (given, key) = issued(&authority, "gpu-7");
        let at = ["coord-1:7443".to_owned()];
        kept.keep(&given, &key, &at).unwrap();
        assert!(kept.is_there());
        assert_eq!(kept.identity().unwrap().peer().to_string(), "node gpu-7");
        assert_eq!(kept.coordinators(), at);
        let mode = fs::metadata(kept.files().key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_certificate_that_cannot_be_used_takes_no_good_one_s_place() {
        let dir = tempfile::tempdir().unwrap();
        let kept = CredentialsDir::new(dir.path());
        let authority = Authority::create("c1").unwrap();
        let (given, key) = issued(&authority, "gpu-7");
        kept.keep(&given, &key, &[]).unwrap();
        let before = fs::read_to_string(kept.files().cert).unwrap();
        let (next, _) = issued(&authority, "gpu-7");
        let (foreign, foreign_key) = issued(&Authority::create("c1").unwrap(), "gpu-7");
        for (given, key) in [(&next, &key), (&foreign, &foreign_key)] {
            let error = kept.renew(given, key).unwrap_err();
            assert!(matches!(error, CredentialsError::Unusable(_)), "{error}");
        }
        assert_eq!(fs::read_to_string(kept.files().cert).unwrap(), before);
        assert!(!dir.path().join("tls/node.pem.trial").exists());
    }
}
