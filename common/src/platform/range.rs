//! Ranges of memory amounts and versions, such as `>=80GiB` or `>=550, <580`.

use core::cmp::Ordering;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::amount::{format_memory, parse_memory};

/// Most comparisons in a range.
const MAX_COMPARISONS: usize = 8;

/// Number of characters that messages quote.
const SHOWN_CHARS: usize = 80;

/// A type that ranges can be written for.
pub trait RangeValue: Sized + Clone + fmt::Debug + PartialEq + Eq {
    /// Noun for messages.
    const NAME: &'static str;
    /// Example of a range.
    const EXAMPLE: &'static str;

    /// Parses a value.
    ///
    /// # Errors
    /// Why the text is not a value.
    fn parse(text: &str) -> Result<Self, String>;

    /// Formats the value; the result parses as the same value.
    fn format(&self) -> String;

    /// Orders a detected value relative to a written one.
    fn compare(found: &Self, written: &Self) -> Ordering;
}

/// Amount of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl RangeValue for Bytes {
    const NAME: &'static str = "an amount of memory";
    const EXAMPLE: &'static str = ">=40GiB, <80GiB";

    fn parse(text: &str) -> Result<Self, String> {
        parse_memory(text).map(Self).map_err(|e| e.to_string())
    }

    fn format(&self) -> String {
        format_memory(self.0)
    }

    fn compare(found: &Self, written: &Self) -> Ordering {
        found.0.cmp(&written.0)
    }
}

/// Version: numbers separated by `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Vec<u64>);

impl Version {
    /// Parses the leading numbers of a text; `None` if there are none.
    pub fn parse_prefix(text: &str) -> Option<Self> {
        let numbers = text.trim().split('.');
        let numbers: Vec<u64> = numbers.map_while(|part| part.parse().ok()).collect();
        (!numbers.is_empty()).then_some(Self(numbers))
    }
}

impl RangeValue for Version {
    const NAME: &'static str = "a version";
    const EXAMPLE: &'static str = ">=550, <580";

    fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split('.').map(str::parse);
        let numbers: Result<Vec<u64>, _> = numbers.collect();
        let numbers = numbers.map_err(|_| "write numbers with `.` between them".to_owned())?;
        Ok(Self(numbers))
    }

    fn format(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        numbers.join(".")
    }

    /// Compares only as many numbers as were written: 550.54 equals 550.
    fn compare(found: &Self, written: &Self) -> Ordering {
        let padded = found.0.iter().copied().chain(core::iter::repeat(0));
        padded.take(written.0.len()).cmp(written.0.iter().copied())
    }
}

/// Comparison operator of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    AtLeast,
    AtMost,
    NotEqual,
    Above,
    Below,
    Equal,
}

/// Operators, longer ones first.
const SIGNS: [(&str, Operator); 7] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("!=", Operator::NotEqual),
    ("==", Operator::Equal),
    (">", Operator::Above),
    ("<", Operator::Below),
    ("=", Operator::Equal),
];

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::AtLeast => order.is_ge(),
            Operator::AtMost => order.is_le(),
            Operator::NotEqual => order.is_ne(),
            Operator::Above => order.is_gt(),
            Operator::Below => order.is_lt(),
            Operator::Equal => order.is_eq(),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Operator::AtLeast => ">=",
            Operator::AtMost => "<=",
            Operator::NotEqual => "!=",
            Operator::Above => ">",
            Operator::Below => "<",
            Operator::Equal => "=",
        }
    }
}

/// Error for a text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A comparison is malformed.
    #[error("`{part}` is not {what} to compare with: {why}; write a range such as `{example}`")]
    Comparison {
        /// The comparison, escaped.
        part: String,
        /// Noun of the expected value.
        what: &'static str,
        /// Why it is not a value.
        why: String,
        /// Example of a range.
        example: &'static str,
    },
    /// The range has too many comparisons.
    #[error("it has more than {MAX_COMPARISONS} comparisons; write a range such as `{0}`")]
    TooLong(&'static str),
}

