//! By which certificate callers know the API: made or read at the start, and made or read anew while the coordinator runs,
//! before it is over and whenever what it hangs on has changed. Connections that are made keep theirs.
//!
//! The cluster's authority issues it where the config names no files. While one authority takes over from another it is
//! the one that issued the coordinator's own, which is what callers have known so far. The keeper drives it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_transport::files::{read_private, read_public};
use sluice_transport::{Authority, HttpsServer, TlsFiles, https, names_issuer};
use tokio::sync::watch;

use super::{IdentityError, first_in, rollover};
use crate::config::HttpTls;

/// Where the API's certificate comes from, and the one that is shown now.
pub(crate) struct HttpCertificate {
    source: Source,
    seen: Seen,
    renew_at: SystemTime,
    shown: watch::Sender<Arc<HttpsServer>>,
}

#[derive(Clone)]
enum Source {
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

/// What the files said when the certificate was made or read.
#[derive(PartialEq, Eq)]
struct Seen(Vec<String>);

impl Source {
    fn of(config: &HttpTls, files: &TlsFiles, address: IpAddr, ttl: Duration) -> Self {
        match config {
            HttpTls::Cluster { names } => Source::Cluster {
                files: files.clone(),
                names: called(address, names),
                ttl,
            },
            HttpTls::Files {
                cert,
                key,
                users_ca,
            } => Source::Files {
                cert: cert.clone(),
                key: key.clone(),
                users: users_ca.as_ref().unwrap_or(&files.ca).clone(),
            },
        }
    }

    /// What cannot be read is as if it were empty: the last that could be used stays in force.
    fn look(&self) -> Seen {
        let texts = match self {
            Source::Cluster { files, .. } => vec![read_public(&files.ca), read_public(&files.cert)],
            Source::Files { cert, key, users } => {
                vec![read_public(cert), read_private(key), read_public(users)]
            }
        };
        Seen(texts.into_iter().map(Result::unwrap_or_default).collect())
    }

    fn make(&self) -> Result<HttpsServer, IdentityError> {
        Ok(match self {
            Source::Cluster { files, names, ttl } => {
                https::server_from_authority(&known(files)?, &files.ca, names, *ttl)?
            }
            Source::Files { cert, key, users } => https::server_from_files(cert, key, users)?,
        })
    }
}

/// The authority that callers know: the one that has issued the coordinator's own certificate.
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
    // Where none of them did, the one that issues: it is the first.
    Ok(keys.swap_remove(known.unwrap_or(0)).1)
}

/// The names by which the API is called: this machine's, the address that it listens on, and those that were given.
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
    /// As the config says; `files` are the coordinator's own, and `ttl` is how long a certificate that is issued here is
    /// good for.
    ///
    /// # Errors
    /// Where there is no authority, a name is none, or a file cannot be used.
    pub(crate) fn new(
        config: &HttpTls,
        files: &TlsFiles,
        address: IpAddr,
        ttl: Duration,
    ) -> Result<Self, IdentityError> {
        let source = Source::of(config, files, address, ttl);
        let seen = source.look();
        let made = source.make()?;
        Ok(Self {
            source,
            seen,
            renew_at: made.validity.renew_at(),
            shown: watch::channel(Arc::new(made)).0,
        })
    }

    /// What is shown, as it changes.
    pub(crate) fn shown(&self) -> watch::Receiver<Arc<HttpsServer>> {
        self.shown.subscribe()
    }

    /// Makes or reads it anew where the files have changed, or it is time. Whether it did.
    ///
    /// # Errors
    /// Where that cannot be done; the last one is still shown.
    pub(crate) fn keep(&mut self) -> Result<bool, IdentityError> {
        let seen = self.source.look();
        let issues = matches!(self.source, Source::Cluster { .. });
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
        // One that is over this moment.
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
