//! Ids of steps without a chosen one: random, or derived from an idempotency key so that a repeated call gets the same
//! id.

use axum::http::HeaderMap;
use ring::digest::{SHA256, digest};
use sluice_common::hex;
use sluice_common::id::StepId;

use super::error::ApiError;
use super::random::random_bytes;

/// Letters that are easy to distinguish and to type; a power of two, so that all are equally likely.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Characters of a random id, a little less than 60 bits. With a hundred thousand remembered steps, one in 10^13 new
/// ids collides.
const DRAWN_CHARS: usize = 12;

/// Bytes of the hash in a derived id: 160 bits prevent collisions, even on purpose.
const DERIVED_BYTES: usize = 20;

const MAX_KEY_BYTES: usize = 255;

/// Returns a random id: short, in lower case, beginning with a letter.
pub(super) fn draw() -> Result<StepId, ApiError> {
    let bytes = random_bytes::<DRAWN_CHARS>("an id")?;
    let letter = |index: usize| char::from(ALPHABET[index]);
    // The first letter is one of sixteen, which is as even as the others.
    let first = letter(usize::from(bytes[0] % 16));
    let rest = bytes[1..].iter().map(|byte| letter(usize::from(byte % 32)));
    Ok(well_formed(std::iter::once(first).chain(rest).collect()))
}

/// Returns the call's idempotency key, if it has one.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("");
    if text.is_empty() || text.len() > MAX_KEY_BYTES {
        return Err(ApiError::InvalidIdempotencyKey {
            limit: MAX_KEY_BYTES,
        });
    }
    Ok(Some(text.to_owned()))
}

/// An idempotency key with its caller, so that equal keys of two callers never collide.
#[derive(Clone, Debug)]
pub(super) struct IdempotencyKey {
    /// Text of [`super::access::Caller::binding`].
    pub(super) caller: String,
    pub(super) key: String,
}

/// Returns the id of the step at `index` of a call with this key.
pub(super) fn derive(IdempotencyKey { caller, key }: &IdempotencyKey, index: usize) -> StepId {
    // The length in front makes the text unambiguous.
    let text = format!("{}:{caller}:{index}:{key}", caller.len());
    let hash = digest(&SHA256, text.as_bytes());
    let digits = hex::encode(&hash.as_ref()[..DERIVED_BYTES]);
    well_formed(format!("k{digits}"))
}

fn well_formed(text: String) -> StepId {
    StepId::new(text).expect("letters and digits, fewer than 63")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_ids_are_short_lower_case_and_begin_with_a_letter() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| draw().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let text = id.as_str();
            assert_eq!(text.len(), DRAWN_CHARS);
            assert!(text.starts_with(|c: char| c.is_ascii_lowercase()), "{text}");
            assert!(
                text.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
                "{text}"
            );
        }
    }

    #[test]
    fn one_key_of_one_caller_is_one_id_for_each_place() {
        let derive = |caller: &str, key: &str, index| {
            let (caller, key) = (caller.to_owned(), key.to_owned());
            derive(&IdempotencyKey { caller, key }, index)
        };
        assert_eq!(derive("a", "k", 0), derive("a", "k", 0));
        assert_ne!(derive("a", "k", 0), derive("a", "k", 1));
        assert_ne!(derive("a", "k", 11), derive("a", "1:k", 1));
        assert_ne!(derive("a", "k", 0), derive("b", "k", 0));
        assert_ne!(derive("a:0", "k", 0), derive("a", "0:k", 0));
        assert_ne!(derive("a", "0:k", 0), derive("a:0", "k", 0));
        assert_eq!(derive("a", "k", 0).as_str().len(), 41);
    }
}
