//! Points in time and durations in integer milliseconds. Cores never read a clock; callers pass the time.

use core::fmt;
use core::ops::{Add, Sub};

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch.
///
/// Within one process, times passed to a core never go back (wall clock at the start plus the monotonic clock since),
/// so a core may compare them and set timers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// Makes a time from milliseconds since the Unix epoch.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// Duration since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Span(u64);

impl Span {
    /// The empty duration.
    pub const ZERO: Span = Span(0);

    /// Makes a duration from milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Makes a duration from seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Length in milliseconds.
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
    /// The time `span` earlier; at least the epoch.
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

/// Formats a duration such as `250ms`, `30s`, `6m30s`, `2h` or `1d`.
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

/// Error for a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a duration: write a number and a unit (ms, s, m, h, d), such as `30s` or `1h30m`",
    escaped(text)
)]
pub struct SpanError {
    /// The rejected text.
    pub text: String,
}

/// Number of characters that messages quote.
const SHOWN_CHARS: usize = 80;

/// Shortens and escapes a text for a message.
fn escaped(text: &str) -> String {
    let start = text.chars().take(SHOWN_CHARS);
    start.flat_map(char::escape_debug).collect()
}

impl core::str::FromStr for Span {
    type Err = SpanError;

    /// Parses what `Display` writes: whole numbers with units, added up. A bare number is rejected, because some tools
    /// mean seconds by it and others milliseconds.
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
