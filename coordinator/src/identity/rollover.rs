//! One authority takes over from another while the cluster runs on.
//!
//! ```text
//!              trusted    issues for nodes    issued the coordinator's own
//! before       A          A                   A
//! rotate       B A        B                   A      agents learn of B over their links and get new certificates
//! retire       B          B                   B      whoever did not come meanwhile must join anew
//! ```
//! It works on files alone; a coordinator that runs sees them change and tells its agents. Each step leaves what works
//! where it is cut off. The key of the older one is kept as `ca-FINGERPRINT.key` until it is retired.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_common::credential::Fingerprint;
use sluice_common::id::NodeName;
use sluice_transport::files::{read_private, read_public, write_private, write_public};
use sluice_transport::{
    Authority, CertificateDer, TlsFiles, Validity, fingerprint_of, names_issuer,
    parse_certificates, to_pem,
};

use super::{
    IdentityError, certify_own, cluster_of, files_in, first_in, key_of, read_seen, tls_dir,
};

/// Characters of a fingerprint that tell the few authorities of a cluster apart.
pub const SHORT: usize = 16;

/// How long the coordinator's certificate is good for that is made here; it renews it when it runs.
const OWN_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why one authority does not take over from another.
#[derive(Debug, thiserror::Error)]
pub enum RolloverError {
    /// A file, or the authority.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody here issues.
    #[error(
        "the authority in {} is an outside one, whose key is not here: put the new one's certificate beside the old one's in \
         ca.pem, and the coordinator passes both on to its agents",
        dir.display()
    )]
    Outside {
        /// Where.
        dir: PathBuf,
    },
    /// One is taking over already.
    #[error(
        "{count} authorities are trusted already: `sluice-coordinator ca retire` the older one first"
    )]
    UnderWay {
        /// How many.
        count: usize,
    },
    /// No authority has this fingerprint.
    #[error(
        "no authority's fingerprint begins with `{written}`: `sluice-coordinator ca list` shows them"
    )]
    Unknown {
        /// As it was written.
        written: String,
    },
    /// There is one alone, or it is the one that issues.
    #[error(
        "authority {authority} issues, so it stays: `sluice-coordinator ca rotate` makes the one that takes over from it"
    )]
    Issues {
        /// Which.
        authority: Fingerprint,
    },
    /// Nodes would be shut out.
    #[error(
        "{} would be shut out, for their certificates are of that authority: wait until `ca list` shows them under the other, or \
         go on with --force and have them join anew",
        named(nodes)
    )]
    InUse {
        /// Which.
        nodes: Vec<NodeName>,
    },
}

impl From<sluice_transport::FileError> for RolloverError {
    fn from(error: sluice_transport::FileError) -> Self {
        Self::Identity(error.into())
    }
}

impl From<sluice_transport::AuthorityError> for RolloverError {
    fn from(error: sluice_transport::AuthorityError) -> Self {
        Self::Identity(error.into())
    }
}

/// Names in a message.
const NAMED: usize = 5;

fn named(nodes: &[NodeName]) -> String {
    let first: Vec<&str> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
    match nodes.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// An authority that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// Which.
    pub fingerprint: Fingerprint,
    /// From when until when it is good; `None` where its certificate cannot be read.
    pub validity: Option<Validity>,
    /// Whether new certificates come from it.
    pub issues: bool,
    /// Whether it has issued the coordinator's own.
    pub shown: bool,
    /// The nodes whose certificates are of it.
    pub nodes: Vec<NodeName>,
}

/// The authorities whose keys are here, the one that issues first.
pub(super) fn keys(
    files: &TlsFiles,
) -> Result<Vec<(CertificateDer<'static>, Authority)>, IdentityError> {
    let mut found = Vec::new();
    let certificates = trusted_in(files)?;
    let older = certificates
        .iter()
        .map(|der| older_key(files, fingerprint_of(der)));
    for key in std::iter::once(key_of(files)).chain(older) {
        if key.exists() {
            let authority = Authority::load(&files.ca, &key)?;
            let own = |der: &&CertificateDer<'_>| fingerprint_of(der) == authority.fingerprint();
            let certificate = certificates.iter().find(own).cloned();
            found.extend(certificate.map(|certificate| (certificate, authority)));
        }
    }
    Ok(found)
}