/// Conjunction of comparisons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "M: RangeValue")]
pub struct Range<M: RangeValue> {
    comparisons: Vec<(Operator, M)>,
    what: PhantomData<M>,
}

impl<M: RangeValue> Range<M> {
    /// Whether a detected value lies in the range.
    pub fn holds(&self, found: &M) -> bool {
        let mut all = self.comparisons.iter();
        all.all(|(sign, written)| sign.holds(M::compare(found, written)))
    }
}

fn comparison<M: RangeValue>(part: &str) -> Result<(Operator, M), RangeError> {
    let sign = SIGNS.into_iter();
    let mut sign = sign.filter_map(|(text, sign)| Some((sign, part.strip_prefix(text)?)));
    let (sign, rest) = sign.next().unwrap_or((Operator::Equal, part));
    let read = M::parse(rest.trim());
    let written = read.map_err(|why| RangeError::Comparison {
        part: part
            .chars()
            .take(SHOWN_CHARS)
            .flat_map(char::escape_default)
            .collect(),
        what: M::NAME,
        why,
        example: M::EXAMPLE,
    })?;
    Ok((sign, written))
}

impl<M: RangeValue> FromStr for Range<M> {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let parts = text.split(',').map(|part| comparison(part.trim()));
        let comparisons: Vec<(Operator, M)> =
            parts.take(MAX_COMPARISONS + 1).collect::<Result<_, _>>()?;
        if comparisons.len() > MAX_COMPARISONS {
            return Err(RangeError::TooLong(M::EXAMPLE));
        }
        let what = PhantomData;
        Ok(Self { comparisons, what })
    }
}

impl<M: RangeValue> TryFrom<String> for Range<M> {
    type Error = RangeError;
    fn try_from(text: String) -> Result<Self, RangeError> {
        text.parse()
    }
}

impl<M: RangeValue> fmt::Display for Range<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (sign, written)) in self.comparisons.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}{}", sign.as_str(), written.format())?;
        }
        Ok(())
    }
}

impl<M: RangeValue> From<Range<M>> for String {
    fn from(range: Range<M>) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    #[test]
    fn versions_are_compared_by_as_many_numbers_as_are_written() {
        for (range, version, holds) in [
            (">=550, <580", "570.86.15", true),
            (">=550, <580", "580.1", false),
            (">=550.54", "550.53.9", false),
            ("<=550", "550.54", true),
            (">550", "550.54", false),
            ("570", "570.86.15", true),
            ("!=570.86", "570.86.15", false),
            (">=550.54.14", "550", false),
            (">=9", "10.0", true),
        ] {
            let read: Range<Version> = range.parse().unwrap();
            let version = Version::parse_prefix(version).unwrap();
            assert_eq!(read.holds(&version), holds, "{range} {version:?}");
        }
        assert_eq!(Version::parse_prefix("unknown"), None);
        assert_eq!(
            Version::parse_prefix("535.54.03-beta"),
            Version::parse_prefix("535.54")
        );
    }

    #[test]
    fn what_cannot_be_read_is_named_with_the_way_out() {
        let error = |text: &str| text.parse::<Range<Bytes>>().unwrap_err().to_string();
        let said = error(">=80gi");
        assert!(
            said.contains("`>=80gi` is not an amount of memory"),
            "{said}"
        );
        assert!(
            said.ends_with("write a range such as `>=40GiB, <80GiB`"),
            "{said}"
        );
        assert!(error("").contains("such as"));
        assert!(error(&format!("{}>1B", ">1B,".repeat(9))).contains("more than 8"));
        let said = ">=x".parse::<Range<Version>>().unwrap_err().to_string();
        assert!(said.contains("write numbers with `.`"), "{said}");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(
            parts in prop::collection::vec((0usize..SIGNS.len(), 0u64..1 << 62), 1..MAX_COMPARISONS)
        ) {
            let comparisons = parts.into_iter().map(|(sign, n)| (SIGNS[sign].1, Bytes(n)));
            let range = Range { comparisons: comparisons.collect(), what: PhantomData };
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }
    }
}
