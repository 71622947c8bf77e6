//! Arrays: one submit of many steps that differ only in an index. A step of an array is one of its parts, with the id
//! `ID.INDEX`.

mod index_set;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::{MAX_NAME_BYTES, StepId, escaped as shown};

pub use index_set::IndexSet;

/// Most parts of one array.
pub const MAX_ARRAY_PARTS: u32 = 100_000;

/// Highest index of a part.
pub const MAX_ARRAY_INDEX: u32 = 999_999;

/// Longest id of an array, in bytes: those of its parts are ids too.
pub const MAX_ARRAY_ID_BYTES: usize = MAX_NAME_BYTES - ".999999".len();

/// Longest text of indexes, in bytes: that of all indexes one by one.
const MAX_TEXT_BYTES: usize = MAX_ARRAY_PARTS as usize * "999999,".len();

/// The indexes of an array and how many of its parts may be at work at once, written as `0-999%50`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
#[serde(try_from = "String", into = "String")]
pub struct ArraySpec {
    /// The indexes of the parts, which may be many; clones share them.
    pub indexes: Arc<IndexSet>,
    /// Most parts that are in the queue or run at the same time; `None` is unlimited.
    pub at_once: Option<NonZeroU32>,
}

/// Error for a text that is not an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// There is no index.
    #[error("it has no index: write indexes such as `0-999`, `0-15:4` or `1,3,5-7`")]
    Empty,
    /// A piece is no index and no range of indexes.
    #[error(
        "`{0}` is not an index or a range: write indexes such as `0-999`, `0-15:4` or `1,3,5-7`"
    )]
    Piece(String),
    /// An index is too high.
    #[error("index {0} is above {MAX_ARRAY_INDEX}, the highest: begin at a lower one")]
    TooHigh(u64),
    /// A range ends before it begins.
    #[error("`{first}-{last}` runs backwards: write `{last}-{first}`")]
    Backwards {
        /// The first index as written.
        first: u32,
        /// The last index as written.
        last: u32,
    },
    /// A range has the step 0.
    #[error("`{0}` has the step 0: write `:1` or more, or leave it out")]
    NoStride(String),
    /// An index is named twice.
    #[error("index {index} in `{piece}` is named before: name each index once")]
    Overlap {
        /// The first index that is named again.
        index: u32,
        /// The piece that names it again.
        piece: String,
    },
    /// There are too many parts.
    #[error("it has {0} parts or more, and {MAX_ARRAY_PARTS} are the most: submit several arrays")]
    TooMany(u64),
    /// No part could ever start.
    #[error("`%0` lets no part start: write `%1` or more, or leave it out")]
    NoneAtOnce,
    /// The text after `%` is no number.
    #[error("`%{0}` is not a number of parts: write `%50` for at most 50 at once")]
    AtOnce(String),
}

impl ArraySpec {
    /// Parses the field `array` of a request.
    ///
    /// # Errors
    /// If the text is not an array.
    pub(crate) fn check(text: Option<&str>) -> Result<Option<Self>, FieldError> {
        let read = |text: &str| {
            let parsed = text.parse::<Self>();
            parsed.map_err(|e| {
                let message = format!("`{}`: {e}", shown(text));
                FieldError::new(ErrorCode::InvalidArray, "array", message)
            })
        };
        text.map(read).transpose()
    }

    /// Number of parts.
    pub fn len(&self) -> u32 {
        self.indexes.len()
    }

    /// Whether it has no part. No text is such an array.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Most parts at once as a number.
    pub fn most_at_once(&self) -> u32 {
        self.at_once.map_or(u32::MAX, NonZeroU32::get)
    }
}

impl FromStr for ArraySpec {
    type Err = ArrayError;

    fn from_str(text: &str) -> Result<Self, ArrayError> {
        let (indexes, at_once) = match text.split_once('%') {
            Some((indexes, at_once)) => (indexes, Some(at_once)),
            None => (text, None),
        };
        let at_once = at_once.map(|digits| {
            let number = digits.parse::<u32>();
            let number = number.map_err(|_| ArrayError::AtOnce(shown(digits)))?;
            NonZeroU32::new(number).ok_or(ArrayError::NoneAtOnce)
        });
        Ok(Self {
            at_once: at_once.transpose()?,
            indexes: Arc::new(indexes.parse()?),
        })
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.indexes.fmt(f)?;
        self.at_once.map_or(Ok(()), |most| write!(f, "%{most}"))
    }
}

impl TryFrom<String> for ArraySpec {
    type Error = ArrayError;

    fn try_from(text: String) -> Result<Self, ArrayError> {
        text.parse()
    }
}

impl From<ArraySpec> for String {
    fn from(array: ArraySpec) -> Self {
        array.to_string()
    }
}

/// The id of a part of an array.
///
/// # Panics
/// If the id of the array is longer than [`MAX_ARRAY_ID_BYTES`].
pub fn part_id(array: &StepId, index: u32) -> StepId {
    StepId::new(format!("{array}.{index}")).expect("an array's id leaves room for an index")
}

/// Splits the id of a part into the id of the array and the index; `None` if no part can have this id.
pub fn split_part_id(id: &StepId) -> Option<(StepId, u32)> {
    let (array, digits) = id.as_str().rsplit_once('.')?;
    let index = digits.parse::<u32>().ok()?;
    // Each part has one spelling.
    let is_plain = index <= MAX_ARRAY_INDEX && index.to_string() == digits;
    let array = StepId::new(array).ok().filter(|_| is_plain)?;
    Some((array, index))
}

