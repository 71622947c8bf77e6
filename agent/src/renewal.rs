//! This host's certificate while it is linked: which authorities are to be trusted is told from the other end, and the
//! next certificate is asked for when two thirds of this one's life are over, or another authority issues. The link
//! lives on; the next dial shows the new one.
//!
//! Certificates that the config names are somebody else's to renew: they are read anew before each dial.

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

use crate::kept::Kept;

/// After a request that was refused or could not be stored.
const RETRY: Duration = Duration::from_secs(600);

/// Longest time without a look at the clock, which somebody may set.
const LOOK: Duration = Duration::from_secs(600);

/// So that a cluster whose authority changes does not ask in one moment, in milliseconds.
const SPREAD_MILLIS: u64 = 3000;

/// Where this host's certificate comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Joined(Kept),
    /// From files that the config names.
    Given(TlsFiles),
}

impl Source {
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

/// Dials with the certificate as it is now.
pub(crate) struct Door {
    source: Source,
    dialer: Dialer,
    #[cfg(test)]
    until: SystemTime,
}

/// Why there is nothing to dial with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl Door {
    pub(crate) fn open(source: Source) -> Result<Self, DoorError> {
        let identity = source.identity()?;
        Ok(Self {
            dialer: Dialer::new(&identity)?,
            #[cfg(test)]
            until: identity.validity().until,
            source,
        })
    }

    /// Reads the certificate anew. One that cannot be used leaves the earlier one in its place.
    pub(crate) fn refresh(&mut self) -> &Dialer {
        match Self::open(self.source.clone()) {
            Ok(door) => *self = door,
            Err(error) => warn!(
                "the certificate that was read last is used on: {}",
                error_chain(&error)
            ),
        }
        &self.dialer
    }

    /// Where the certificate comes from.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Until when it is good.
    #[cfg(test)]
    pub(crate) fn until(&self) -> SystemTime {
        self.until
    }
}

/// Keeps the certificate of a linked host new, for as long as the link lasts.
pub(crate) async fn keep(
    connection: &Connection,
    source: &Source,
) -> Result<Infallible, TransportError> {
    match source {
        Source::Joined(kept) => renew(connection, kept).await,
        Source::Given(files) => {
            warn_of_end(source, files);
            std::future::pending().await
        }
    }
}

fn warn_of_end(source: &Source, files: &TlsFiles) {
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
        "the certificate in {} is good for {days} days more and is not renewed from here: put a new one in its place",
        files.cert.display()
    );
}

async fn renew(connection: &Connection, kept: &Kept) -> Result<Infallible, TransportError> {
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
                    Err(error) => warn!("no new certificate: {}", error_chain(&error)),
                }
            }
        }
    }
}

/// What follows from a word: when to ask next.
fn heard(kept: &Kept, word: CertificateMessage, asked: &mut Option<String>) -> SystemTime {
    match word {
        CertificateMessage::Authorities { pem, issuing } => match kept.trust(&pem) {
            Ok(()) => due_at(kept, issuing),
            Err(error) => later(&format!(
                "the cluster's authorities cannot be kept: {}",
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
                    info!("certificate renewed: the next link shows it");
                    due_at(kept, None)
                }
                Err(error) => later(&format!("no new certificate: {}", error_chain(&error))),
            }
        }
        CertificateMessage::Refused { message } => {
            asked.take();
            later(&format!(
                "the coordinator gives no new certificate: {message}"
            ))
        }
    }
}

fn later(why: &str) -> SystemTime {
    warn!("{why}");
    SystemTime::now() + RETRY
}

/// When the certificate is to be renewed: at two thirds of its life, or soon where another authority issues now.
fn due_at(kept: &Kept, issuing: Option<Fingerprint>) -> SystemTime {
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
    use crate::kept::tests::issued;
    use sluice_transport::Authority;

    #[test]
    fn another_authority_that_issues_makes_a_renewal_due_and_a_renewal_is_kept_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::new(dir.path());
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
        let kept = Kept::new(dir.path());
        let authority = Authority::create("c1").unwrap();
        let (given, key) = issued(&authority, "n");
        kept.keep(&given, &key, &[]).unwrap();
        let mut door = Door::open(Source::Joined(kept.clone())).unwrap();
        let until = door.until();
        std::fs::write(kept.files().cert, "garbage").unwrap();
        door.refresh();
        assert_eq!(door.until(), until);
    }
}
