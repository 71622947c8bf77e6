//! Sets of indexes, stored as ranges: a set of 100,000 indexes in a row takes the room of two numbers.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Bound::{Excluded, Included, Unbounded};
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use super::{ArrayError, MAX_ARRAY_INDEX, MAX_ARRAY_PARTS, MAX_TEXT_BYTES};
use crate::id::escaped as shown;

/// A set of indexes, written as `0-99,105,200-300:10`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
#[serde(try_from = "String", into = "String")]
pub struct IndexSet {
    /// The last index of each range by its first. Ranges neither overlap nor touch.
    ranges: BTreeMap<u32, u32>,
    len: u32,
}

impl IndexSet {
    /// Number of indexes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no index.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of ranges, which determines how much memory it takes.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The lowest index.
    pub fn first(&self) -> Option<u32> {
        self.ranges.keys().next().copied()
    }

    /// The highest index.
    pub fn last(&self) -> Option<u32> {
        self.ranges.values().next_back().copied()
    }

    /// Whether it has an index.
    pub fn contains(&self, index: u32) -> bool {
        self.range_of(index).is_some()
    }

    /// All indexes, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The indexes from `from` on, the lowest first.
    pub fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> {
        let here = self.range_of(from).map(|(_, last)| from..=last);
        let later = self.ranges.range((Excluded(from), Unbounded));
        let later = later.map(|(first, last)| *first..=*last);
        here.into_iter().chain(later).flatten()
    }

    /// Number of indexes below `index`.
    pub fn count_below(&self, index: u32) -> u32 {
        let below = self.ranges.range(..index);
        below
            .map(|(first, last)| (*last).min(index - 1) - first + 1)
            .sum()
    }

    /// Adds an index; `false` if it has it already.
    pub fn insert(&mut self, index: u32) -> bool {
        if self.contains(index) {
            return false;
        }
        self.add_range(index, index);
        true
    }

    /// Removes an index; `false` if it does not have it.
    pub fn remove(&mut self, index: u32) -> bool {
        if !self.contains(index) {
            return false;
        }
        self.cut(index, index);
        true
    }

    /// Adds the indexes of another set, none of which this one has.
    pub fn add_all(&mut self, other: &IndexSet) {
        for (first, last) in &other.ranges {
            self.add_range(*first, *last);
        }
    }

    /// Removes the indexes of another set, all of which this one has.
    pub fn remove_all(&mut self, other: &IndexSet) {
        *self = self.minus(other);
    }

    /// The indexes that both sets have.
    #[must_use]
    pub fn and(&self, other: &IndexSet) -> IndexSet {
        let mut both = IndexSet::default();
        for (first, last) in self.common_ranges(other) {
            both.add_range(first, last);
        }
        both
    }

    /// The lowest index that both sets have.
    pub fn first_common(&self, other: &IndexSet) -> Option<u32> {
        self.common_ranges(other).next().map(|(first, _)| first)
    }

    /// The indexes that only this set has.
    #[must_use]
    pub fn minus(&self, other: &IndexSet) -> IndexSet {
        let mut rest = self.clone();
        for (first, last) in self.common_ranges(other) {
            rest.cut(first, last);
        }
        rest
    }

    /// Whether all indexes of this set are in the other.
    pub fn is_subset(&self, other: &IndexSet) -> bool {
        let covers = |(first, last): (&u32, &u32)| {
            let range = other.range_of(*first);
            range.is_some_and(|(_, end)| end >= *last)
        };
        self.ranges.iter().all(covers)
    }

    /// The ranges that both sets have, one after the other. Looks up only the ranges of the set that has fewer.
    fn common_ranges<'a>(&'a self, other: &'a IndexSet) -> impl Iterator<Item = (u32, u32)> + 'a {
        let (few, many) = match self.ranges.len() <= other.ranges.len() {
            true => (self, other),
            false => (other, self),
        };
        few.ranges.iter().flat_map(move |(first, last)| {
            let (first, last) = (*first, *last);
            let before = many.range_of(first).map(|(_, end)| (first, end.min(last)));
            let later = many.ranges.range((Excluded(first), Included(last)));
            let later = later.map(move |(begin, end)| (*begin, (*end).min(last)));
            before.into_iter().chain(later)
        })
    }

    /// The range that has an index.
    fn range_of(&self, index: u32) -> Option<(u32, u32)> {
        let (first, last) = self.ranges.range(..=index).next_back()?;
        (index <= *last).then_some((*first, *last))
    }

