//! Names in certificates. `tls` has verified the issuer before.

use std::fmt;

use rustls::pki_types::CertificateDer;
use sluice_common::credential::{Generation, NodeClaim};
use sluice_common::id::{ClusterId, NameError, NodeName, PoolName};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Host name in the coordinator's certificate, whatever its address.
pub const COORDINATOR_HOST: &str = "coordinator.sluice";
/// Prefix of the URI with a node's name.
pub const NODE_URI_PREFIX: &str = "sluice:node:";
/// Prefix of the URI with the cluster's id.
pub const CLUSTER_URI_PREFIX: &str = "sluice:cluster:";
/// Prefix of the URI with the node's pool.
pub const POOL_URI_PREFIX: &str = "sluice:pool:";
/// Prefix of the URI with the certificate's generation.
pub const GENERATION_URI_PREFIX: &str = "sluice:generation:";

/// A member of the cluster, as named in its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The cluster's coordinator.
    Coordinator,
    /// A node of this name, which is a valid [`NodeName`].
    Node(String),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("the coordinator"),
            Self::Node(name) => write!(f, "node {name}"),
        }
    }
}

/// Everything that a member's certificate states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The member itself.
    pub peer: Peer,
    /// Cluster of the member; optional for certificates of an outside authority.
    pub cluster: Option<ClusterId>,
    /// Statements besides the name.
    pub claim: NodeClaim,
}

/// Problem with the names in a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate is not valid X.509.
    #[error("the certificate cannot be read")]
    Unreadable(#[source] X509Error),
    /// The connection has no certificate, which TLS should have prevented.
    #[error("there is no certificate")]
    Missing,
    /// The certificate names no member or several.
    #[error(
        "the certificate names {count} members of a cluster where it must name one: a URI `{NODE_URI_PREFIX}NAME` or the host `{COORDINATOR_HOST}`"
    )]
    Names {
        /// Number of members named.
        count: usize,
    },
    /// The certificate names an invalid node name.
    #[error("the certificate names a node that cannot exist")]
    NodeName(#[source] NameError),
    /// The certificate repeats a statement, or its value is invalid.
    #[error("the certificate carries `{prefix}` more than once or with an invalid value")]
    Claim {
        /// Prefix of the statement's URI.
        prefix: &'static str,
    },
    /// The certificate belongs to another cluster under the same authority.
    #[error("the certificate is of cluster `{theirs}` and this is cluster `{ours}`")]
    OtherCluster {
        /// Cluster in the certificate.
        theirs: ClusterId,
        /// This cluster's id.
        ours: ClusterId,
    },
    /// The certificate does not allow the use that its name requires.
    #[error("the certificate names {peer} and does not allow {usage} authentication")]
    Usage {
        /// Member named in the certificate.
        peer: Peer,
        /// Either `client` or `server`.
        usage: &'static str,
    },
    /// The member does not belong at that end of a link.
    #[error("the certificate is of {peer}, who may not be at that end of a link")]
    WrongEnd {
        /// Member named in the certificate.
        peer: Peer,
    },
}

/// The one member of the cluster that a certificate names.
///
/// # Errors
/// If it names none or several, or does not allow the required use.
pub(crate) fn peer_identity_of(
    certificate: &CertificateDer<'_>,
) -> Result<PeerIdentity, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| CertificateError::Unreadable(flatten_error(error)))?;
    let mut names = names(&certificate)?;
    let count = names.len();
    let Some(peer) = names.pop().filter(|_| count == 1) else {
        return Err(CertificateError::Names { count });
    };
    check_usage(&certificate, &peer)?;
    let uris = uris(&certificate)?;
    let pool = parse_uri(&uris, POOL_URI_PREFIX, |text| PoolName::new(text).ok())?;
    let number = parse_uri(&uris, GENERATION_URI_PREFIX, |text| text.parse().ok())?;
    Ok(PeerIdentity {
        peer,
        cluster: parse_uri(&uris, CLUSTER_URI_PREFIX, |text| ClusterId::new(text).ok())?,
        claim: NodeClaim {
            pool,
            generation: Generation::new(number.unwrap_or_default()),
        },
    })
}

/// The cluster that a certificate names.
pub fn cluster_of(certificate: &CertificateDer<'_>) -> Option<ClusterId> {
    peer_identity_of(certificate).ok()?.cluster
}

/// Parses the value after `prefix`, if present. Repeated or invalid values are rejected, never ignored.
fn parse_uri<T>(
    uris: &[&str],
    prefix: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, CertificateError> {
    let mut values = uris.iter().filter_map(|uri| uri.strip_prefix(prefix));
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let value = read(value).filter(|_| values.next().is_none());
    value.map(Some).ok_or(CertificateError::Claim { prefix })
}

fn uris<'a>(certificate: &'a X509Certificate<'_>) -> Result<Vec<&'a str>, CertificateError> {
    let extension = certificate
        .subject_alternative_name()
        .map_err(CertificateError::Unreadable)?;
    let general = extension.map_or(&[][..], |e| &e.value.general_names);
    let uris = general.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    Ok(uris.collect())
}

fn flatten_error(error: x509_parser::nom::Err<X509Error>) -> X509Error {
    match error {
        x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error) => error,
        x509_parser::nom::Err::Incomplete(_) => X509Error::InvalidCertificate,
    }
}

