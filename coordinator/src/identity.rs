//! Makes and renews the cluster's certificates below the data directory: by `init`, or at a first start without
//! configured certificates.
//!
//! ```text
//! DATA_DIR/tls/ca.pem           authorities that every member trusts
//! DATA_DIR/tls/ca.key           key of the issuing authority; absent if the authority is elsewhere
//! DATA_DIR/tls/coordinator.pem  certificate shown to agents
//! DATA_DIR/tls/coordinator.key
//! DATA_DIR/tls/nodes.json       authority under which each node connected last
//! ```
//! The transport defines what certificates contain. [`rollover`] replaces one authority by another; [`http`] has the
//! API's certificate.

pub(crate) mod http;
pub mod rollover;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sluice_common::credential::Fingerprint;
use sluice_common::id::{ClusterId, NodeName};
use sluice_transport::files::{read_private, read_public, write_private, write_public};
use sluice_transport::{
    Authority, AuthorityError, CertificateDer, FileError, HttpsError, Identity,
    NodeCertificateSpec, Peer, TlsFiles, Validity, https, names_issuer, parse_certificates,
};

use crate::store::{DEFAULT_RETENTION, Recovered, Store, StoreError};

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The store, which knows the cluster's id, cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The authority did not issue the certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot make {}", path.display())]
    Dir { path: PathBuf, source: io::Error },
    /// There is no authority to issue a certificate for the API.
    #[error(
        "there is no authority in {} to issue a certificate for HTTP: configure `http_tls` with `cert` and `key`, or run \
         `sluice-coordinator init` with the same --data-dir first",
        dir.display()
    )]
    NoHttpCertificate { dir: PathBuf },
    /// TLS of the API could not be set up.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// There is no authority to issue with.
    #[error(
        "there is no authority's key in {}: run `sluice-coordinator init` with the same --data-dir first; where the cluster's \
         authority is an outside one, certificates come from there",
        dir.display()
    )]
    NoAuthority { dir: PathBuf },
    /// The configured certificates cannot be used.
    #[error(transparent)]
    Given(#[from] sluice_transport::IdentityError),
    /// The configured certificate belongs to a node.
    #[error("{} is the certificate of {peer}: the coordinator's must name the host `coordinator.sluice`", path.display())]
    NotOurs { path: PathBuf, peer: Peer },
    /// There are certificates already.
    #[error(
        "there are certificates in {} already, and they stay: for another authority use `sluice-coordinator ca rotate`, or \
         begin with an empty --data-dir",
        dir.display()
    )]
    Made { dir: PathBuf },
}

/// Lifetime of the coordinator's first certificate; it renews it while it runs.
const FIRST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// An external authority, and what it has issued.
#[derive(Clone, Debug)]
pub enum ExternalCa {
    /// Certificate and key of the authority: the coordinator issues with them.
    WithKey { ca_cert: PathBuf, ca_key: PathBuf },
    /// Certificate of the authority, and the coordinator's own: the coordinator issues nothing.
    Issued(TlsFiles),
}

/// Whether `data_dir` holds certificates.
pub(crate) fn is_made(data_dir: &Path) -> bool {
    tls_dir(data_dir).join("ca.pem").exists()
}

/// Returns the path of the authority's key: beside its certificate.
pub fn key_of(files: &TlsFiles) -> PathBuf {
    files.ca.with_extension("key")
}

fn files_in(dir: &Path) -> TlsFiles {
    TlsFiles {
        ca: dir.join("ca.pem"),
        cert: dir.join("coordinator.pem"),
        key: dir.join("coordinator.key"),
    }
}

fn tls_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

/// Opens the store in `data_dir`. If there are certificates but no store, the store was lost: the new one is of the
/// same cluster.
///
/// # Errors
/// If the store cannot be opened or made.
pub fn open_store(data_dir: &Path, retention: u64) -> Result<(Store, Recovered), StoreError> {
    let cluster = cluster_of(&files_in(&tls_dir(data_dir)));
    Store::open_of(data_dir, retention, cluster)
}

