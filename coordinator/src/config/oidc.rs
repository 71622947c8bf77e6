//! `[oidc]`: the issuer whose tokens are taken beside the coordinator's own.

use std::path::PathBuf;

use serde::Deserialize;
use sluice_common::time::Span;

use super::{ConfigError, invalid, span};

/// By how much clocks may differ.
const DEFAULT_LEEWAY: Span = Span::from_secs(60);
const MAX_LEEWAY: Span = Span::from_secs(600);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOidc {
    issuer: String,
    audience: String,
    jwks_file: PathBuf,
    leeway: Option<String>,
    name_claim: Option<String>,
}

/// An issuer and what its tokens must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must be or hold.
    pub audience: String,
    /// Its public keys, in the form of JWKS.
    pub jwks_file: PathBuf,
    /// By how much clocks may differ.
    pub leeway: Span,
    /// The claim that names the user.
    pub name_claim: String,
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
                    "it is empty: tokens of anybody would be taken",
                ));
            }
        }
        let leeway = span("oidc.leeway", self.leeway, DEFAULT_LEEWAY)?;
        if leeway > MAX_LEEWAY {
            let message =
                format!("{leeway} is too long: set clocks right, and write at most {MAX_LEEWAY}");
            return Err(invalid("oidc.leeway", message));
        }
        Ok(OidcConfig {
            issuer: self.issuer,
            audience: self.audience,
            jwks_file: self.jwks_file,
            leeway,
            name_claim: self.name_claim.unwrap_or_else(|| "sub".to_owned()),
        })
    }
}
