//! Notation of golden bytes: hex pairs, texts in single quotes, comments from `#` to the end of a line.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_codec::{decode, encode};

/// Limit that every message here fits in.
const MAX: usize = 4096;

/// Parses the notation into bytes.
fn bytes(golden: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in golden.lines() {
        let line = line.split('#').next().unwrap();
        for (i, part) in line.split('\'').enumerate() {
            if i % 2 == 1 {
                bytes.extend_from_slice(part.as_bytes());
            } else {
                bytes.extend(hex(part));
            }
        }
    }
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hex digit") as u8)
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "half a byte in {text:?}");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}

/// Checks that `value` encodes to `golden` and decodes from it, and from no shorter or longer bytes.
pub(crate) fn check<T>(value: &T, golden: &str)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let golden = bytes(golden);
    let written = encode(value, MAX).unwrap();
    assert_eq!(
        shown(&written),
        shown(&golden),
        "{value:?}\nis written as the left, and golden is the right"
    );
    assert_eq!(&decode::<T>(&golden, MAX).unwrap(), value);
    for len in 0..golden.len() {
        let short = decode::<T>(&golden[..len], MAX);
        assert!(short.is_err(), "{len} bytes were taken for {short:?}");
    }
    let mut long = golden;
    long.push(0);
    assert!(decode::<T>(&long, MAX).is_err(), "{value:?} and a byte");
}

fn shown(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    pairs.join(" ")
}