    /// Adds a range of which it has no index.
    fn add_range(&mut self, mut first: u32, mut last: u32) {
        self.len += last - first + 1;
        let before = self.ranges.range(..first).next_back();
        if let Some((begin, end)) = before.map(|(begin, end)| (*begin, *end))
            && end.checked_add(1) == Some(first)
        {
            self.ranges.remove(&begin);
            first = begin;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(end) = self.ranges.remove(&next)
        {
            last = end;
        }
        self.ranges.insert(first, last);
    }

    /// Removes a range that lies within one of its own.
    fn cut(&mut self, first: u32, last: u32) {
        let Some((begin, end)) = self.range_of(first) else {
            return;
        };
        self.ranges.remove(&begin);
        if begin < first {
            self.ranges.insert(begin, first - 1);
        }
        if last < end {
            self.ranges.insert(last + 1, end);
        }
        self.len -= last - first + 1;
    }

    /// Adds what a piece of a text names, such as `0-15:4`.
    fn add_piece(&mut self, text: &str) -> Result<(), ArrayError> {
        let wrong = || ArrayError::Piece(shown(text));
        let (range, stride) = match text.split_once(':') {
            Some((range, stride)) => (range, number(stride).ok_or_else(wrong)?),
            None => (text, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first), number(last)),
            None => (number(range), number(range)),
        };
        let first = index(first.ok_or_else(wrong)?)?;
        let last = index(last.ok_or_else(wrong)?)?;
        if last < first {
            return Err(ArrayError::Backwards { first, last });
        }
        if stride == 0 {
            return Err(ArrayError::NoStride(shown(text)));
        }
        let count = u64::from(last - first) / stride + 1;
        let total = u64::from(self.len) + count;
        if total > u64::from(MAX_ARRAY_PARTS) {
            return Err(ArrayError::TooMany(total));
        }
        let overlap = |index| ArrayError::Overlap {
            index,
            piece: shown(text),
        };
        if stride == 1 {
            if let Some(index) = self.iter_from(first).next().filter(|it| *it <= last) {
                return Err(overlap(index));
            }
            self.add_range(first, last);
            return Ok(());
        }
        let stride = usize::try_from(stride).unwrap_or(usize::MAX);
        for index in (first..=last).step_by(stride) {
            if !self.insert(index) {
                return Err(overlap(index));
            }
        }
        Ok(())
    }
}

/// Parses digits alone: no sign, no spaces.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

fn index(number: u64) -> Result<u32, ArrayError> {
    let index = u32::try_from(number).ok();
    index
        .filter(|index| *index <= MAX_ARRAY_INDEX)
        .ok_or(ArrayError::TooHigh(number))
}

impl From<u32> for IndexSet {
    fn from(index: u32) -> Self {
        let mut set = Self::default();
        set.insert(index);
        set
    }
}

impl FromStr for IndexSet {
    type Err = ArrayError;

    fn from_str(text: &str) -> Result<Self, ArrayError> {
        if text.is_empty() {
            return Err(ArrayError::Empty);
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(ArrayError::Piece(shown(text)));
        }
        let mut set = IndexSet::default();
        for piece in text.split(',') {
            set.add_piece(piece)?;
        }
        Ok(set)
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges = self
            .ranges
            .iter()
            .map(|(first, last)| (*first, *last))
            .peekable();
        let mut separator = "";
        while let Some((first, last)) = ranges.next() {
            write!(f, "{separator}{first}")?;
            separator = ",";
            if first < last {
                write!(f, "-{last}")?;
                continue;
            }
            // Single indexes at equal distances are written as one range with a step.
            let mut end = (first, None);
            while let Some((next, _)) = ranges.next_if(|(next, until)| {
                next == until && end.1.is_none_or(|stride| next - end.0 == stride)
            }) {
                end = (next, Some(next - end.0));
            }
            match end {
                (_, None) => {}
                (last, Some(stride)) if last == first + stride => write!(f, ",{last}")?,
                (last, Some(stride)) => write!(f, "-{last}:{stride}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for IndexSet {
    type Error = ArrayError;

    fn try_from(text: String) -> Result<Self, ArrayError> {
        // A set that is stored may be empty.
        match text.is_empty() {
            true => Ok(Self::default()),
            false => text.parse(),
        }
    }
}

impl From<IndexSet> for String {
    fn from(set: IndexSet) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn set(of: &BTreeSet<u32>) -> IndexSet {
        let mut set = IndexSet::default();
        of.iter().for_each(|index| assert!(set.insert(*index)));
        set
    }

    fn agrees(set: &IndexSet, with: &BTreeSet<u32>) {
        let own: Vec<u32> = set.iter().collect();
        assert_eq!(own, with.iter().copied().collect::<Vec<_>>());
        assert_eq!(set.len() as usize, with.len());
        assert_eq!(set.first(), with.first().copied());
        assert_eq!(set.last(), with.last().copied());
        let read = IndexSet::try_from(set.to_string());
        assert_eq!(read.as_ref(), Ok(set), "{set}");
    }

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set(
            a in prop::collection::btree_set(0u32..40, 0..30),
            b in prop::collection::btree_set(0u32..40, 0..30),
            at in 0u32..40,
        ) {
            let (first, second) = (set(&a), set(&b));
            agrees(&first, &a);
            agrees(&first.and(&second), &a.intersection(&b).copied().collect());
            agrees(&first.minus(&second), &a.difference(&b).copied().collect());
            prop_assert_eq!(first.first_common(&second), a.intersection(&b).next().copied());
            prop_assert_eq!(first.is_subset(&second), a.is_subset(&b));
            prop_assert_eq!(first.contains(at), a.contains(&at));
            let from: Vec<u32> = first.iter_from(at).collect();
            prop_assert_eq!(from, a.range(at..).copied().collect::<Vec<_>>());
            prop_assert_eq!(first.count_below(at) as usize, a.range(..at).count());
            let mut union = first.clone();
            union.add_all(&second.minus(&first));
            agrees(&union, &a.union(&b).copied().collect());
            let (mut less, mut known) = (first, a);
            prop_assert_eq!(less.remove(at), known.remove(&at));
            agrees(&less, &known);
        }
    }
}
