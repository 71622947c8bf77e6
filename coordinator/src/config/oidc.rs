//! `[oidc]`: the issuer whose tokens the API accepts.

use std::net::IpAddr;
use std::path::PathBuf;

use axum::http::Uri;

use serde::Deserialize;
use sluice_common::time::Span;

use super::{ConfigError, invalid, span};

/// Allowed difference of clocks.
const DEFAULT_LEEWAY: Span = Span::from_secs(60);
const MAX_LEEWAY: Span = Span::from_secs(600);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOidc {
    issuer: String,
    audience: String,
    jwks_file: Option<PathBuf>,
    jwks_url: Option<String>,
    jwks_ca: Option<PathBuf>,
    leeway: Option<String>,
    name_claim: Option<String>,
}

/// An OIDC issuer, and the required contents of its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// Required value of `iss`.
    pub issuer: String,
    /// Required value or member of `aud`.
    pub audience: String,
    /// Source of its public keys (JWKS).
    pub keys: KeySource,
    /// Allowed difference of clocks.
    pub leeway: Span,
    /// Claim that holds the user's name.
    pub name_claim: String,
}

/// Source of an issuer's public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file that an admin keeps up to date.
    File(PathBuf),
    /// The issuer's URL.
    Url {
        /// `https`, or `http` on this machine.
        url: String,
        /// Authorities for TLS of that URL; the system's if `None`.
        ca: Option<PathBuf>,
    },
}

impl RawOidc {
    pub(super) fn check(self) -> Result<OidcConfig, ConfigError> {
        for (key, text) in [
            ("oidc.issuer", &self.issuer),
            ("oidc.audience", &self.audience),
        ] {
            if text.is_empty() {
                return Err(invalid(
                    key,
                    "it is empty: tokens for any service would be accepted",
                ));
            }
        }
        let keys = source(self.jwks_file, self.jwks_url, self.jwks_ca)?;
        let leeway = span("oidc.leeway", self.leeway, DEFAULT_LEEWAY)?;
        if leeway > MAX_LEEWAY {
            let message = format!(
                "{leeway} is too long: synchronize the clocks, and write at most {MAX_LEEWAY}"
            );
            return Err(invalid("oidc.leeway", message));
        }
        Ok(OidcConfig {
            issuer: self.issuer,
            audience: self.audience,
            keys,
            leeway,
            name_claim: self.name_claim.unwrap_or_else(|| "sub".to_owned()),
        })
    }
}

fn source(
    file: Option<PathBuf>,
    url: Option<String>,
    ca: Option<PathBuf>,
) -> Result<KeySource, ConfigError> {
    match (file, url) {
        (Some(_), None) if ca.is_some() => Err(invalid(
            "oidc.jwks_ca",
            "it is for `jwks_url`: a file is trusted as it is",
        )),
        (Some(file), None) => Ok(KeySource::File(file)),
        (None, Some(url)) if is_trusted(&url) => Ok(KeySource::Url { url, ca }),
        (None, Some(url)) => Err(invalid(
            "oidc.jwks_url",
            format!(
                "`{url}` is not an `https://` address: anybody on the network path could sign as the issuer"
            ),
        )),
        (Some(_), Some(_)) => Err(invalid(
            "oidc.jwks_url",
            "`jwks_file` is set too: remove one of them",
        )),
        (None, None) => Err(invalid(
            "oidc.jwks_url",
            "write it, or `jwks_file`: the issuer's keys must come from somewhere",
        )),
    }
}

/// Whether nobody between this machine and the address could read or change the answer.
fn is_trusted(url: &str) -> bool {
    let Ok(url) = url.parse::<Uri>() else {
        return false;
    };
    let host = url.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let here = address.is_ok_and(|address| address.is_loopback());
    match url.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => here,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_one_place_that_nobody_can_stand_before() {
        let file = || Some(PathBuf::from("/etc/jwks.json"));
        let url = |text: &str| Some(text.to_owned());
        let error_of = |file, text: Option<String>, ca| match source(file, text, ca) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        for good in [
            "https://id.example/certs",
            "http://127.0.0.1:8080/certs",
            "http://[::1]/certs",
        ] {
            assert_eq!(error_of(None, url(good), None), "", "{good}");
        }
        for bad in [
            "http://id.example/certs",
            "http://127.0.0.1.evil.example/",
            "ftp://x/",
            "https://",
            "certs",
            "",
        ] {
            assert!(
                error_of(None, url(bad), None).contains("not an `https://`"),
                "{bad}"
            );
        }
        assert_eq!(error_of(file(), None, None), "");
        assert!(error_of(file(), url("https://x/"), None).contains("remove one"));
        assert!(error_of(None, None, None).contains("must come from somewhere"));
        assert!(error_of(file(), None, file()).contains("`jwks_url`"));
    }
}
