//! The API's certificate: made or read at the start, and again while the coordinator runs, before it expires and if its
//! files have changed. Existing connections keep theirs.
//!
//! The cluster's authority issues it unless the config names files. During a rollover it is the authority that issued
//! the coordinator's own certificate, because callers know that one. `cert_renewal` drives the renewal.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_transport::files::{read_private, read_public};
use sluice_transport::{Authority, HttpsServer, TlsFiles, https, names_issuer};
use tokio::sync::watch;

use super::{IdentityError, first_in, rollover};
use crate::config::HttpTls;

/// The API's certificate that is shown now, and its source.
pub(crate) struct HttpCertificate {
    source: CertificateSource,
    seen: FileContents,
    renew_at: SystemTime,
    shown: watch::Sender<Arc<HttpsServer>>,
}

#[derive(Clone)]
enum CertificateSource {
    Cluster {
        files: TlsFiles,
        names: Vec<String>,
        ttl: Duration,
    },
    Files {
        cert: PathBuf,
        key: PathBuf,
        users: PathBuf,
    },
}

/// Contents of the files when the certificate was made or read.
#[derive(PartialEq, Eq)]
struct FileContents(Vec<String>);

impl CertificateSource {
    fn of(config: &HttpTls, files: &TlsFiles, address: IpAddr, ttl: Duration) -> Self {
        match config {
            HttpTls::Cluster { names } => CertificateSource::Cluster {
                files: files.clone(),
                names: called(address, names),
                ttl,
            },
            HttpTls::Files {
                cert,
                key,
                users_ca,
            } => CertificateSource::Files {
                cert: cert.clone(),
                key: key.clone(),
                users: users_ca.as_ref().unwrap_or(&files.ca).clone(),
            },
        }
    }

    /// Reads the files. One that cannot be read counts as empty: the last usable version stays in force.
    fn look(&self) -> FileContents {
        let texts = match self {
            CertificateSource::Cluster { files, .. } => {
                vec![read_public(&files.ca), read_public(&files.cert)]
            }
            CertificateSource::Files { cert, key, users } => {
                vec![read_public(cert), read_private(key), read_public(users)]
            }
        };
        FileContents(texts.into_iter().map(Result::unwrap_or_default).collect())
    }

    fn make(&self) -> Result<HttpsServer, IdentityError> {
        Ok(match self {
            CertificateSource::Cluster { files, names, ttl } => {
                https::server_from_authority(&known(files)?, &files.ca, names, *ttl)?
            }
            CertificateSource::Files { cert, key, users } => {
                https::server_from_files(cert, key, users)?
            }
        })
    }
}

/// Returns the authority that callers know: the one that issued the coordinator's own certificate.
fn known(files: &TlsFiles) -> Result<Authority, IdentityError> {
    let own = first_in(&files.cert)?;
    let mut keys = rollover::keys(files)?;
    let known = keys.iter().position(|(ca, _)| {
        own.as_ref()
            .is_some_and(|certificate| names_issuer(certificate, ca))
    });
    if keys.is_empty() {
        let dir = files.ca.parent().unwrap_or(&files.ca).to_owned();
        return Err(IdentityError::NoHttpCertificate { dir });
    }
    // If none of them did, the first one, which issues.
    Ok(keys.swap_remove(known.unwrap_or(0)).1)
}

