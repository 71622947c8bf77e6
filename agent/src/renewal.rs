//! Renews this host's certificate while it is linked: the coordinator sends the trusted authorities, and the
//! agent requests a new certificate after two thirds of its lifetime, or if another authority issues now. The
//! link stays; the next dial uses the new certificate.
//!
//! Certificates named in the config are renewed by the admin and read again before each dial.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use sluice_common::credential::Fingerprint;
use sluice_common::error_chain::error_chain;
use sluice_common::join::{CertificateMessage, CertificateRequest};
use sluice_common::wire::StreamKind;
use sluice_transport::{
    Connection, Dialer, Identity, IdentityError, SigningRequest, TlsFiles, TransportError,
};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::credentials_dir::CredentialsDir;

/// Time until the next request after a rejected or failed one.
const RETRY: Duration = Duration::from_secs(600);

/// Longest time without a check of the wall clock, which may be set.
const LOOK: Duration = Duration::from_secs(600);

/// Jitter in milliseconds, so that the hosts of a cluster do not request at one moment when the authority
/// changes.
const SPREAD_MILLIS: u64 = 3000;

/// Origin of this host's certificate.
#[derive(Clone, Debug)]
pub(crate) enum CertificateSource {
    Joined(CredentialsDir),
    /// Files that the config names.
    Given(TlsFiles),
}

impl CertificateSource {
    fn files(&self) -> TlsFiles {
        match self {
            Self::Joined(kept) => kept.files(),
            Self::Given(files) => files.clone(),
        }
    }

    pub(crate) fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::load(&self.files())
    }
}

/// Dials with the current certificate.
pub(crate) struct CertifiedDialer {
    source: CertificateSource,
    dialer: Dialer,
    #[cfg(test)]
    until: SystemTime,
}

/// Why the certificate cannot be used to dial.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl CertifiedDialer {
    pub(crate) fn open(source: CertificateSource) -> Result<Self, DialError> {
        let identity = source.identity()?;
        Ok(Self {
            dialer: Dialer::new(&identity)?,
            #[cfg(test)]
            until: identity.validity().until,
            source,
        })
    }

    /// Reads the certificate again. If it is unusable, the old one stays.
    pub(crate) fn refresh(&mut self) -> &Dialer {
        match Self::open(self.source.clone()) {
            Ok(dialer_source) => *self = dialer_source,
            Err(error) => warn!(
                "the certificate that was read last stays in use: {}",
                error_chain(&error)
            ),
        }
        &self.dialer
    }

    pub(crate) fn source(&self) -> &CertificateSource {
        &self.source
    }

    /// Expiry of the certificate.
    #[cfg(test)]
    pub(crate) fn until(&self) -> SystemTime {
        self.until
    }
}

/// Renews the certificate of a linked host as long as the link lasts.
pub(crate) async fn keep(
    connection: &Connection,
    source: &CertificateSource,
) -> Result<Infallible, TransportError> {
    match source {
        CertificateSource::Joined(kept) => renew(connection, kept).await,
        CertificateSource::Given(files) => {
            warn_of_end(source, files);
            std::future::pending().await
        }
    }
}

fn warn_of_end(source: &CertificateSource, files: &TlsFiles) {
    let Ok(identity) = source.identity() else {
        return;
    };
    let validity = identity.validity();
    if validity.renew_at() > SystemTime::now() {
        return;
    }
    let left = validity.until.duration_since(SystemTime::now());
    let days = left.unwrap_or_default().as_secs() / 86_400;
    warn!(
        "the certificate in {} is valid for {days} more days and the agent does not renew it: replace it",
        files.cert.display()
    );
}

