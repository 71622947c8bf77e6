//! Encodes and decodes single values with size limits. The only place that configures `bincode`.

use bincode::config::{self, Config};
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CodecError;

/// Most memory that the lengths inside one message may claim, in bytes. Callers' own limits are lower.
const MAX_CLAIM_BYTES: usize = 16 * 1024 * 1024;

/// Lower limits for messages of at most half as many bytes. `bincode` takes the limit as a constant and allocates
/// before it reads, so with a single limit a peer could claim megabytes with twenty bytes.
const SMALL_CLAIM_BYTES: usize = 16 * 1024;
const MIDDLING_CLAIM_BYTES: usize = 512 * 1024;

const fn layout<const MAX: usize>() -> impl Config {
    config::legacy().with_limit::<MAX>()
}

/// Encodes `value` in at most `max_bytes` bytes.
///
/// # Errors
/// [`CodecError::TooLarge`] as soon as the limit is exceeded, without allocating more; [`CodecError::Unencodable`] for
/// a type that has no encoding.
pub fn encode<T: Serialize + ?Sized>(value: &T, max_bytes: usize) -> Result<Vec<u8>, CodecError> {
    encode_after(Vec::new(), value, max_bytes)
}

/// Appends the encoding of `value`, at most `max_bytes` bytes, to `start`.
pub(crate) fn encode_after<T: Serialize + ?Sized>(
    start: Vec<u8>,
    value: &T,
    max_bytes: usize,
) -> Result<Vec<u8>, CodecError> {
    let mut sink = BoundedWriter {
        room: max_bytes,
        bytes: start,
        full: false,
    };
    match bincode::serde::encode_into_writer(value, &mut sink, layout::<MAX_CLAIM_BYTES>()) {
        Ok(()) => Ok(sink.bytes),
        Err(_) if sink.full => Err(CodecError::too_large::<T>(max_bytes)),
        Err(error) => Err(CodecError::unencodable::<T>(encode_reason(error))),
    }
}

/// Decodes a value from exactly these bytes.
///
/// # Errors
/// If there are more than `max_bytes` bytes, if they do not encode a `T`, or if some are left over.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], max_bytes: usize) -> Result<T, CodecError> {
    if bytes.len() > max_bytes {
        return Err(CodecError::BodyTooLarge {
            bytes: bytes.len(),
            max: max_bytes,
        });
    }
    let claim = bytes.len() * 2;
    let read = if claim <= SMALL_CLAIM_BYTES {
        read_within::<T, SMALL_CLAIM_BYTES>
    } else if claim <= MIDDLING_CLAIM_BYTES {
        read_within::<T, MIDDLING_CLAIM_BYTES>
    } else {
        read_within::<T, MAX_CLAIM_BYTES>
    };
    let (value, used) =
        read(bytes).map_err(|error| CodecError::malformed::<T>(decode_reason(error)))?;
    match bytes.len() - used {
        0 => Ok(value),
        extra => Err(CodecError::trailing::<T>(extra)),
    }
}

/// Decodes a value and returns the number of bytes used.
fn read_within<T: DeserializeOwned, const MAX: usize>(
    bytes: &[u8],
) -> Result<(T, usize), DecodeError> {
    bincode::serde::decode_from_slice(bytes, layout::<MAX>())
}

/// Writer into a vector of limited length.
struct BoundedWriter {
    bytes: Vec<u8>,
    room: usize,
    full: bool,
}

impl Writer for &mut BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let Some(rest) = self.room.checked_sub(bytes.len()) else {
            self.full = true;
            return Err(EncodeError::UnexpectedEnd);
        };
        self.room = rest;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

fn encode_reason(error: EncodeError) -> String {
    match error {
        EncodeError::OtherString(text) => text,
        other => other.to_string(),
    }
}

/// Translates `bincode` errors that a peer can cause; `bincode` prints them as Rust source.
fn decode_reason(error: DecodeError) -> String {
    match error {
        DecodeError::UnexpectedEnd { .. } => "they end too early".to_owned(),
        DecodeError::LimitExceeded => "a length inside is beyond any limit".to_owned(),
        DecodeError::InvalidBooleanValue(byte) => format!("{byte} is neither true nor false"),
        DecodeError::Utf8 { inner } => format!("a text is not UTF-8: {inner}"),
        DecodeError::OtherString(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_larger_than_the_limit_is_not_encoded() {
        assert_eq!(encode("abc", 11).unwrap().len(), 11);
        let error = encode("abc", 10).unwrap_err();
        assert_eq!(error, CodecError::too_large::<str>(10));
    }

    #[test]
    fn bytes_beyond_the_limit_are_not_looked_at() {
        let error = decode::<u8>(&[0; 5], 4).unwrap_err();
        assert_eq!(error, CodecError::BodyTooLarge { bytes: 5, max: 4 });
    }

    #[test]
    fn what_is_left_over_is_refused() {
        let error = decode::<u8>(&[1, 2, 3], 100).unwrap_err();
        assert_eq!(error, CodecError::trailing::<u8>(2));
    }

    #[test]
    fn a_claim_of_more_than_there_is_takes_no_memory() {
        for len in [u64::MAX, u64::MAX / 2, 1 << 40, MAX_CLAIM_BYTES as u64 + 1] {
            let bytes = len.to_le_bytes();
            assert!(decode::<String>(&bytes, 100).is_err(), "{len}");
            assert!(decode::<Vec<u64>>(&bytes, 100).is_err(), "{len}");
        }
    }

    #[test]
    fn errors_say_what_was_expected_and_what_is_wrong() {
        let reason = |bytes: &[u8]| {
            decode::<Option<String>>(bytes, 100)
                .unwrap_err()
                .to_string()
        };
        let text = reason(&[1, 3, 0]);
        assert!(text.contains("Option<alloc::string::String>"), "{text}");
        assert!(text.ends_with("they end too early"), "{text}");
        let text = reason(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0xff]);
        assert!(text.contains("not UTF-8"), "{text}");
    }
}