/// Makes the store, the cluster id and the certificates in `data_dir`; existing ones stay.
///
/// # Errors
/// If a coordinator runs on the directory, or it cannot be written.
pub fn init(data_dir: &Path) -> Result<ClusterId, IdentityError> {
    let (_store, recovered) = open_store(data_dir, DEFAULT_RETENTION)?;
    ensure(data_dir, &recovered.cluster)?;
    Ok(recovered.cluster)
}

/// Does as [`init`] with an external authority, whose files are copied.
///
/// # Errors
/// If there are certificates already, or those that are given do not belong together.
pub fn init_with(data_dir: &Path, outside: &ExternalCa) -> Result<ClusterId, IdentityError> {
    let (_store, recovered) = Store::open(data_dir, DEFAULT_RETENTION)?;
    let dir = tls_dir(data_dir);
    if dir.exists() {
        return Err(IdentityError::Made { dir });
    }
    let cluster = recovered.cluster.clone();
    in_draft(&dir, |draft| match outside {
        ExternalCa::WithKey { ca_cert, ca_key } => {
            let authority = Authority::load(ca_cert, ca_key)?.with_cluster(cluster);
            fill(draft, &authority)
        }
        ExternalCa::Issued(given) => copy(draft, given),
    })?;
    Ok(recovered.cluster)
}

fn copy(draft: &Path, given: &TlsFiles) -> Result<(), IdentityError> {
    let identity = Identity::load(given)?;
    if *identity.peer() != Peer::Coordinator {
        return Err(IdentityError::NotOurs {
            path: given.cert.clone(),
            peer: identity.peer().clone(),
        });
    }
    let files = files_in(draft);
    write_public(&files.ca, &read_public(&given.ca)?)?;
    write_public(&files.cert, &read_public(&given.cert)?)?;
    write_private(&files.key, &read_private(&given.key)?)?;
    Ok(())
}

/// Returns the coordinator's certificates in `data_dir`, and makes them if there are none.
///
/// # Errors
/// If they cannot be made.
pub fn ensure(data_dir: &Path, cluster: &ClusterId) -> Result<TlsFiles, IdentityError> {
    let dir = tls_dir(data_dir);
    if !dir.exists() {
        in_draft(&dir, |draft| {
            fill(draft, &Authority::create(cluster.as_str())?)
        })?;
    }
    Ok(files_in(&dir))
}

fn fill(draft: &Path, authority: &Authority) -> Result<(), IdentityError> {
    let files = files_in(draft);
    authority.write(&files.ca, &key_of(&files))?;
    let issued = authority.issue_coordinator_for(FIRST_TTL)?;
    issued.write(&files.cert, &files.key)?;
    Ok(())
}

/// Writes all files at once, by renaming their directory, so that a crash leaves no half of them.
fn in_draft(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<(), IdentityError>,
) -> Result<(), IdentityError> {
    let draft = dir.with_extension("new");
    let failed = |source| IdentityError::Dir {
        path: draft.clone(),
        source,
    };
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    make_dir(&draft)?;
    fill(&draft)?;
    fs::rename(&draft, dir).map_err(failed)
}

fn make_dir(dir: &Path) -> Result<(), IdentityError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| IdentityError::Dir {
            path: dir.to_owned(),
            source,
        })
}

/// Loads the authority whose key is beside its certificate.
fn authority(files: &TlsFiles) -> Result<Authority, IdentityError> {
    let key = key_of(files);
    if !key.exists() {
        let dir = files.ca.parent().unwrap_or(&files.ca).to_owned();
        return Err(IdentityError::NoAuthority { dir });
    }
    let authority = Authority::load(&files.ca, &key)?;
    Ok(match cluster_of(files) {
        Some(cluster) => authority.with_cluster(cluster),
        None => authority,
    })
}

/// Writes the certificate of an API user into `out`: `ca.pem`, `user.pem` and `user.key`, replacing existing files.
///
/// # Errors
/// If `name` is invalid, there is no authority, or `out` cannot be written.
pub fn issue_user(
    data_dir: &Path,
    name: &str,
    ttl: Duration,
    out: &Path,
) -> Result<(), IdentityError> {
    let files = files_in(&tls_dir(data_dir));
    let issued = https::issue_user(&authority(&files)?, name, ttl)?;
    make_dir(out)?;
    issued.write(&out.join("user.pem"), &out.join("user.key"))?;
    write_public(&out.join("ca.pem"), &read_public(&files.ca)?)?;
    Ok(())
}

