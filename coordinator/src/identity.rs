//! The cluster's certificates below the data directory: made once, by `init` or by a first start that was given none.
//!
//! ```text
//! DATA_DIR/tls/ca.pem           what every member trusts
//! DATA_DIR/tls/ca.key           issues certificates; needed by `issue-node` alone
//! DATA_DIR/tls/coordinator.pem  by which agents know the coordinator
//! DATA_DIR/tls/coordinator.key
//! ```
//! How certificates look and who is whom in them is the transport's.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sluice_common::id::ClusterId;
use sluice_transport::files::write_public;
use sluice_transport::{
    Authority, AuthorityError, FileError, HttpsError, ServerConfig, TlsFiles, https,
};

use crate::store::{DEFAULT_RETENTION, Store, StoreError};

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The store, which knows the cluster's id, cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The authority would not issue.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A directory could not be made.
    #[error("cannot make {}", path.display())]
    Dir {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no authority to issue a certificate for the API.
    #[error(
        "there is no authority in {} to issue a certificate for HTTP: configure `http_tls` with `cert` and `key`, or run \
         `sluice-coordinator init` with the same --data-dir first",
        dir.display()
    )]
    NoHttpCertificate {
        /// Where it would be.
        dir: PathBuf,
    },
    /// TLS of the API could not be set up.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// There is no authority to issue with.
    #[error(
        "there is no authority in {}: run `sluice-coordinator init` with the same --data-dir first",
        dir.display()
    )]
    NoAuthority {
        /// Where it would be.
        dir: PathBuf,
    },
}

fn tls_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("tls")
}

/// Makes store, cluster id and certificates in `data_dir`; what is there stays.
///
/// # Errors
/// Where a coordinator runs on the directory, or it cannot be written.
pub fn init(data_dir: &Path) -> Result<ClusterId, IdentityError> {
    let (_store, recovered) = Store::open(data_dir, DEFAULT_RETENTION)?;
    ensure(data_dir, &recovered.cluster)?;
    Ok(recovered.cluster)
}

/// The coordinator's certificates in `data_dir`, made now where there are none.
///
/// # Errors
/// Where they cannot be made.
pub fn ensure(data_dir: &Path, cluster: &ClusterId) -> Result<TlsFiles, IdentityError> {
    let dir = tls_dir(data_dir);
    if !dir.exists() {
        make(&dir, cluster)?;
    }
    Ok(TlsFiles {
        ca: dir.join("ca.pem"),
        cert: dir.join("coordinator.pem"),
        key: dir.join("coordinator.key"),
    })
}

/// All four files come to be at once, by the renaming of their directory: half of them would be a riddle.
fn make(dir: &Path, cluster: &ClusterId) -> Result<(), IdentityError> {
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
    let authority = Authority::create(cluster.as_str())?;
    authority.write(&draft.join("ca.pem"), &draft.join("ca.key"))?;
    authority.issue_coordinator()?.write(
        &draft.join("coordinator.pem"),
        &draft.join("coordinator.key"),
    )?;
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

/// The authority's certificate below `data_dir`.
pub fn ca_file(data_dir: &Path) -> PathBuf {
    tls_dir(data_dir).join("ca.pem")
}

fn authority(data_dir: &Path) -> Result<Authority, IdentityError> {
    let dir = tls_dir(data_dir);
    let (cert, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    if !key.exists() {
        return Err(IdentityError::NoAuthority { dir });
    }
    Ok(Authority::load(&cert, &key)?)
}

/// The API's end of TLS, with a certificate that the authority below `data_dir` issues now: for this machine's names,
/// the address that it listens on, and `names`.
///
/// # Errors
/// Where there is no authority, or a name is none.
pub fn http_server(
    data_dir: &Path,
    address: IpAddr,
    names: &[String],
) -> Result<ServerConfig, IdentityError> {
    let authority = authority(data_dir).map_err(|error| match error {
        IdentityError::NoAuthority { dir } => IdentityError::NoHttpCertificate { dir },
        error => error,
    })?;
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|host| host.into_string().ok());
    let listened = (!address.is_unspecified()).then(|| address.to_string());
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let all = own.into_iter().chain(host).chain(listened);
    let mut all: Vec<String> = all.chain(names.iter().cloned()).collect();
    all.sort_unstable();
    all.dedup();
    Ok(https::server_of_cluster(&authority, &all)?)
}

/// Writes what a user shows to the API into `out`: `ca.pem`, `user.pem` and `user.key`, in place of what is there.
///
/// # Errors
/// Where `name` is no name, there is no authority, or `out` cannot be written.
pub fn issue_user(data_dir: &Path, name: &str, out: &Path) -> Result<(), IdentityError> {
    let authority = authority(data_dir)?;
    let issued = https::issue_user(&authority, name)?;
    make_dir(out)?;
    issued.write(&out.join("user.pem"), &out.join("user.key"))?;
    write_public(&out.join("ca.pem"), &authority.cert_pem())?;
    Ok(())
}

/// Writes what the agent of node `name` needs into `out`: `ca.pem`, `node.pem` and `node.key`, in place of what is
/// there.
///
/// # Errors
/// Where `name` is no node name, there is no authority, or `out` cannot be written.
pub fn issue_node(data_dir: &Path, name: &str, out: &Path) -> Result<(), IdentityError> {
    let authority = authority(data_dir)?;
    let issued = authority.issue_node(name)?;
    make_dir(out)?;
    issued.write(&out.join("node.pem"), &out.join("node.key"))?;
    write_public(&out.join("ca.pem"), &authority.cert_pem())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_transport::{Identity, Peer};
    use std::os::unix::fs::PermissionsExt;

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
        issue_node(&data, "gpu-7", &out).unwrap();
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
    fn issuing_without_an_authority_or_for_no_name_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = issue_node(dir.path(), "a", &dir.path().join("out")).unwrap_err();
        assert!(
            error.to_string().contains("`sluice-coordinator init`"),
            "{error}"
        );
        init(dir.path()).unwrap();
        let error = issue_node(dir.path(), "../a", &dir.path().join("out")).unwrap_err();
        assert!(error.to_string().contains("node name"), "{error}");
        assert!(!dir.path().join("out").exists());
    }
}
