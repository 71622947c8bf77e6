//! The text of one stored value: eight hexadecimal digits of CRC-32, a space, JSON.

use coordinator_core::Mismatch;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Digits of the checksum and the space behind them.
const HEAD_BYTES: usize = 9;

/// Why a stored value is not what was stored.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It has no room for a checksum.
    #[error("{bytes} bytes are too short for a record")]
    TooShort { bytes: usize },
    /// Its checksum is another one.
    #[error("the checksum says {written} and the content {computed}")]
    Checksum {
        /// What stands in front.
        written: String,
        /// What it should be.
        computed: String,
    },
    /// Whole, but nothing that this version reads.
    #[error("the content cannot be read: {}", quiet(.0))]
    Content(serde_json::Error),
    /// It stands in another place than its own.
    #[error("it holds record {seq}")]
    Misplaced {
        /// The number inside.
        seq: u64,
    },
    /// It cannot have happened after what stands before it.
    #[error("it does not fit what stands before it: {0}")]
    Unfit(Box<Mismatch>),
    /// It is not there though its neighbours are.
    #[error("it is missing")]
    Missing,
}

/// The text of `value`.
pub(super) fn seal(value: &impl Serialize) -> Vec<u8> {
    let json =
        serde_json::to_vec(value).expect("our own types have text for keys and finite numbers");
    let mut line = checksum(&json).into_bytes();
    line.push(b' ');
    line.extend_from_slice(&json);
    line
}

/// The JSON in a stored value, once its checksum was found right.
pub(super) fn unseal(line: &[u8]) -> Result<&[u8], Damage> {
    let (head, json) = line
        .split_at_checked(HEAD_BYTES)
        .ok_or(Damage::TooShort { bytes: line.len() })?;
    let computed = checksum(json);
    if head[..HEAD_BYTES - 1] == *computed.as_bytes() && head[HEAD_BYTES - 1] == b' ' {
        return Ok(json);
    }
    Err(Damage::Checksum {
        written: head[..HEAD_BYTES - 1].escape_ascii().to_string(),
        computed,
    })
}

/// The parser quotes what it read, in which there may be what a terminal would obey.
fn quiet(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let quiet = |c: char| if c.is_control() { '?' } else { c };
    said.chars().map(quiet).collect()
}

/// The value in a stored text.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Damage> {
    serde_json::from_slice(unseal(line)?).map_err(Damage::Content)
}

fn checksum(json: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(json))
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
