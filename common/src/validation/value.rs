//! Values of facts and expressions, and their kinds, which are known when a rule is parsed.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use super::number::Ratio;
use crate::time::Span;

/// Kind of a value. Only equal kinds can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A plain number.
    Number,
    /// Amount of memory or disk space.
    Bytes,
    /// Length of time.
    Time,
    /// A quoted text.
    Text,
    /// Either `true` or `false`.
    Bool,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ValueKind::Number => "a number",
            ValueKind::Bytes => "an amount such as `8GiB`",
            ValueKind::Time => "a time such as `2h`",
            ValueKind::Text => "a text",
            ValueKind::Bool => "`true` or `false`",
        })
    }
}

/// Value of a fact or an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactValue {
    /// A plain number.
    Number(Ratio),
    /// Amount in bytes.
    Bytes(Ratio),
    /// Duration in milliseconds.
    Time(Ratio),
    /// Time without limit.
    Forever,
    /// A quoted text.
    Text(String),
    /// Either `true` or `false`.
    Bool(bool),
}

impl FactValue {
    /// Makes a plain number.
    pub fn number(n: u64) -> Self {
        FactValue::Number(Ratio::whole(n.into()))
    }

    /// Makes an amount in bytes.
    pub fn bytes(n: u64) -> Self {
        FactValue::Bytes(Ratio::whole(n.into()))
    }

    /// Makes a duration; `None` is unlimited.
    pub fn time(span: Option<Span>) -> Self {
        span.map_or(FactValue::Forever, |span| {
            FactValue::Time(Ratio::whole(span.millis().into()))
        })
    }

    /// Kind of the value.
    pub fn kind(&self) -> ValueKind {
        match self {
            FactValue::Number(_) => ValueKind::Number,
            FactValue::Bytes(_) => ValueKind::Bytes,
            FactValue::Time(_) | FactValue::Forever => ValueKind::Time,
            FactValue::Text(_) => ValueKind::Text,
            FactValue::Bool(_) => ValueKind::Bool,
        }
    }

    /// The number behind an amount, if it has one.
    pub(super) fn amount(&self) -> Option<Ratio> {
        match self {
            FactValue::Number(n) | FactValue::Bytes(n) | FactValue::Time(n) => Some(*n),
            FactValue::Forever | FactValue::Text(_) | FactValue::Bool(_) => None,
        }
    }
}

/// Units for display, largest first: powers of 1024, and powers of 1000 for amounts that are round only in these.
const BINARY: [(&str, i128); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
const DECIMAL: [(&str, i128); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

impl fmt::Display for FactValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            FactValue::Number(n) => thousandths(*n),
            FactValue::Bytes(n) => bytes(*n),
            FactValue::Time(n) => time(*n),
            FactValue::Forever => "without end".to_string(),
            FactValue::Text(text) => format!("`{}`", text.escape_debug()),
            FactValue::Bool(truth) => truth.to_string(),
        };
        f.pad(&text)
    }
}

/// Formats a number with at most three decimals.
fn thousandths(n: Ratio) -> String {
    let all = n
        .times(Ratio::whole(1000))
        .map_or(i128::MAX, Ratio::rounded);
    let sign = if all < 0 { "-" } else { "" };
    let (whole, rest) = (all.unsigned_abs() / 1000, all.unsigned_abs() % 1000);
    let text = format!("{sign}{whole}.{rest:03}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_string()
}

fn bytes(n: Ratio) -> String {
    let whole = n.rounded();
    let largest = |units: [(&'static str, i128); 4]| {
        let fits = |unit: &(&str, i128)| whole.saturating_abs() >= unit.1;
        units.into_iter().find(fits).unwrap_or(("B", 1))
    };
    let in_unit = |(unit, size): (&'static str, i128)| {
        let amount = n.over(Ratio::whole(size));
        let thousandths = amount.and_then(|amount| amount.times(Ratio::whole(1000)));
        let exact = thousandths.is_some_and(|it| Ratio::whole(it.rounded()) == it);
        (exact, unit, amount)
    };
    let (binary, decimal) = (in_unit(largest(BINARY)), in_unit(largest(DECIMAL)));
    let (_, unit, amount) = if decimal.0 && !binary.0 {
        decimal
    } else {
        binary
    };
    format!("{}{unit}", amount.map(thousandths).unwrap_or_default())
}

fn time(n: Ratio) -> String {
    let millis = n.rounded();
    match u64::try_from(millis) {
        Ok(millis) => Span::from_millis(millis).to_string(),
        Err(_) => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_units_that_people_write() {
        let memory = FactValue::bytes(64 << 30).amount().unwrap();
        let nine_tenths = memory.times(Ratio::decimal("0.9").unwrap()).unwrap();
        for (value, shown) in [
            (FactValue::bytes(64 << 30), "64GiB"),
            (FactValue::Bytes(nine_tenths), "57.6GiB"),
            (FactValue::bytes(1000), "1000B"),
            (FactValue::bytes(500_000_000_000), "500GB"),
            (FactValue::bytes(67_433_549_824), "62.802GiB"),
            (FactValue::bytes(17), "17B"),
            (FactValue::bytes(0), "0B"),
            (FactValue::Number(Ratio::new(1, 3).unwrap()), "0.333"),
            (FactValue::Number(Ratio::whole(-2)), "-2"),
            (FactValue::time(Some(Span::from_secs(5400))), "1h30m"),
            (FactValue::time(None), "without end"),
            (FactValue::Text("a\u{1b}".into()), "`a\\u{1b}`"),
            (FactValue::Bool(true), "true"),
        ] {
            assert_eq!(value.to_string(), shown);
        }
    }
}
