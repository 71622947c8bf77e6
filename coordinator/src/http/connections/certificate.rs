//! The client certificate of a connection. It is verified again while the connection lasts, because it may expire and
//! the trusted authorities may change.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use sluice_common::time::Time;
use sluice_transport::{CertificateDer, HttpsServer, Validity, https};
use tokio::sync::watch;

use crate::clock::wall;

/// A user's certificate, verified in the handshake.
#[derive(Clone)]
pub(in super::super) struct UserCertificate {
    pub(in super::super) user: String,
    pub(in super::super) expires_at: Time,
    chain: Arc<[CertificateDer<'static>]>,
    verified_by: Arc<HttpsServer>,
    now: watch::Receiver<Arc<HttpsServer>>,
}

impl std::fmt::Debug for UserCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCertificate")
            .field("user", &self.user)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl UserCertificate {
    /// Reads the user of a chain that `verified_by` has verified; `None` if it names none.
    pub(super) fn new(
        chain: &[CertificateDer<'static>],
        verified_by: Arc<HttpsServer>,
        now: watch::Receiver<Arc<HttpsServer>>,
    ) -> Option<Self> {
        let own = chain.first()?;
        let until = Validity::of(own)?.until.duration_since(UNIX_EPOCH);
        let until = until.map_or(0, |since| since.as_millis());
        Some(Self {
            user: https::user_of(own)?,
            expires_at: Time::from_unix_millis(u64::try_from(until).unwrap_or(u64::MAX)),
            chain: chain.into(),
            verified_by,
            now,
        })
    }

    /// Whether the certificate would still be accepted.
    pub(in super::super) fn is_good(&self) -> bool {
        let now = Arc::clone(&self.now.borrow());
        let same = Arc::ptr_eq(&now, &self.verified_by);
        self.expires_at > wall() && (same || now.accepts_user(&self.chain))
    }

    /// Returns the verifier of users' certificates, with its changes.
    pub(in super::super) fn changes(&self) -> watch::Receiver<Arc<HttpsServer>> {
        let mut now = self.now.clone();
        now.mark_unchanged();
        now
    }
}
