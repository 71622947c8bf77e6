//! Fingerprint, validity and issuer of a certificate. [`crate::peer`] reads the names in it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error, PemObject};
use sluice_common::credential::Fingerprint;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::authority::SKEW;

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the period.
    pub from: SystemTime,
    /// End of the period.
    pub until: SystemTime,
}

impl Validity {
    /// Reads the period from a certificate; `None` if malformed.
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
        })
    }

    /// Time to request the next certificate: after two thirds of the lifetime, which leaves time for retries. The
    /// lifetime counts from the issue, without the allowance for slow clocks.
    pub fn renew_at(&self) -> SystemTime {
        let issued = (self.from + SKEW).min(self.until);
        let life = self.until.duration_since(issued).unwrap_or_default();
        issued + life * 2 / 3
    }
}

fn moment(unix_seconds: i64) -> SystemTime {
    // Times before 1970 are in the past anyway.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// SHA-256 of arbitrary bytes.
pub fn digest_of(bytes: &[u8]) -> Fingerprint {
    Fingerprint::new(sha256(bytes))
}

/// SHA-256 of a certificate, as printed by `openssl x509 -fingerprint -sha256`.
pub fn fingerprint_of(der: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint::new(sha256(der))
}

/// Parses all certificates in a PEM text.
///
/// # Errors
/// If a part of it is malformed.
pub fn parse_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect()
}

/// Formats a certificate as PEM.
pub fn to_pem(der: &CertificateDer<'_>) -> String {
    let encoded = BASE64.encode(der);
    let lines = encoded.as_bytes().chunks(PEM_LINE_CHARS);
    let lines = lines.map(String::from_utf8_lossy);
    let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

/// Line length of PEM (RFC 7468).
const PEM_LINE_CHARS: usize = 64;

/// Whether the certificate names the authority as its issuer. Does not verify the signature.
pub fn names_issuer(certificate: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    let read = |der| X509Certificate::from_der(der).map(|(_, read)| read).ok();
    let (certificate, authority) = (read(certificate), read(authority));
    match (certificate, authority) {
        (Some(certificate), Some(authority)) => certificate.issuer() == authority.subject(),
        (Some(_) | None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_its_life_are_over() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        for ttl in [60, 3600, 604_800] {
            let ttl = Duration::from_secs(ttl);
            let validity = Validity {
                from: now - SKEW,
                until: now + ttl,
            };
            assert_eq!(validity.renew_at(), now + ttl * 2 / 3);
        }
    }
}
