//! Replaces the cluster's authority by a new one while the cluster runs.
//!
//! ```text
//!              trusted    issues for nodes    issued the coordinator's own
//! before       A          A                   A
//! rotate       B A        B                   A      agents learn of B over their links and get new certificates
//! retire       B          B                   B      nodes that did not connect meanwhile must join again
//! ```
//! Works on files alone; a running coordinator sees them change and tells its agents. A crash between two steps breaks
//! nothing. The key of the old authority is kept as `ca-FINGERPRINT.key` until it is retired.

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

/// Characters of a fingerprint that distinguish the few authorities of a cluster.
pub const SHORT: usize = 16;

/// Lifetime of the coordinator's certificate that is made here; the coordinator renews it when it runs.
const OWN_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why a rollover step was refused.
#[derive(Debug, thiserror::Error)]
pub enum RolloverError {
    /// A file or the authority cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The authority is external, so nothing is issued here.
    #[error(
        "the authority in {} is an outside one, whose key is not here: put the new one's certificate beside the old one's in \
         ca.pem, and the coordinator passes both on to its agents",
        dir.display()
    )]
    ExternalCa { dir: PathBuf },
    /// Another rollover is under way.
    #[error(
        "{count} authorities are trusted already: `sluice-coordinator ca retire` the older one first"
    )]
    UnderWay { count: usize },
    /// No authority has this fingerprint.
    #[error(
        "no authority's fingerprint begins with `{written}`: `sluice-coordinator ca list` shows them"
    )]
    Unknown {
        /// The fingerprint as it was given.
        written: String,
    },
    /// The authority issues, so it must stay.
    #[error(
        "authority {authority} issues, so it stays: `sluice-coordinator ca rotate` makes the one that takes over from it"
    )]
    Issues { authority: Fingerprint },
    /// Nodes would be locked out.
    #[error(
        "{} would lose access, because that authority issued their certificates: wait until `ca list` shows them under the other, or use --force and have them join again",
        named(nodes)
    )]
    InUse { nodes: Vec<NodeName> },
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

/// Number of nodes named in a message.
const NAMED: usize = 5;

fn named(nodes: &[NodeName]) -> String {
    let first: Vec<&str> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
    match nodes.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A trusted authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedAuthority {
    pub fingerprint: Fingerprint,
    /// Period of validity; `None` if its certificate cannot be read.
    pub validity: Option<Validity>,
    /// Whether it issues new certificates.
    pub issues: bool,
    /// Whether it issued the coordinator's own certificate.
    pub shown: bool,
    /// Nodes whose certificates it issued.
    pub nodes: Vec<NodeName>,
}

/// Returns the authorities whose keys are here, the issuing one first.
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
    // The coordinator rejected invalid certificates when it read them.
    Ok(certificates.unwrap_or_default())
}

fn older_key(files: &TlsFiles, authority: Fingerprint) -> PathBuf {
    let short = &authority.to_string()[..SHORT];
    files.ca.with_file_name(format!("ca-{short}.key"))
}

/// Lists the trusted authorities.
///
/// # Errors
/// If a file cannot be read.
pub fn list(data_dir: &Path) -> Result<Vec<TrustedAuthority>, RolloverError> {
    let files = files_in(&tls_dir(data_dir));
    let issuing = issuing(&files)?.map(|authority| authority.fingerprint());
    let own = first_in(&files.cert)?;
    let seen = read_seen(&files);
    let all = trusted_in(&files)?;
    let trusted = all.iter().map(|der| {
        let fingerprint = fingerprint_of(der);
        TrustedAuthority {
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
/// If a rollover is under way, or the key of the old authority is elsewhere.
pub fn rotate(data_dir: &Path) -> Result<Fingerprint, RolloverError> {
    let dir = tls_dir(data_dir);
    let files = files_in(&dir);
    let old = issuing(&files)?.ok_or(RolloverError::ExternalCa { dir })?;
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

/// Removes an old authority: the one whose fingerprint begins with the given text, or the only one. The coordinator's
/// own certificate then comes from the issuing one.
///
/// # Errors
/// If it is the issuing one, or nodes connected last under it and `force` is not set.
pub fn retire(
    data_dir: &Path,
    written: Option<&str>,
    force: bool,
) -> Result<Fingerprint, RolloverError> {
    let dir = tls_dir(data_dir);
    let files = files_in(&dir);
    let trusted = trusted_in(&files)?;
    let issuing = issuing(&files)?.ok_or(RolloverError::ExternalCa { dir })?;
    let retired = chosen(&trusted, issuing.fingerprint(), written)?;
    let nodes = under(&read_seen(&files), retired);
    if !nodes.is_empty() && !force {
        return Err(RolloverError::InUse { nodes });
    }
    // Its own certificate first: a coordinator whose certificate is of an untrusted authority would not start.
    if let Some(cluster) = cluster_of(&files) {
        certify_own(&files, &cluster, issuing, OWN_TTL)?;
    }
    let remaining = trusted.iter().filter(|der| fingerprint_of(der) != retired);
    let remaining: String = remaining.map(to_pem).collect();
    write_public(&files.ca, &remaining)?;
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
        // Agents that have not heard of the new one yet must still trust the coordinator.
        assert_eq!(Identity::load(&files).unwrap().authority(), old);
        assert_eq!(issued(&data, &dir.path().join("n"), "n").authority(), new);

        let node = NodeName::new("n").unwrap();
        write_seen(&files, &[(node, old)].into()).unwrap();
        let error = retire(&data, None, false).unwrap_err().to_string();
        assert!(error.starts_with("n would lose access"), "{error}");
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
