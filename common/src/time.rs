//! Points and lengths of time as integers of milliseconds. Whoever drives a core reads the clock; the core never does.

use core::fmt;
use core::ops::{Add, Sub};

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch.
///
/// Drivers hand out times that never go back within one run of a process (wall clock at start plus the steady clock
/// since), so that a core may compare them and arm timers by them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// `millis` since the Unix epoch.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero where it is not after it.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// In milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Time {
    /// `span` before; the epoch where that would lie before it.
    #[must_use]
    pub const fn before(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

/// As people write it: `250ms`, `30s`, `5m`, `6m30s`, `2h`, `1d`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, millis) in UNITS {
            let whole = rest / millis;
            if whole > 0 {
                write!(f, "{whole}{unit}")?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Why a text is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a duration: write a number and a unit (ms, s, m, h, d), such as `30s` or `1h30m`",
    shown(text)
)]
pub struct SpanError {
    /// What was written.
    pub text: String,
}

/// How much of what was written a message shows.
const SHOWN_CHARS: usize = 80;

/// A text as it may stand in a message: cut, and without anything that a terminal would obey.
fn shown(text: &str) -> String {
    let start = text.chars().take(SHOWN_CHARS);
    start.flat_map(char::escape_debug).collect()
}

impl core::str::FromStr for Span {
    type Err = SpanError;

    /// Reads what `Display` writes: whole numbers, each with its unit, added up. A bare number is refused, because
    /// half of the world's tools mean seconds by it and the other half milliseconds.
    fn from_str(text: &str) -> Result<Self, SpanError> {
        parse_span(text).ok_or_else(|| SpanError { text: text.into() })
    }
}

fn parse_span(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let unit_len = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(*millis)?;
        total = total.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Span(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_are_read_as_they_are_written() {
        for text in ["0s", "250ms", "30s", "6m30s", "1h30m", "2d", "1d1h1m1s1ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "1m30s");
    }

    #[test]
    fn what_is_no_span_is_refused_with_the_way_out() {
        for text in [
            "",
            "5",
            "5 s",
            "s",
            "-1s",
            "1.5h",
            "5S",
            "99999999999999999999s",
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.to_string().contains("such as `30s`"), "{error}");
        }
    }
}
