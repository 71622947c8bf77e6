//! Encodes stored values as text: eight hexadecimal digits of CRC-32, a space, JSON.

use coordinator_core::Mismatch;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Digits of the checksum and the space after them.
const HEAD_BYTES: usize = 9;

/// Why a stored value is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Corruption {
    /// The text is too short for a checksum.
    #[error("{bytes} bytes are too short for a record")]
    TooShort { bytes: usize },
    /// The checksum does not match.
    #[error("the checksum says {written} and the content {computed}")]
    Checksum {
        /// Checksum in the text.
        written: String,
        /// Checksum of the content.
        computed: String,
    },
    /// The checksum matches, but this version cannot read the content.
    #[error("the content cannot be read: {}", quiet(.0))]
    Content(serde_json::Error),
    /// The record has another number than its key.
    #[error("it holds record {seq}")]
    Misplaced {
        /// Number in the record.
        seq: u64,
    },
    /// The record cannot have happened after those before it.
    #[error("it does not fit what stands before it: {0}")]
    Unfit(Box<Mismatch>),
    /// The record is missing between its neighbours.
    #[error("it is missing")]
    Missing,
}

/// Encodes a value.
pub(super) fn seal(value: &impl Serialize) -> Vec<u8> {
    let mut line = vec![b' '; HEAD_BYTES];
    serde_json::to_writer(&mut line, value)
        .expect("our own types have text for keys and finite numbers");
    let head = head(crc32fast::hash(&line[HEAD_BYTES..]));
    line[..HEAD_BYTES].copy_from_slice(&head);
    line
}

/// The text before JSON with this checksum.
pub(super) fn head(crc32: u32) -> Vec<u8> {
    format!("{crc32:08x} ").into_bytes()
}

/// Returns the JSON of a value that was just encoded.
pub(super) fn json_of(line: &[u8]) -> String {
    let json = line[HEAD_BYTES..].to_vec();
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// Checks the checksum of a stored value and returns its JSON.
pub(super) fn unseal(line: &[u8]) -> Result<&[u8], Corruption> {
    let (head, json) = line
        .split_at_checked(HEAD_BYTES)
        .ok_or(Corruption::TooShort { bytes: line.len() })?;
    let computed = self::head(crc32fast::hash(json));
    if head == computed {
        return Ok(json);
    }
    Err(Corruption::Checksum {
        written: head[..HEAD_BYTES - 1].escape_ascii().to_string(),
        computed: computed[..HEAD_BYTES - 1].escape_ascii().to_string(),
    })
}

/// Escapes the parser's message, which may quote control characters.
fn quiet(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let quiet = |c: char| if c.is_control() { '?' } else { c };
    message.chars().map(quiet).collect()
}

/// Decodes a stored value.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Corruption> {
    serde_json::from_slice(unseal(line)?).map_err(Corruption::Content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_and_any_flipped_bit_is_seen() {
        let line = seal(&"allocated");
        assert_eq!(parse::<String>(&line).unwrap(), "allocated");
        for bit in 0..line.len() * 8 {
            let mut bent = line.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal(&bent).is_err(), "bit {bit}");
        }
        for length in 0..line.len() {
            assert!(unseal(&line[..length]).is_err(), "cut to {length}");
        }
    }
}
