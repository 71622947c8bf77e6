//! What a fact or a side of a rule is worth: numbers, amounts of memory, lengths of time, words. Of which kind it is is
//! known when a rule is read.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use super::number::Ratio;
use crate::time::Span;

/// What can be compared with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain number.
    Number,
    /// An amount of memory or disk.
    Bytes,
    /// A length of time.
    Time,
    /// A word.
    Text,
    /// Yes or no.
    Truth,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Number => "a number",
            Kind::Bytes => "an amount such as `8GiB`",
            Kind::Time => "a time such as `2h`",
            Kind::Text => "a text",
            Kind::Truth => "`true` or `false`",
        })
    }
}

/// What something is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A plain number.
    Number(Ratio),
    /// Bytes.
    Bytes(Ratio),
    /// Milliseconds.
    Time(Ratio),
    /// A time without end.
    Forever,
    /// A word.
    Text(String),
    /// Yes or no.
    Truth(bool),
}

impl Value {
    /// A plain number.
    pub fn number(n: u64) -> Self {
        Value::Number(Ratio::whole(n.into()))
    }

    /// So many bytes.
    pub fn bytes(n: u64) -> Self {
        Value::Bytes(Ratio::whole(n.into()))
    }

    /// A length of time; none is for ever.
    pub fn time(span: Option<Span>) -> Self {
        span.map_or(Value::Forever, |span| {
            Value::Time(Ratio::whole(span.millis().into()))
        })
    }

    /// Of which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Number(_) => Kind::Number,
            Value::Bytes(_) => Kind::Bytes,
            Value::Time(_) | Value::Forever => Kind::Time,
            Value::Text(_) => Kind::Text,
            Value::Truth(_) => Kind::Truth,
        }
    }

    /// What it is worth as an amount of its kind.
    pub(super) fn amount(&self) -> Option<Ratio> {
        match self {
            Value::Number(n) | Value::Bytes(n) | Value::Time(n) => Some(*n),
            Value::Forever | Value::Text(_) | Value::Truth(_) => None,
        }
    }
}

/// Units in which amounts are shown, the largest first: those of 1024, and those of 1000 for what is round in them alone.
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Value::Number(n) => thousandths(*n),
            Value::Bytes(n) => bytes(*n),
            Value::Time(n) => time(*n),
            Value::Forever => "without end".to_string(),
            Value::Text(text) => format!("`{}`", text.escape_debug()),
            Value::Truth(truth) => truth.to_string(),
        };
        f.pad(&text)
    }
}

/// To the thousandth, without what says nothing at its end.
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
        let memory = Value::bytes(64 << 30).amount().unwrap();
        let nine_tenths = memory.times(Ratio::decimal("0.9").unwrap()).unwrap();
        for (value, shown) in [
            (Value::bytes(64 << 30), "64GiB"),
            (Value::Bytes(nine_tenths), "57.6GiB"),
            (Value::bytes(1000), "1000B"),
            (Value::bytes(500_000_000_000), "500GB"),
            (Value::bytes(67_433_549_824), "62.802GiB"),
            (Value::bytes(17), "17B"),
            (Value::bytes(0), "0B"),
            (Value::Number(Ratio::new(1, 3).unwrap()), "0.333"),
            (Value::Number(Ratio::whole(-2)), "-2"),
            (Value::time(Some(Span::from_secs(5400))), "1h30m"),
            (Value::time(None), "without end"),
            (Value::Text("a\u{1b}".into()), "`a\\u{1b}`"),
            (Value::Truth(true), "true"),
        ] {
            assert_eq!(value.to_string(), shown);
        }
    }
}