/// Writes the certificate of a node into `out`: `ca.pem`, `node.pem` and `node.key`, replacing existing files.
///
/// # Errors
/// If there is no authority, or `out` cannot be written.
pub fn issue_node(
    data_dir: &Path,
    terms: &NodeCertificateSpec,
    out: &Path,
) -> Result<(), IdentityError> {
    let files = files_in(&tls_dir(data_dir));
    let issued = authority(&files)?.issue_node_with(terms)?;
    make_dir(out)?;
    issued.write(&out.join("node.pem"), &out.join("node.key"))?;
    write_public(&out.join("ca.pem"), &read_public(&files.ca)?)?;
    Ok(())
}

/// Returns the cluster that the coordinator's own certificate names, because the store is locked while a coordinator
/// runs.
fn cluster_of(files: &TlsFiles) -> Option<ClusterId> {
    let own = read_public(&files.cert).ok()?;
    let own = parse_certificates(&own).ok()?;
    sluice_transport::cluster_of(own.first()?)
}

/// Renews the coordinator's certificate for the same key if two thirds of its lifetime are over and the authority's key
/// is here. Returns whether it did.
///
/// # Errors
/// If a file cannot be read or written.
pub fn renew_own(
    files: &TlsFiles,
    cluster: &ClusterId,
    ttl: Duration,
) -> Result<bool, IdentityError> {
    let Some(own) = first_in(&files.cert)? else {
        return Ok(false);
    };
    let is_due =
        Validity::of(&own).is_some_and(|validity| validity.renew_at() <= SystemTime::now());
    if !is_due {
        return Ok(false);
    }
    let authority = rollover::keys(files)?.into_iter();
    let mut authority = authority.filter(|(ca, _)| names_issuer(&own, ca));
    let Some((_, authority)) = authority.next() else {
        return Ok(false);
    };
    certify_own(files, cluster, authority, ttl)?;
    Ok(true)
}

fn certify_own(
    files: &TlsFiles,
    cluster: &ClusterId,
    authority: Authority,
    ttl: Duration,
) -> Result<(), IdentityError> {
    let key = read_private(&files.key)?;
    let authority = authority.with_cluster(cluster.clone());
    write_public(&files.cert, &authority.renew_coordinator(&key, ttl)?)?;
    Ok(())
}

/// Returns the first certificate of a file. An invalid one is reported by the code that reads the identity.
fn first_in(path: &Path) -> Result<Option<CertificateDer<'static>>, IdentityError> {
    let certificates = parse_certificates(&read_public(path)?);
    Ok(certificates.ok().and_then(|all| all.into_iter().next()))
}

fn register(files: &TlsFiles) -> PathBuf {
    files.ca.with_file_name("nodes.json")
}