/// Returns the names of the API: this machine's, the address that it listens on, and the configured ones.
fn called(address: IpAddr, given: &[String]) -> Vec<String> {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|host| host.into_string().ok());
    let listened = (!address.is_unspecified()).then(|| address.to_string());
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let all = own.into_iter().chain(host).chain(listened);
    let mut all: Vec<String> = all.chain(given.iter().cloned()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl HttpCertificate {
    /// Makes or reads the certificate that the config asks for; `files` are the coordinator's own, and `ttl` is the
    /// lifetime of an issued one.
    ///
    /// # Errors
    /// If there is no authority, a name is invalid, or a file cannot be used.
    pub(crate) fn new(
        config: &HttpTls,
        files: &TlsFiles,
        address: IpAddr,
        ttl: Duration,
    ) -> Result<Self, IdentityError> {
        let source = CertificateSource::of(config, files, address, ttl);
        let seen = source.look();
        let made = source.make()?;
        Ok(Self {
            source,
            seen,
            renew_at: made.validity.renew_at(),
            shown: watch::channel(Arc::new(made)).0,
        })
    }

    /// Returns the shown certificate, with its changes.
    pub(crate) fn shown(&self) -> watch::Receiver<Arc<HttpsServer>> {
        self.shown.subscribe()
    }

    /// Renews or reloads the certificate if the files have changed or it is time. Returns whether it did.
    ///
    /// # Errors
    /// If that fails; the last one is still shown.
    pub(crate) fn keep(&mut self) -> Result<bool, IdentityError> {
        let seen = self.source.look();
        let issues = matches!(self.source, CertificateSource::Cluster { .. });
        let is_due = issues && self.renew_at <= SystemTime::now();
        if seen == self.seen && !is_due {
            return Ok(false);
        }
        let made = self.source.make()?;
        self.seen = seen;
        self.renew_at = made.validity.renew_at();
        self.shown.send_replace(Arc::new(made));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{files_in, init, key_of, tls_dir};
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::Path;

    const TTL: Duration = Duration::from_secs(3600);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn cluster(data: &Path) -> TlsFiles {
        init(data).unwrap();
        files_in(&tls_dir(data))
    }

    fn issued(files: &TlsFiles, ttl: Duration) -> HttpCertificate {
        let names = HttpTls::Cluster { names: Vec::new() };
        HttpCertificate::new(&names, files, HERE, ttl).unwrap()
    }

    #[test]
    fn it_is_issued_anew_when_it_is_time_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let files = cluster(dir.path());
        assert!(!issued(&files, TTL).keep().unwrap());
        // A certificate that has just expired.
        let mut certificate = issued(&files, Duration::ZERO);
        let shown = certificate.shown();
        let first = Arc::clone(&shown.borrow());
        assert!(certificate.keep().unwrap());
        assert!(!Arc::ptr_eq(&first, &shown.borrow()));
    }

    #[test]
    fn another_authority_takes_over_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let files = cluster(dir.path());
        let old = Authority::load(&files.ca, &key_of(&files)).unwrap();
        let mut certificate = issued(&files, TTL);
        let new = rollover::rotate(dir.path()).unwrap();
        assert!(certificate.keep().unwrap());
        assert_eq!(known(&files).unwrap().fingerprint(), old.fingerprint());
        rollover::retire(dir.path(), None, false).unwrap();
        assert!(certificate.keep().unwrap());
        assert_eq!(known(&files).unwrap().fingerprint(), new);
        assert!(!certificate.keep().unwrap());
        fs::remove_file(key_of(&files)).unwrap();
        let error = known(&files).err().unwrap().to_string();
        assert!(error.contains("configure `http_tls`"), "{error}");
    }

    #[test]
    fn files_are_read_anew_when_they_change_and_the_last_good_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let files = cluster(dir.path());
        let authority = Authority::load(&files.ca, &key_of(&files)).unwrap();
        let [cert, key] = ["api.pem", "api.key"].map(|name| dir.path().join(name));
        let write = || {
            let issued = https::issue_server(&authority, &["coord-1".into()], TTL).unwrap();
            issued.write(&cert, &key).unwrap();
        };
        write();
        let tls = HttpTls::Files {
            cert: cert.clone(),
            key: key.clone(),
            users_ca: None,
        };
        let mut certificate = HttpCertificate::new(&tls, &files, HERE, TTL).unwrap();
        let shown = certificate.shown();
        let first = Arc::clone(&shown.borrow());
        assert!(!certificate.keep().unwrap());
        let other = https::issue_server(&authority, &["coord-1".into()], TTL).unwrap();
        fs::write(&cert, &other.cert_pem).unwrap();
        assert!(certificate.keep().is_err(), "the key is of the one before");
        assert!(Arc::ptr_eq(&first, &shown.borrow()));
        write();
        assert!(certificate.keep().unwrap());
        assert!(!Arc::ptr_eq(&first, &shown.borrow()));
    }
}
