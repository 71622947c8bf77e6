//! Join lines: the text that an admin pastes on a host to join it, with the coordinator's addresses, the authority's
//! fingerprint and a secret. The coordinator creates them and the agent parses them.
//!
//! ```text
//! sluice-join-1.BASE64URL
//!               length (2 bytes) | fingerprint (32) | secret (32) | node | addresses | checksum (4)
//! ```
//! Names and addresses have a length byte in front; an empty node means any. The length counts everything after it, so
//! that a truncated line is detected as such.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use sluice_common::credential::{Fingerprint, SecretHash};
use sluice_common::id::NodeName;
use sluice_common::join::{JoinSecret, SECRET_BYTES};

use crate::certificate::sha256;

/// Prefix of lines of this version.
const PREFIX: &str = "sluice-join-1.";
/// Prefix of lines of all versions.
const ANY_PREFIX: &str = "sluice-join-";
const LENGTH_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 4;
const HASH_BYTES: usize = 32;
/// Most coordinator addresses in a line.
pub const MAX_LINE_ADDRESSES: usize = 8;
/// Longest line that is parsed, in characters: eight addresses of the longest form and the rest.
pub const MAX_LINE_CHARS: usize = 4096;

/// Contents of a join line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinLine {
    /// Addresses of the coordinator as HOST:PORT; at least one.
    pub addresses: Vec<String>,
    /// Fingerprint of the authority of the coordinator's certificate.
    pub authority: Fingerprint,
    /// Secret of the join token.
    pub secret: JoinSecret,
    /// The only node name that may join; `None` for any.
    pub node: Option<NodeName>,
}

/// Error for a text that is not a join line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinLineError {
    /// The text is something else.
    #[error(
        "this is not a join line: copy the whole line that `sluice token create` printed, from `{PREFIX}` to its end"
    )]
    NotAJoinLine,
    /// The line has another version.
    #[error(
        "this join line has a version that this agent does not know: install the coordinator's release here, or create the token with a coordinator of this release"
    )]
    Version,
    /// The line is truncated.
    #[error("the join line is cut off: it has {has} characters of {wanted}; copy it whole")]
    CutOff {
        /// Number of characters found.
        has: usize,
        /// Number of characters expected.
        wanted: usize,
    },
    /// The line was altered, or something follows it.
    #[error("the join line was altered: copy it again, with nothing before or after it")]
    Changed,
}

/// Hash under which a secret is stored.
pub fn hash_of(secret: &JoinSecret) -> SecretHash {
    SecretHash::new(sha256(&secret.0))
}

impl fmt::Display for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = Vec::new();
        body.extend(self.authority.as_bytes());
        body.extend(self.secret.0);
        put(&mut body, self.node.as_ref().map_or("", NodeName::as_str));
        for address in self.addresses.iter().take(MAX_LINE_ADDRESSES) {
            put(&mut body, address);
        }
        let checksum = sha256(&body);
        body.extend(&checksum[..CHECKSUM_BYTES]);
        let length = u16::try_from(body.len()).map_err(|_| fmt::Error)?;
        let bytes = [&length.to_be_bytes()[..], &body].concat();
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

/// Appends a text with its length. Overlong addresses are truncated, as they cannot be valid.
fn put(body: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(usize::from(u8::MAX));
    let length = u8::try_from(end).expect("it was cut to fit");
    body.push(length);
    body.extend(&text.as_bytes()[..end]);
}

impl FromStr for JoinLine {
    type Err = JoinLineError;

    fn from_str(text: &str) -> Result<Self, JoinLineError> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(
                match text.starts_with(ANY_PREFIX) && !PREFIX.starts_with(text) {
                    true => JoinLineError::Version,
                    false => JoinLineError::NotAJoinLine,
                },
            );
        };
        if text.len() > MAX_LINE_CHARS {
            return Err(JoinLineError::Changed);
        }
        check_length(encoded)?;
        let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes());
        let bytes = bytes.map_err(|_| JoinLineError::Changed)?;
        let body = bytes.get(LENGTH_BYTES..).ok_or(JoinLineError::Changed)?;
        let split = body.len().checked_sub(CHECKSUM_BYTES);
        let (body, checksum) = body.split_at(split.ok_or(JoinLineError::Changed)?);
        if sha256(body)[..CHECKSUM_BYTES] != *checksum {
            return Err(JoinLineError::Changed);
        }
        read(body).ok_or(JoinLineError::Changed)
    }
}

