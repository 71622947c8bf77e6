//! Stateless reset of QUIC, by which a restarted coordinator tells agents that their old links are dead.
//!
//! A restarted coordinator has no state of old links. It can only send the reset token that each peer got when its link
//! was established. The tokens are derived from a key that outlives the process, so agents believe them and reconnect
//! at once; with random tokens they would keep a dead link until the idle limit.

use std::fmt;
use std::sync::Arc;

use quinn::EndpointConfig;
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac::{self, HMAC_SHA256};
use rustls::pki_types::PrivateKeyDer;

use crate::settings;

/// Key for deriving tokens and connection ids. With it one can break links, nothing else.
#[derive(Clone)]
pub(crate) struct ResetKey(hmac::Key);

impl ResetKey {
    /// Derives the key from a private key.
    pub(crate) fn of(key: &PrivateKeyDer<'_>) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, key.secret_der());
        let secret = hmac::sign(&key, b"sluice/1 stateless reset");
        Self(hmac::Key::new(HMAC_SHA256, secret.as_ref()))
    }

    /// Endpoint configuration whose resets are accepted by peers of all endpoints with the same key.
    pub(crate) fn endpoint_config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(self.0.clone()));
        config.min_reset_interval(settings::RESET_INTERVAL);
        // The endpoint must recognise the connection ids of an earlier process to answer them.
        let names = self.names();
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(names)));
        config
    }

    fn names(&self) -> u64 {
        let tag = hmac::sign(&self.0, b"connection ids");
        let (head, _) = tag
            .as_ref()
            .split_first_chunk()
            .expect("SHA-256 has 32 bytes");
        u64::from_le_bytes(*head)
    }
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    fn key(bytes: &[u8]) -> ResetKey {
        ResetKey::of(&PrivatePkcs8KeyDer::from(bytes.to_vec()).into())
    }

    #[test]
    fn one_key_gives_one_secret_and_another_another() {
        assert_eq!(key(b"one").names(), key(b"one").names());
        assert_ne!(key(b"one").names(), key(b"two").names());
        assert_eq!(format!("{:?}", key(b"one")), "ResetKey(..)");
    }
}
