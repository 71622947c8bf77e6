//! Mutates inputs: bytes, lengths and other integers, words of the format, pieces of other inputs, and values that the
//! code compared.

use crate::coverage;
use crate::random::Random;

/// Integers at which code often fails.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    7,
    16,
    100,
    127,
    128,
    255,
    256,
    1 << 15,
    65_535,
    65_536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 53,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// The same as text, and values in place of numbers.
const WRITTEN: &[&str] = &[
    "0",
    "-1",
    "1",
    "0.5",
    "1e400",
    "-0",
    "1e-9",
    "255",
    "65536",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "NaN",
    "null",
    "\"\"",
    "[]",
    "{}",
    "true",
];

/// Texts that programs often mishandle: terminators, path traversal, control sequences, non-ASCII.
const TEXTS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b"\x1b[2J",
    b"\x1b]0;t\x07",
    b"\x7f",
    b"../",
    b"/../..",
    b"%2e%2e%2f",
    b"%00",
    b"\\u0000",
    b"\\ud800",
    b"\\",
    b"\"",
    b"'",
    b"${",
    b"}",
    b"$$",
    b"#",
    b"---\n",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!str ",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{1f980}".as_bytes(),
    "\u{e9}".as_bytes(),
    "\u{9b}".as_bytes(),
    b" ",
    b",",
    b":",
    b"=",
    b"!=",
    b"&&",
    b"||",
    b"(",
    b")",
    b"[",
    b"]",
    b"{",
    b"}",
];

/// Mutates inputs with these parameters.
pub(crate) struct Mutator<'a> {
    pub(crate) random: Random,
    /// Words of the format.
    pub(crate) words: &'a [&'a str],
    pub(crate) max_bytes: usize,
}

impl Mutator<'_> {
    /// Returns a changed copy of `from`, which may contain pieces of `other`.
    pub(crate) fn mutate(&mut self, from: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = from.to_vec();
        for _ in 0..=self.random.below(6) {
            self.change(&mut bytes, other);
        }
        bytes.truncate(self.max_bytes);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        match self.random.below(14) {
            0 => self.flip(bytes),
            1 => self.set_byte(bytes),
            2 => self.insert_noise(bytes),
            3 => self.delete(bytes),
            4 => self.repeat(bytes),
            5 => self.splice(bytes, other),
            6 | 7 => self.put_word(bytes),
            8 => self.put_text(bytes),
            9 => self.set_number(bytes),
            10 => self.write_number(bytes),
            11 | 12 => self.answer_comparison(bytes),
            _ => self.truncate(bytes),
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let bit = self.random.below(8);
        let at = self.random.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn set_byte(&mut self, bytes: &mut [u8]) {
        let (at, value) = (self.random.below(bytes.len()), self.random.byte());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
    }

    fn insert_noise(&mut self, bytes: &mut Vec<u8>) {
        let noise: Vec<u8> = (0..=self.random.below(16))
            .map(|_| self.random.byte())
            .collect();
        self.insert(bytes, &noise);
    }

    fn insert(&mut self, bytes: &mut Vec<u8>, what: &[u8]) {
        let at = self.random.below(bytes.len() + 1);
        bytes.splice(at..at, what.iter().copied());
    }

    /// Picks a piece of `len` bytes, usually a short one.
    fn piece(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.random.below(len);
        let longest = match self.random.below(4) {
            0 => len - start.min(len),
            _ => 16.min(len - start.min(len)),
        };
        start..(start + self.random.below(longest + 1)).min(len)
    }

    fn delete(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes.len());
        bytes.drain(piece);
    }

    /// Repeats a piece, seldom very often: deep nesting or great length.
    fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes.len());
        let times = match self.random.below(8) {
            0 => 1 + self.random.below(300),
            _ => 1 + self.random.below(4),
        };
        let again = bytes[piece.clone()].repeat(times);
        bytes.splice(piece.end..piece.end, again);
        bytes.truncate(self.max_bytes);
    }

    fn splice(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (from, to) = (self.piece(other.len()), self.piece(bytes.len()));
        bytes.splice(to, other[from].iter().copied());
    }

    fn put_word(&mut self, bytes: &mut Vec<u8>) {
        if let Some(word) = self.random.one_of(self.words) {
            self.put(bytes, word.as_bytes());
        }
    }

    fn put_text(&mut self, bytes: &mut Vec<u8>) {
        if let Some(text) = self.random.one_of(TEXTS) {
            self.put(bytes, text);
        }
    }

    /// Inserts bytes, or overwrites some.
    fn put(&mut self, bytes: &mut Vec<u8>, what: &[u8]) {
        match self.random.below(2) {
            0 => self.insert(bytes, what),
            _ => {
                let start = self.random.below(bytes.len());
                let end = (start + what.len()).min(bytes.len());
                bytes.splice(start..end, what.iter().copied());
            }
        }
    }

    fn set_number(&mut self, bytes: &mut [u8]) {
        let number = self.random.one_of(NUMBERS).copied().unwrap_or(0);
        let width = 1 << self.random.below(4);
        let start = self.random.below(bytes.len());
        if let Some(place) = bytes.get_mut(start..start + width) {
            place.copy_from_slice(&number.to_le_bytes()[..width]);
        }
    }

    /// Replaces a number in the text by another.
    fn write_number(&mut self, bytes: &mut Vec<u8>) {
        let from = self.random.below(bytes.len());
        let Some(start) = (from..bytes.len()).find(|at| bytes[*at].is_ascii_digit()) else {
            return;
        };
        let len = bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if let Some(written) = self.random.one_of(WRITTEN) {
            bytes.splice(start..start + len, written.bytes());
        }
    }

    /// Replaces a value that the code compared by the one that it was compared with.
    fn answer_comparison(&mut self, bytes: &mut [u8]) {
        let draw = self.random.below(usize::MAX);
        let Some((one, other, width)) = coverage::compared(draw) else {
            return self.flip(bytes);
        };
        let (there, wanted) = match self.random.below(2) {
            0 => (one, other),
            _ => (other, one),
        };
        let (there, wanted) = (there.to_le_bytes(), wanted.to_le_bytes());
        let from = self.random.below(bytes.len());
        let found = bytes
            .get(from..)
            .unwrap_or_default()
            .windows(width)
            .position(|window| window == &there[..width]);
        if let Some(at) = found.map(|at| from + at) {
            bytes[at..at + width].copy_from_slice(&wanted[..width]);
        }
    }

    fn truncate(&mut self, bytes: &mut Vec<u8>) {
        let len = self.random.below(bytes.len());
        bytes.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_grows_beyond_its_bound_and_most_changes_change() {
        let mut mutator = Mutator {
            random: Random::new(),
            words: &["word"],
            max_bytes: 200,
        };
        let mut same = 0;
        for round in 0..20_000 {
            let from = vec![b'7'; round % 50];
            let made = mutator.mutate(&from, b"0123456789");
            assert!(made.len() <= 200);
            same += usize::from(made == from);
        }
        assert!(same < 4_000, "{same} of 20,000 changes change nothing");
    }
}