fn trusted_in(files: &TlsFiles) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let certificates = parse_certificates(&read_public(&files.ca)?);
    // What is no certificate was refused, with words, when the coordinator read it.
    Ok(certificates.unwrap_or_default())
}

fn older_key(files: &TlsFiles, authority: Fingerprint) -> PathBuf {
    let short = &authority.to_string()[..SHORT];
    files.ca.with_file_name(format!("ca-{short}.key"))
}

/// The authorities that are trusted.
///
/// # Errors
/// Where a file cannot be read.
pub fn list(data_dir: &Path) -> Result<Vec<Trusted>, RolloverError> {
    let files = files_in(&tls_dir(data_dir));
    let issuing = issuing(&files)?.map(|authority| authority.fingerprint());
    let own = first_in(&files.cert)?;
    let seen = read_seen(&files);
    let all = trusted_in(&files)?;
    let trusted = all.iter().map(|der| {
        let fingerprint = fingerprint_of(der);
        Trusted {
            fingerprint,
            validity: Validity::of(der),
            issues: issuing == Some(fingerprint),
            shown: own.as_ref().is_some_and(|own| names_issuer(own, der)),
            nodes: under(&seen, fingerprint),
        }
    });
    Ok(trusted.collect())
}

fn under(seen: &BTreeMap<NodeName, Fingerprint>, authority: Fingerprint) -> Vec<NodeName> {
    let its = seen.iter().filter(|(_, its)| **its == authority);
    its.map(|(node, _)| node.clone()).collect()
}

fn issuing(files: &TlsFiles) -> Result<Option<Authority>, RolloverError> {
    let key = key_of(files);
    match key.exists() {
        true => Ok(Some(Authority::load(&files.ca, &key)?)),
        false => Ok(None),
    }
}

/// Makes a new authority that is trusted beside the old one and issues from now on.
///
/// # Errors
/// Where one is taking over already, or the key of the old one is elsewhere.
pub fn rotate(data_dir: &Path) -> Result<Fingerprint, RolloverError> {
    let dir = tls_dir(data_dir);
    let files = files_in(&dir);
    let old = issuing(&files)?.ok_or(RolloverError::Outside { dir })?;
    let trusted = trusted_in(&files)?;
    if trusted.len() > 1 {
        let count = trusted.len();
        return Err(RolloverError::UnderWay { count });
    }
    let cluster = cluster_of(&files);
    let new = Authority::create(cluster.as_ref().map_or("cluster", |id| id.as_str()))?;
    let old_key = read_private(&key_of(&files))?;
    write_private(&older_key(&files, old.fingerprint()), &old_key)?;
    write_public(&files.ca, &(new.cert_pem() + &old.cert_pem()))?;
    write_private(&key_of(&files), &new.key_pem())?;
    Ok(new.fingerprint())
}

/// Trusts an older authority no longer: the one whose fingerprint begins like this, or the only one there is. The
/// coordinator's own certificate comes from the one that issues then.
///
/// # Errors
/// Where that one issues, or nodes came last under it and it is not forced.
pub fn retire(
    data_dir: &Path,
    written: Option<&str>,
    force: bool,
) -> Result<Fingerprint, RolloverError> {
    let dir = tls_dir(data_dir);
    let files = files_in(&dir);
    let trusted = trusted_in(&files)?;
    let issuing = issuing(&files)?.ok_or(RolloverError::Outside { dir })?;
    let retired = chosen(&trusted, issuing.fingerprint(), written)?;
    let nodes = under(&read_seen(&files), retired);
    if !nodes.is_empty() && !force {
        return Err(RolloverError::InUse { nodes });
    }
    // First its own certificate: a coordinator whose own is of an authority that it does not trust would not start.
    if let Some(cluster) = cluster_of(&files) {
        certify_own(&files, &cluster, issuing, OWN_TTL)?;
    }
    let kept = trusted.iter().filter(|der| fingerprint_of(der) != retired);
    let kept: String = kept.map(to_pem).collect();
    write_public(&files.ca, &kept)?;
    let path = older_key(&files, retired);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(sluice_transport::FileError::Write { path, source }.into())
        }
        Ok(()) | Err(_) => Ok(retired),
    }
}