/// The entries of a map that are of parts of an array, with their indexes.
pub fn parts_in<'m, T>(
    map: &'m BTreeMap<StepId, T>,
    array: &StepId,
) -> impl Iterator<Item = (&'m StepId, u32, &'m T)> + use<'m, T> {
    let (array, start) = (array.clone(), format!("{array}."));
    map.range(part_id(&array, 0)..)
        .take_while(move |(id, _)| id.as_str().starts_with(&start))
        .filter_map(move |(id, of_part)| {
            let (of, index) = split_part_id(id)?;
            (of == array).then_some((id, index, of_part))
        })
}

/// Number of parts of an array in each phase of their lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartCounts {
    /// Number of all parts.
    pub total: u64,
    /// Parts that have not entered the queue.
    pub waiting: u64,
    /// Parts that are queued, for the first time or again.
    pub queued: u64,
    /// Parts that hold resources: from the allocation to the end.
    pub running: u64,
    /// Parts that succeeded.
    pub succeeded: u64,
    /// Parts that ended without success and were not cancelled.
    pub failed: u64,
    /// Parts that were cancelled.
    pub cancelled: u64,
}

impl PartCounts {
    /// Number of parts that have ended.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    /// Words for the parts that have not ended; `None` if all have.
    pub fn open(&self) -> Option<String> {
        let (running, queued, waiting) = (self.running, self.queued, self.waiting);
        (self.ended() < self.total).then(|| {
            format!("{running} run, {queued} are queued, {waiting} wait to enter the queue")
        })
    }
}

impl fmt::Display for PartCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ended", self.ended(), self.total)?;
        if self.failed > 0 {
            write!(f, ", {} failed", self.failed)?;
        }
        if self.cancelled > 0 {
            write!(f, ", {} cancelled", self.cancelled)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn read(text: &str) -> Result<ArraySpec, ArrayError> {
        text.parse()
    }

    #[test]
    fn an_array_is_read_as_it_is_written() {
        for (text, count, written) in [
            ("0-999%50", 1000, "0-999%50"),
            ("7", 1, "7"),
            ("0-15:4", 4, "0-12:4"),
            ("1,3,5-7", 5, "1,3,5-7"),
            ("5,1", 2, "1,5"),
            ("0-3,4-9%1", 10, "0-9%1"),
            ("0-99999", 100_000, "0-99999"),
            ("0-199999:2", 100_000, "0-199998:2"),
        ] {
            let array = read(text).expect("it is well formed");
            assert_eq!((array.len(), array.to_string().as_str()), (count, written));
            assert_eq!(read(written), Ok(array), "{written}");
        }
        let array = read("1,3,5-7").expect("it is well formed");
        let indexes: Vec<u32> = array.indexes.iter().collect();
        assert_eq!(indexes, [1, 3, 5, 6, 7]);
    }

    #[test]
    fn a_wrong_array_names_the_value_and_the_way_out() {
        let error = |text: &str| read(text).expect_err("it is wrong").to_string();
        assert!(error("").starts_with("it has no index"));
        assert!(error("%5").starts_with("it has no index"));
        assert!(error("1,,2").starts_with("`` is not an index"));
        assert!(error("a-5").starts_with("`a-5` is not an index"));
        assert!(error("+1").starts_with("`+1` is not an index"));
        assert!(error("-1").starts_with("`-1` is not an index"));
        assert!(error("1-5:x").starts_with("`1-5:x` is not an index"));
        assert_eq!(error("9-3"), "`9-3` runs backwards: write `3-9`");
        assert_eq!(
            error("1-5,4"),
            "index 4 in `4` is named before: name each index once"
        );
        assert_eq!(
            error("4,1-5"),
            "index 4 in `1-5` is named before: name each index once"
        );
        assert!(error("0-9:0").starts_with("`0-9:0` has the step 0"));
        assert!(error("0-9999999").starts_with("index 9999999 is above 999999"));
        assert!(error("0-100000").starts_with("it has 100001 parts or more"));
        assert!(error("0-99999,100000-200000").starts_with("it has 200001 parts or more"));
        assert_eq!(
            error("0-9%0"),
            "`%0` lets no part start: write `%1` or more, or leave it out"
        );
        assert!(error("0-9%many").starts_with("`%many` is not a number of parts"));
    }

    #[test]
    fn only_parts_of_an_array_are_found_by_it() {
        let ids = ["a", "a.0", "a.10", "a.9", "a.b.1", "a.x", "a0.1", "b.1"];
        let ids = ids.map(|id| (StepId::new(id).expect("an id"), ()));
        let map = BTreeMap::from(ids);
        let array = StepId::new("a").expect("an id");
        let found: Vec<u32> = parts_in(&map, &array).map(|(_, index, ())| index).collect();
        assert_eq!(found, [0, 10, 9]);
    }

    #[test]
    fn the_id_of_a_part_is_split_as_it_was_made() {
        let array = StepId::new("a.b").expect("an id");
        let part = part_id(&array, 7);
        assert_eq!(part.as_str(), "a.b.7");
        assert_eq!(split_part_id(&part), Some((array, 7)));
        for other in ["a", "a.07", "a.b", "a.1000000", "a.4294967296"] {
            assert_eq!(split_part_id(&StepId::new(other).expect("an id")), None);
        }
    }
}
