//! Credentials of nodes: values shared by join tokens, certificates and records. The certificates' format is in
//! `sluice-transport`; the coordinator's core decides who gets one.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Longest lifetime of a join token.
pub const MAX_TOKEN_TTL: crate::time::Span = crate::time::Span::from_secs(90 * 24 * 3600);

/// Default lifetime of a join token.
pub const DEFAULT_TOKEN_TTL: crate::time::Span = crate::time::Span::from_secs(3600);

/// Largest number of hosts that one join token may admit.
pub const MAX_TOKEN_USES: u32 = 10_000;

/// Number of times that a node's access was renewed from scratch. A certificate of an earlier generation is not
/// accepted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Generation(u64);

impl Generation {
    /// Makes a generation from its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The following generation, saturating.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Number of the generation; 0 for certificates that state none.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Statements of a node's certificate besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeClaim {
    /// The pool that the certificate was issued for; `None` leaves the choice to the node's config.
    pub pool: Option<crate::id::PoolName>,
    /// Generation of the certificate.
    pub generation: Generation,
}

/// Error for a text that is not a SHA-256 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is written as 64 hexadecimal digits")]
pub struct HashParseError;

macro_rules! hash {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        #[serde(try_from = "String", into = "String")]
        pub struct $type([u8; 32]);

        impl $type {
            /// Wraps the bytes of a hash.
            pub const fn new(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes of the hash.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&crate::hex::encode(&self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }

        impl FromStr for $type {
            type Err = HashParseError;
            fn from_str(text: &str) -> Result<Self, HashParseError> {
                crate::hex::decode(text).map(Self).ok_or(HashParseError)
            }
        }

        impl TryFrom<String> for $type {
            type Error = HashParseError;
            fn try_from(text: String) -> Result<Self, HashParseError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(hash: $type) -> String {
                alloc::format!("{hash}")
            }
        }
    };
}

hash!(
    /// SHA-256 of a certificate or of a public key.
    Fingerprint
);
hash!(
    /// SHA-256 of the secret of a join token. The secret itself is not stored.
    SecretHash
);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = Fingerprint::new(core::array::from_fn(|n| n as u8 * 7));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().len(), 64);
        for bad in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"0".repeat(65)] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(HashParseError), "{bad}");
        }
    }

    #[test]
    fn generations_only_grow() {
        assert!(Generation::default() < Generation::new(3).next());
        assert_eq!(Generation::new(u64::MAX).next().number(), u64::MAX);
    }
}
