//! How a coordinator that has died and come back tells its old links that they are dead. Used where it listens.
//!
//! It knows nothing of them any more, so all that it can say is QUIC's stateless reset: a token that it told each peer
//! when the link was made. Where the tokens come from a key that outlives the process, agents believe them and dial
//! anew within a sign of life; where each process draws its own, they hold on to a dead link until it has been silent
//! for the idle limit, and nothing starts on them meanwhile.

use std::fmt;
use std::sync::Arc;

use quinn::EndpointConfig;
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac::{self, HMAC_SHA256};
use rustls::pki_types::PrivateKeyDer;

use crate::settings;

/// What tokens and the names of links are derived from. Whoever knows it can break links and nothing else.
#[derive(Clone)]
pub(crate) struct ResetKey(hmac::Key);

impl ResetKey {
    /// The one that belongs to a private key.
    pub(crate) fn of(key: &PrivateKeyDer<'_>) -> Self {
        let key = hmac::Key::new(HMAC_SHA256, key.secret_der());
        let secret = hmac::sign(&key, b"sluice/1 stateless reset");
        Self(hmac::Key::new(HMAC_SHA256, secret.as_ref()))
    }

    /// An endpoint whose resets are believed by the peers of every endpoint with the same key.
    pub(crate) fn endpoint_config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(self.0.clone()));
        config.min_reset_interval(settings::RESET_INTERVAL);
        // It must know the names that an earlier process gave for its own, or it would not answer to them.
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