async fn renew(
    connection: &Connection,
    kept: &CredentialsDir,
) -> Result<Infallible, TransportError> {
    let (mut out, mut words) = connection.open().await?;
    out.send(&StreamKind::Certificates).await?;
    let mut asked: Option<String> = None;
    let mut due = due_at(kept, None);
    loop {
        let wait = due.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::select! {
            word = words.next::<CertificateMessage>() => {
                let word = word?.ok_or(TransportError::StreamReset)?;
                due = heard(kept, word, &mut asked);
            }
            () = sleep(wait.min(LOOK)) => {
                if due > SystemTime::now() {
                    continue;
                }
                due = SystemTime::now() + RETRY;
                match SigningRequest::make() {
                    Ok((key, request)) => {
                        asked = Some(key);
                        out.send(&CertificateRequest { request }).await?;
                    }
                    Err(error) => warn!("the certificate cannot be renewed: {}", error_chain(&error)),
                }
            }
        }
    }
}

/// Handles a message; returns when to request next.
fn heard(
    kept: &CredentialsDir,
    word: CertificateMessage,
    asked: &mut Option<String>,
) -> SystemTime {
    match word {
        CertificateMessage::Authorities { pem, issuing } => match kept.trust(&pem) {
            Ok(()) => due_at(kept, issuing),
            Err(error) => later(&format!(
                "the cluster's authorities cannot be stored: {}",
                error_chain(&error)
            )),
        },
        CertificateMessage::Certificate(given) => {
            let Some(key) = asked.take() else {
                return later("a certificate came that was not asked for");
            };
            let kept_now = kept.trust(&given.authorities);
            match kept_now.and_then(|()| kept.renew(&given, &key)) {
                Ok(()) => {
                    info!("certificate renewed: it is used from the next link on");
                    due_at(kept, None)
                }
                Err(error) => later(&format!(
                    "the certificate cannot be renewed: {}",
                    error_chain(&error)
                )),
            }
        }
        CertificateMessage::Refused { message } => {
            asked.take();
            later(&format!(
                "the coordinator does not renew the certificate: {message}"
            ))
        }
    }
}

fn later(why: &str) -> SystemTime {
    warn!("{why}");
    SystemTime::now() + RETRY
}

/// When to renew: at two thirds of the lifetime, or soon if another authority issues now.
fn due_at(kept: &CredentialsDir, issuing: Option<Fingerprint>) -> SystemTime {
    let identity = match kept.identity() {
        Ok(identity) => identity,
        Err(error) => return later(&error_chain(&error)),
    };
    match issuing {
        Some(issuing) if issuing != identity.authority() => {
            let spread = getrandom::u64().unwrap_or(0) % SPREAD_MILLIS;
            SystemTime::now() + Duration::from_millis(spread)
        }
        Some(_) | None => identity.validity().renew_at(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials_dir::tests::issued;
    use sluice_transport::Authority;

    #[test]
    fn another_authority_that_issues_makes_a_renewal_due_and_a_renewal_is_kept_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let kept = CredentialsDir::new(dir.path());
        let [old, new] = ["c1", "c1"].map(|name| Authority::create(name).unwrap());
        let (given, key) = issued(&old, "n");
        kept.keep(&given, &key, &[]).unwrap();
        assert!(
            due_at(&kept, Some(old.fingerprint())) > SystemTime::now() + Duration::from_secs(60)
        );

        let mut asked = None;
        let both = new.cert_pem() + &old.cert_pem();
        let word = CertificateMessage::Authorities {
            pem: both.clone(),
            issuing: Some(new.fingerprint()),
        };
        let due = heard(&kept, word, &mut asked);
        assert!(due < SystemTime::now() + Duration::from_secs(10));
        let (mut given, key) = issued(&new, "n");
        given.authorities = both;
        asked = Some(key);
        heard(&kept, CertificateMessage::Certificate(given), &mut asked);
        assert_eq!(kept.identity().unwrap().authority(), new.fingerprint());
    }

    #[tokio::test]
    async fn a_certificate_that_is_broken_later_leaves_the_one_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let kept = CredentialsDir::new(dir.path());
        let authority = Authority::create("c1").unwrap();
        let (given, key) = issued(&authority, "n");
        kept.keep(&given, &key, &[]).unwrap();
        let mut dialer_source =
            CertifiedDialer::open(CertificateSource::Joined(kept.clone())).unwrap();
        let until = dialer_source.until();
        std::fs::write(kept.files().cert, "garbage").unwrap();
        dialer_source.refresh();
        assert_eq!(dialer_source.until(), until);
    }
}