/// All member names in the certificate. Other names are ignored.
fn names(certificate: &X509Certificate<'_>) -> Result<Vec<Peer>, CertificateError> {
    let extension = certificate
        .subject_alternative_name()
        .map_err(CertificateError::Unreadable)?;
    let general = extension.iter().flat_map(|e| &e.value.general_names);
    general
        .filter_map(|name| peer_named(name).transpose())
        .collect()
}

fn peer_named(name: &GeneralName<'_>) -> Result<Option<Peer>, CertificateError> {
    match name {
        GeneralName::DNSName(host) if host.eq_ignore_ascii_case(COORDINATOR_HOST) => {
            Ok(Some(Peer::Coordinator))
        }
        GeneralName::URI(uri) => {
            let Some(node) = uri.strip_prefix(NODE_URI_PREFIX) else {
                return Ok(None);
            };
            let node = NodeName::new(node).map_err(CertificateError::NodeName)?;
            Ok(Some(Peer::Node(node.into())))
        }
        _ => Ok(None),
    }
}

/// Checks the extended key usage. TLS accepts certificates without any; here it is required.
fn check_usage(certificate: &X509Certificate<'_>, peer: &Peer) -> Result<(), CertificateError> {
    let extension = certificate
        .extended_key_usage()
        .map_err(CertificateError::Unreadable)?;
    let (usage, allowed) = match peer {
        Peer::Coordinator => ("server", extension.is_some_and(|e| e.value.server_auth)),
        Peer::Node(_) => ("client", extension.is_some_and(|e| e.value.client_auth)),
    };
    if allowed {
        return Ok(());
    }
    let peer = peer.clone();
    Err(CertificateError::Usage { peer, usage })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};

    fn certificate(
        names: &[SanType],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn host(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
    const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

    fn peer_of(certificate: &CertificateDer<'_>) -> Result<Peer, CertificateError> {
        peer_identity_of(certificate).map(|member| member.peer)
    }

    #[test]
    fn what_a_certificate_says_of_its_member_is_read_and_garbled_or_twice_it_is_refused() {
        let node = uri("sluice:node:a");
        let [cluster, pool, third] =
            ["cluster:c1", "pool:p1", "generation:3"].map(|text| uri(&format!("sluice:{text}")));
        let member = peer_identity_of(&certificate(
            &[node.clone(), cluster, pool.clone(), third],
            &[CLIENT],
        ));
        let member = member.unwrap();
        assert_eq!(member.cluster, Some(ClusterId::new("c1").unwrap()));
        assert_eq!(member.claim.pool, Some(PoolName::new("p1").unwrap()));
        assert_eq!(member.claim.generation, Generation::new(3));
        let twice = [pool.clone(), pool];
        for bad in [
            vec![uri("sluice:pool:../x")],
            vec![uri("sluice:generation:-1")],
            vec![uri("sluice:cluster:")],
            twice.to_vec(),
        ] {
            let names = [vec![node.clone()], bad].concat();
            let error = peer_identity_of(&certificate(&names, &[CLIENT])).unwrap_err();
            assert!(matches!(error, CertificateError::Claim { .. }), "{error}");
        }
    }

    #[test]
    fn one_name_of_ours_is_found_among_names_of_others() {
        let names = [
            host("gpu7.example"),
            uri("spiffe://x/y"),
            uri("sluice:node:gpu7"),
        ];
        let peer = peer_of(&certificate(&names, &[CLIENT])).unwrap();
        assert_eq!(peer, Peer::Node("gpu7".into()));
        let peer = peer_of(&certificate(&[host("Coordinator.Sluice")], &[SERVER])).unwrap();
        assert_eq!(peer, Peer::Coordinator);
    }

    #[test]
    fn no_name_and_two_names_are_refused() {
        let cases: [(&[SanType], usize); 4] = [
            (&[], 0),
            (&[host("gpu7.example"), uri("sluice:pool:a")], 0),
            (&[uri("sluice:node:a"), uri("sluice:node:b")], 2),
            (&[uri("sluice:node:a"), host(COORDINATOR_HOST)], 2),
        ];
        for (names, expected) in cases {
            let error = peer_of(&certificate(names, &[CLIENT, SERVER])).unwrap_err();
            assert!(
                matches!(error, CertificateError::Names { count } if count == expected),
                "{names:?}: {error}"
            );
        }
    }

    #[test]
    fn a_name_that_no_node_may_have_is_refused() {
        for name in ["", "../x", "a b", "a%2fb"] {
            let names = [uri(&format!("sluice:node:{name}"))];
            let error = peer_of(&certificate(&names, &[CLIENT])).unwrap_err();
            assert!(matches!(error, CertificateError::NodeName(_)), "{error}");
        }
    }

    #[test]
    fn a_certificate_for_another_use_or_for_none_is_refused() {
        for usages in [&[SERVER][..], &[]] {
            let error = peer_of(&certificate(&[uri("sluice:node:a")], usages)).unwrap_err();
            assert!(
                error
                    .to_string()
                    .ends_with("does not allow client authentication"),
                "{error}"
            );
        }
        let error = peer_of(&certificate(&[host(COORDINATOR_HOST)], &[CLIENT])).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("does not allow server authentication"),
            "{error}"
        );
    }

    #[test]
    fn noise_is_no_certificate() {
        let error = peer_of(&CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])).unwrap_err();
        assert!(matches!(error, CertificateError::Unreadable(_)), "{error}");
    }
}