fn chosen(
    trusted: &[CertificateDer<'_>],
    issuing: Fingerprint,
    written: Option<&str>,
) -> Result<Fingerprint, RolloverError> {
    let mut all = trusted.iter().map(fingerprint_of);
    let authority = match written {
        Some(written) => {
            let wanted = written.to_ascii_lowercase();
            let begins =
                |it: &Fingerprint| !wanted.is_empty() && it.to_string().starts_with(&wanted);
            let written = written.escape_debug().to_string();
            all.find(begins).ok_or(RolloverError::Unknown { written })?
        }
        None => all.find(|it| *it != issuing).unwrap_or(issuing),
    };
    if authority == issuing {
        return Err(RolloverError::Issues { authority });
    }
    Ok(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tests::for_node;
    use crate::identity::{init, issue_node, write_seen};
    use sluice_transport::Identity;

    fn issued(data: &Path, out: &Path, name: &str) -> Identity {
        issue_node(data, &for_node(name), out).unwrap();
        let [ca, cert, key] = ["ca.pem", "node.pem", "node.key"].map(|file| out.join(file));
        Identity::load(&TlsFiles { ca, cert, key }).unwrap()
    }

    #[test]
    fn one_authority_takes_over_from_another_and_both_are_trusted_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        init(&data).unwrap();
        let files = files_in(&tls_dir(&data));
        let old = Identity::load(&files).unwrap().authority();
        let alone = retire(&data, None, true);
        assert!(
            matches!(alone, Err(RolloverError::Issues { .. })),
            "{alone:?}"
        );

        let new = rotate(&data).unwrap();
        let between = list(&data).unwrap();
        let roles = between
            .iter()
            .map(|it| (it.fingerprint, it.issues, it.shown));
        assert!(
            roles.eq([(new, true, false), (old, false, true)]),
            "{between:?}"
        );
        let again = rotate(&data);
        assert!(
            matches!(again, Err(RolloverError::UnderWay { count: 2 })),
            "{again:?}"
        );
        // Agents that have not heard of the new one yet must still know the coordinator.
        assert_eq!(Identity::load(&files).unwrap().authority(), old);
        assert_eq!(issued(&data, &dir.path().join("n"), "n").authority(), new);

        let node = NodeName::new("n").unwrap();
        write_seen(&files, &[(node, old)].into()).unwrap();
        let error = retire(&data, None, false).unwrap_err().to_string();
        assert!(error.starts_with("n would be shut out"), "{error}");
        let short = old.to_string()[..SHORT].to_owned();
        assert_eq!(retire(&data, Some(&short), true).unwrap(), old);
        let after = list(&data).unwrap();
        assert_eq!((after.len(), after[0].fingerprint), (1, new));
        assert!(after[0].issues && after[0].shown);
        assert_eq!(Identity::load(&files).unwrap().authority(), new);
        assert!(!older_key(&files, old).exists());
        rotate(&data).unwrap();
    }

    #[test]
    fn what_is_not_there_or_not_ours_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        init(dir.path()).unwrap();
        let error = retire(dir.path(), Some("zz"), false).unwrap_err();
        assert!(
            error.to_string().contains("`sluice-coordinator ca list`"),
            "{error}"
        );
        fs::remove_file(key_of(&files_in(&tls_dir(dir.path())))).unwrap();
        let error = rotate(dir.path()).unwrap_err().to_string();
        assert!(error.contains("an outside one"), "{error}");
    }
}
