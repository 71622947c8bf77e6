//! One certificate as the cluster's programs look at it: its fingerprint, from when until when it is good, and who issued
//! it. Whom it names is [`crate::peer`]'s.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error, PemObject};
use sluice_common::credential::Fingerprint;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::authority::SKEW;

/// From when until when a certificate is good, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub from: SystemTime,
    /// The last.
    pub until: SystemTime,
}

impl Validity {
    /// Of a certificate; `None` where it is none.
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            from: moment(validity.not_before.timestamp()),
            until: moment(validity.not_after.timestamp()),
        })
    }

    /// When to ask for the next one: two thirds of its life are over, so that there is time for many tries. Its life
    /// begins when it was issued; the time before that is for clocks that are behind.
    pub fn renew_at(&self) -> SystemTime {
        let issued = (self.from + SKEW).min(self.until);
        let life = self.until.duration_since(issued).unwrap_or_default();
        issued + life * 2 / 3
    }
}

fn moment(unix_seconds: i64) -> SystemTime {
    // Before 1970 is as good as 1970: long over.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_seconds).unwrap_or(0))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The SHA-256 of anything.
pub fn digest_of(bytes: &[u8]) -> Fingerprint {
    Fingerprint::new(sha256(bytes))
}

/// By which a certificate is told from others: the SHA-256 of it, as `openssl x509 -fingerprint -sha256` prints it.
pub fn fingerprint_of(der: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint::new(sha256(der))
}

/// All certificates of a text in PEM form.
///
/// # Errors
/// Where a part of it is broken.
pub fn parse_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect()
}

/// A certificate in PEM form.
pub fn to_pem(der: &CertificateDer<'_>) -> String {
    let encoded = BASE64.encode(der);
    let lines = encoded.as_bytes().chunks(PEM_LINE_CHARS);
    let lines = lines.map(String::from_utf8_lossy);
    let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

/// As RFC 7468 has it.
const PEM_LINE_CHARS: usize = 64;

/// Whether a certificate names that authority as the one that issued it. What it says is verified elsewhere.
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
