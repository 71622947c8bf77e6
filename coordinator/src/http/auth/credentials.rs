//! Credentials of the config, and a limit for the log entries of failed ones.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ring::digest::{SHA256, digest};
use sluice_common::access::TokenDigest;
use tokio::sync::watch;

use super::super::oidc::Oidc;
use crate::config::ApiToken;
use crate::rate::{Bucket, Rate};

/// Credentials that the config accepts.
#[derive(Debug)]
pub(in crate::http) struct Credentials {
    /// Hash of the coordinator's own token. Comparing hashes takes a time that reveals nothing of either token.
    admin: watch::Sender<Option<TokenDigest>>,
    pub(super) issuer: Option<Oidc>,
}

impl Credentials {
    pub(in crate::http) fn new(token: Option<&ApiToken>, issuer: Option<Oidc>) -> Self {
        Self {
            issuer,
            admin: watch::channel(token.map(|token| digest_of(token.as_bytes()))).0,
        }
    }

    /// Replaces the coordinator's own token.
    pub(in crate::http) fn renew(&self, token: &ApiToken) {
        let next = Some(digest_of(token.as_bytes()));
        self.admin.send_if_modified(|admin| {
            let changes = *admin != next;
            *admin = next;
            changes
        });
    }

    /// Hash of the coordinator's own token, with its changes.
    pub(in crate::http) fn changes(&self) -> watch::Receiver<Option<TokenDigest>> {
        self.admin.subscribe()
    }

    /// Whether this is the hash of the coordinator's own token.
    pub(in crate::http) fn is_admin(&self, shown: &TokenDigest) -> bool {
        self.admin.borrow().as_ref() == Some(shown)
    }

    /// Whether programs of this machine need no credential.
    pub(in crate::http) fn need_none(&self) -> bool {
        self.admin.borrow().is_none() && self.issuer.is_none()
    }
}

pub(in crate::http) fn digest_of(secret: &[u8]) -> TokenDigest {
    let hash = digest(&SHA256, secret);
    TokenDigest::from_hash(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// Rate of logged refusals: a flood of them must not push everything else out of the log.
const NOTED: Rate = Rate {
    per_second: 5.0,
    burst: 100.0,
};

/// Limits how many refusals are logged.
#[derive(Debug)]
pub(in crate::http) struct RefusalLimit(Mutex<Bucket>);

impl Default for RefusalLimit {
    fn default() -> Self {
        Self(Mutex::new(Bucket::full(NOTED, Instant::now())))
    }
}

impl RefusalLimit {
    pub(super) fn take(&self) -> bool {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(NOTED, Instant::now()).is_ok()
    }
}
