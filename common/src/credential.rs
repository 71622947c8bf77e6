//! By what a node is let in: the words that tokens, certificates and records share. How certificates look is the
//! transport's, who may have one is the coordinator core's.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The longest time for which a join token may be good.
pub const MAX_TOKEN_TTL: crate::time::Span = crate::time::Span::from_secs(90 * 24 * 3600);

/// For how long a join token is good unless whoever makes it says otherwise.
pub const DEFAULT_TOKEN_TTL: crate::time::Span = crate::time::Span::from_secs(3600);

/// Most hosts that one join token lets in.
pub const MAX_TOKEN_USES: u32 = 10_000;

/// How often a node's access was given anew. A certificate of an earlier generation than the node's opens nothing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Generation(u64);

impl Generation {
    /// The one of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Its number; 0 is that of a certificate that states none.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a node's certificate says beside its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeClaim {
    /// The pool for which it was issued; `None` where the node's config may name any.
    pub pool: Option<crate::id::PoolName>,
    /// Of which generation it is.
    pub generation: Generation,
}

/// A text that is no hash.
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
            /// Of these bytes.
            pub const fn new(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
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
    /// The SHA-256 of a certificate or of a public key, by which it is told from others.
    Fingerprint
);
hash!(
    /// The SHA-256 of the secret of a join token: all that is kept of it.
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