/// Checks the length encoded in the first four characters.
fn check_length(encoded: &str) -> Result<(), JoinLineError> {
    let has = encoded.len() + PREFIX.len();
    let head = encoded
        .as_bytes()
        .get(..4)
        .and_then(|head| BASE64URL_NOPAD.decode(head).ok());
    let Some(&[high, low, ..]) = head.as_deref() else {
        return Err(JoinLineError::CutOff {
            has,
            wanted: PREFIX.len() + BASE64URL_NOPAD.encode_len(LENGTH_BYTES + 2 * HASH_BYTES),
        });
    };
    let length = LENGTH_BYTES + usize::from(u16::from_be_bytes([high, low]));
    let wanted = PREFIX.len() + BASE64URL_NOPAD.encode_len(length);
    match has.cmp(&wanted) {
        std::cmp::Ordering::Less => Err(JoinLineError::CutOff { has, wanted }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(JoinLineError::Changed),
    }
}

fn read(body: &[u8]) -> Option<JoinLine> {
    let (authority, body) = body.split_first_chunk::<HASH_BYTES>()?;
    let (secret, mut rest) = body.split_first_chunk::<SECRET_BYTES>()?;
    let node = take(&mut rest)?;
    let node = match node {
        "" => None,
        name => Some(NodeName::new(name).ok()?),
    };
    let mut addresses = Vec::new();
    while !rest.is_empty() {
        addresses.push(take(&mut rest)?.to_owned());
    }
    (1..=MAX_LINE_ADDRESSES)
        .contains(&addresses.len())
        .then(|| JoinLine {
            addresses,
            authority: Fingerprint::new(*authority),
            secret: JoinSecret(*secret),
            node,
        })
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, tail) = rest.split_first()?;
    let (text, tail) = tail.split_at_checked(usize::from(*length))?;
    *rest = tail;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> JoinLine {
        JoinLine {
            addresses: vec!["coord-1:7443".to_owned(), "[fd00::1]:7443".to_owned()],
            authority: Fingerprint::new([7; 32]),
            secret: JoinSecret([9; 32]),
            node: Some(NodeName::new("gpu-7").unwrap()),
        }
    }

    #[test]
    fn a_line_is_read_as_it_is_written_with_room_around_it() {
        let text = format!("  {}\n", line());
        assert_eq!(text.parse(), Ok(line()));
        let any = JoinLine {
            node: None,
            ..line()
        };
        assert_eq!(any.to_string().parse(), Ok(any));
    }

    #[test]
    fn every_part_of_a_line_is_told_to_be_one() {
        let whole = line().to_string();
        for end in PREFIX.len()..whole.len() {
            let error = whole[..end].parse::<JoinLine>().unwrap_err();
            assert!(
                matches!(error, JoinLineError::CutOff { has, .. } if has == end),
                "{end}: {error}"
            );
        }
        let error = whole[..PREFIX.len() + 40].parse::<JoinLine>().unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("54 characters of {}", whole.len())),
            "{error}"
        );
    }

    #[test]
    fn a_line_that_was_changed_or_is_another_thing_is_told_so() {
        let whole = line().to_string();
        let flipped = |at: usize| {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            String::from_utf8(bytes).unwrap()
        };
        for at in [PREFIX.len() + 10, whole.len() / 2, whole.len() - 8] {
            assert_eq!(
                flipped(at).parse::<JoinLine>(),
                Err(JoinLineError::Changed),
                "{at}"
            );
        }
        let longer = format!("{whole}x");
        assert_eq!(longer.parse::<JoinLine>(), Err(JoinLineError::Changed));
        for other in ["", "hello", "sluice-join", "sluice-join-1"] {
            assert_eq!(
                other.parse::<JoinLine>(),
                Err(JoinLineError::NotAJoinLine),
                "{other}"
            );
        }
        let later = "sluice-join-2.AAAA".parse::<JoinLine>();
        assert_eq!(later, Err(JoinLineError::Version));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert!(format!("{:?}", line()).contains("Secret(..)"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(sluice-join-1\\.)?[A-Za-z0-9_-]{0,200}") {
            let _either = text.parse::<JoinLine>();
        }
    }
}