/// Reads under which authority each node connected last; empty if that cannot be read.
pub(crate) fn read_seen(files: &TlsFiles) -> BTreeMap<NodeName, Fingerprint> {
    let text = read_public(&register(files)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Writes under which authority each node connected last.
pub(crate) fn write_seen(
    files: &TlsFiles,
    seen: &BTreeMap<NodeName, Fingerprint>,
) -> Result<(), FileError> {
    let text = serde_json::to_string_pretty(seen).expect("names and hashes are JSON");
    write_public(&register(files), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_transport::{Identity, Peer};
    use std::os::unix::fs::PermissionsExt;

    pub(super) fn for_node(name: &str) -> NodeCertificateSpec {
        NodeCertificateSpec {
            node: NodeName::new(name).unwrap(),
            claim: Default::default(),
            ttl: Duration::from_secs(3600),
        }
    }

    #[test]
    fn an_outside_authority_is_taken_with_its_key_or_without() {
        let dir = tempfile::tempdir().unwrap();
        let [cert, key, own, own_key] =
            ["ca", "ca.key", "own", "own.key"].map(|name| dir.path().join(name));
        let authority = Authority::create("outside").unwrap();
        authority.write(&cert, &key).unwrap();
        let data = dir.path().join("with");
        let with = ExternalCa::WithKey {
            ca_cert: cert.clone(),
            ca_key: key.clone(),
        };
        let cluster = init_with(&data, &with).unwrap();
        let identity = Identity::load(&files_in(&tls_dir(&data))).unwrap();
        assert_eq!(identity.authority(), authority.fingerprint());
        assert_eq!(identity.peer_identity().cluster, Some(cluster));
        issue_node(&data, &for_node("a"), &dir.path().join("a")).unwrap();
        let error = init_with(&data, &with).unwrap_err().to_string();
        assert!(error.contains("`sluice-coordinator ca rotate`"), "{error}");

        authority
            .issue_coordinator()
            .unwrap()
            .write(&own, &own_key)
            .unwrap();
        let data = dir.path().join("without");
        let given = TlsFiles {
            ca: cert.clone(),
            cert: own,
            key: own_key,
        };
        init_with(&data, &ExternalCa::Issued(given)).unwrap();
        Identity::load(&files_in(&tls_dir(&data))).unwrap();
        let error = issue_node(&data, &for_node("a"), &dir.path().join("b")).unwrap_err();
        assert!(
            error.to_string().contains("certificates come from there"),
            "{error}"
        );

        let [node, node_key] = ["n", "n.key"].map(|name| dir.path().join(name));
        authority
            .issue_node("n")
            .unwrap()
            .write(&node, &node_key)
            .unwrap();
        let given = TlsFiles {
            ca: cert,
            cert: node,
            key: node_key,
        };
        let data = dir.path().join("wrong");
        let error = init_with(&data, &ExternalCa::Issued(given))
            .unwrap_err()
            .to_string();
        assert!(error.contains("is the certificate of node n"), "{error}");
        assert!(!is_made(&data));
    }

    #[test]
    fn the_coordinator_renews_its_certificate_when_two_thirds_of_its_life_are_over() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = init(dir.path()).unwrap();
        let files = files_in(&tls_dir(dir.path()));
        let long = Duration::from_secs(7 * 24 * 3600);
        assert!(!renew_own(&files, &cluster, long).unwrap());
        // A certificate that has just expired.
        let authority = Authority::load(&files.ca, &key_of(&files)).unwrap();
        certify_own(&files, &cluster, authority, Duration::ZERO).unwrap();
        let key = read_private(&files.key).unwrap();
        assert!(renew_own(&files, &cluster, long).unwrap());
        assert!(!renew_own(&files, &cluster, long).unwrap());
        let until = Identity::load(&files).unwrap().validity().until;
        assert!(until > SystemTime::now() + long - Duration::from_secs(60));
        assert_eq!(read_private(&files.key).unwrap(), key);
        // Without the authority's key the certificate is left as it is.
        fs::remove_file(key_of(&files)).unwrap();
        assert!(!renew_own(&files, &cluster, long).unwrap());
    }

    #[test]
    fn a_cluster_is_made_once_and_issues_certificates_that_its_members_take() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let cluster = init(&data).unwrap();
        let ca = fs::read_to_string(data.join("tls/ca.pem")).unwrap();
        assert_eq!(init(&data).unwrap(), cluster);
        assert_eq!(fs::read_to_string(data.join("tls/ca.pem")).unwrap(), ca);

        let files = ensure(&data, &cluster).unwrap();
        assert_eq!(*Identity::load(&files).unwrap().peer(), Peer::Coordinator);

        let out = dir.path().join("node");
        issue_node(&data, &for_node("gpu-7"), &out).unwrap();
        let node = TlsFiles {
            ca: out.join("ca.pem"),
            cert: out.join("node.pem"),
            key: out.join("node.key"),
        };
        let node = Identity::load(&node).unwrap();
        assert_eq!(*node.peer(), Peer::Node("gpu-7".into()));
        for key in [
            "data/tls/ca.key",
            "data/tls/coordinator.key",
            "node/node.key",
        ] {
            let mode = fs::metadata(dir.path().join(key))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
    }

    #[test]
    fn issuing_without_an_authority_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = issue_node(dir.path(), &for_node("a"), &dir.path().join("out")).unwrap_err();
        assert!(
            error.to_string().contains("`sluice-coordinator init`"),
            "{error}"
        );
        assert!(!dir.path().join("out").exists());
    }
}
