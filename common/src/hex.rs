//! Hexadecimal encoding and decoding, lower case.

use alloc::string::String;
use alloc::vec::Vec;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Encodes each byte as two digits.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let pairs = bytes.iter().map(|byte| [byte >> 4, byte & 15]);
    pairs.flatten().map(digit).collect()
}

/// Decodes exactly `2 * N` digits of either case; `None` for any other text.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let fits = text.len() == 2 * N;
    fits.then(|| decode_all(text)?.try_into().ok())?
}

/// Decodes two digits of either case for each byte; `None` for any other text.
pub fn decode_all(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| Some(value(*high)? << 4 | value(*low)?);
    pairs.iter().map(byte).collect()
}

fn value(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else() {
        let bytes: [u8; 256] = core::array::from_fn(|n| u8::try_from(n).unwrap());
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(encode(&[0, 0x0a, 0xf0]), "000af0");
        assert_eq!(decode("00AF"), Some([0, 0xaf]));
        assert_eq!(decode(""), Some([]));
        for bad in ["0", "000", "00000", "0g00", "+1+1", " 000", "é00"] {
            assert_eq!(decode::<2>(bad), None, "{bad}");
        }
    }
}
