//! Amounts of memory as text: a whole number and a unit.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use crate::nearest::nearest;

/// Error for a text that is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The text is not a whole number followed by a unit.
    #[error(
        "`{text}` is not an amount of memory: write a whole number and one of {UNIT_LIST}{}",
        hint(suggestion)
    )]
    Malformed {
        /// The rejected text, escaped.
        text: String,
        /// The spelling that was probably meant.
        suggestion: Option<String>,
    },
    /// The amount is more than 2^63 bytes.
    #[error("`{text}` is more memory than can be counted: the maximum is 9223 PB")]
    TooMuch {
        /// The rejected text.
        text: String,
    },
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion
        .as_ref()
        .map_or_else(String::new, |s| format!(", such as `{s}`"))
}

const UNIT_LIST: &str = "B, KB, KiB, MB, MiB, GB, GiB, TB, TiB, PB, PiB";

/// Units of 1000 and of 1024, largest first, so that [`format_memory`] finds the largest exact one.
pub(super) const MEMORY_UNITS: [(&str, u64); 11] = [
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1000),
    ("B", 1),
];

/// Parses a text such as `16GiB` into bytes. The `B` may be left out behind a prefix: `16Gi` and `16G`. Other variants
/// are rejected with the right spelling.
///
/// # Errors
/// If the text is not a whole number directly followed by a unit, or counts more than 2^63 bytes.
pub fn parse_memory(text: &str) -> Result<u64, MemoryError> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let names =
        |name: &str| name == unit || (!unit.is_empty() && name.strip_suffix('B') == Some(unit));
    let known = MEMORY_UNITS.iter().find(|(name, _)| names(name));
    let (Some((_, scale)), false) = (known, number.is_empty()) else {
        return Err(MemoryError::Malformed {
            text: text.escape_default().to_string(),
            suggestion: suggest(text),
        });
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(*scale));
    bytes
        .filter(|b| *b <= 1 << 63)
        .ok_or_else(|| MemoryError::TooMuch {
            text: text.to_owned(),
        })
}

/// Formats bytes in the largest unit that divides them; [`parse_memory`] reads the result back.
pub fn format_memory(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    let (unit, scale) = MEMORY_UNITS
        .iter()
        .find(|(_, scale)| bytes.is_multiple_of(*scale))
        .expect("one byte divides all");
    format!("{}{unit}", bytes / scale)
}

/// Suggests a valid spelling for `8 GB`, `8gb`, `16Gi`, `1.5GB` or `8`.
fn suggest(text: &str) -> Option<String> {
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let split = dense.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = dense.split_at(split);
    let lower = unit.to_ascii_lowercase();
    let exact = MEMORY_UNITS.iter().find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name == lower || name.trim_end_matches('b') == lower
    });
    let (unit, scale) = exact.copied().or_else(|| {
        let near = nearest(unit, MEMORY_UNITS.iter().map(|(name, _)| *name))?;
        MEMORY_UNITS.iter().find(|(name, _)| *name == near).copied()
    })?;
    let Some((whole, fraction)) = number.split_once('.') else {
        return (!number.is_empty()).then(|| format!("{number}{unit}"));
    };
    fraction_in_smaller_unit(whole, fraction, unit, scale)
}

/// Converts a fraction to the next smaller unit: `1.5GB` is `1500MB`.
fn fraction_in_smaller_unit(whole: &str, fraction: &str, unit: &str, scale: u64) -> Option<String> {
    let binary = unit.contains('i');
    let step = if binary { 1024 } else { 1000 };
    let smaller = MEMORY_UNITS.iter().find(|(_, s)| *s == scale / step)?;
    let digits = u32::try_from(fraction.len()).ok().filter(|d| *d <= 9)?;
    let shifted: u64 = format!("{whole}{fraction}").parse().ok()?;
    let amount = shifted.checked_mul(step)?.div_ceil(10u64.pow(digits));
    Some(format!("{amount}{}", smaller.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::megabytes_up;
    use proptest::prelude::*;

    #[test]
    fn memory_counts_decimal_and_binary_units_exactly() {
        assert_eq!(parse_memory("16GiB"), Ok(17_179_869_184));
        assert_eq!(megabytes_up(17_179_869_184), 17_180);
        assert_eq!(parse_memory("2GB"), Ok(2_000_000_000));
        assert_eq!(parse_memory("0B"), Ok(0));
        assert_eq!(parse_memory("64G"), parse_memory("64GB"));
        assert_eq!(parse_memory("64Gi"), parse_memory("64GiB"));
    }

    #[test]
    fn what_others_would_guess_at_is_refused_with_the_right_spelling() {
        for (text, right) in [
            ("8 GB", "8GB"),
            ("8gb", "8GB"),
            ("16gi", "16GiB"),
            ("1.5GB", "1500MB"),
            ("1.5GiB", "1536MiB"),
            ("4g", "4GB"),
            ("4m", "4MB"),
        ] {
            let message = parse_memory(text).unwrap_err().to_string();
            assert!(
                message.ends_with(&format!("such as `{right}`")),
                "{text}: {message}"
            );
        }
        for text in ["", "8", "GB", "-8GB", "8XB", "0x8GB"] {
            assert!(
                matches!(parse_memory(text), Err(MemoryError::Malformed { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            parse_memory("9999999PiB"),
            Err(MemoryError::TooMuch { .. })
        ));
    }

    proptest! {
        #[test]
        fn shown_memory_is_read_back(bytes in 0u64..=(1 << 63)) {
            prop_assert_eq!(parse_memory(&format_memory(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,24}") {
            let _ = parse_memory(&text);
        }
    }
}
