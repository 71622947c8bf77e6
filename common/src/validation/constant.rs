//! Parses constants in rules: numbers, amounts of memory, durations.

use alloc::format;
use alloc::string::{String, ToString};

use super::number::Ratio;
use super::value::FactValue;
use crate::amount::parse_memory;
use crate::nearest::nearest;
use crate::time::Span;

/// Parses a number, an amount of memory or a duration. Decimal amounts are allowed, since fractions are exact.
pub(super) fn read(text: &str) -> Option<FactValue> {
    let split = text.find(|c: char| c.is_ascii_alphabetic());
    let Some(split) = split else {
        return Ratio::decimal(text).map(FactValue::Number);
    };
    let (number, unit) = text.split_at(split);
    // The unit's size is the amount of one unit.
    if let Ok(size) = parse_memory(&format!("1{unit}")) {
        let bytes = Ratio::decimal(number)?.times(Ratio::whole(size.into()))?;
        return Some(FactValue::Bytes(bytes));
    }
    if let Ok(one) = format!("1{unit}").parse::<Span>() {
        let millis = Ratio::decimal(number)?.times(Ratio::whole(one.millis().into()))?;
        return Some(FactValue::Time(millis));
    }
    let span: Span = text.parse().ok()?;
    Some(FactValue::time(Some(span)))
}

/// Suggests a valid spelling.
pub(super) fn hint(text: &str) -> String {
    const UNITS: [&str; 16] = [
        "KiB", "MiB", "GiB", "TiB", "PiB", "B", "KB", "MB", "GB", "TB", "PB", "ms", "s", "m", "h",
        "d",
    ];
    let split = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let lower = unit.to_ascii_lowercase();
    let same = |known: &&str| {
        let known = known.to_ascii_lowercase();
        known == lower || known.trim_end_matches('b') == lower
    };
    let meant = UNITS
        .into_iter()
        .find(same)
        .or_else(|| nearest(unit, UNITS));
    match meant.filter(|_| Ratio::decimal(number).is_some()) {
        Some(meant) => format!("did you mean `{number}{meant}`?"),
        None => "write one such as `8`, `0.9`, `16GiB` or `2h30m`".to_string(),
    }
}
