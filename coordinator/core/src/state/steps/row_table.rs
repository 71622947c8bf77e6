//! A map in two columns whose rows lie side by side in memory.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

/// Most entries in one segment.
const MOST: usize = 512;

/// A row, which knows its own key.
pub(super) trait Row {
    fn order(&self) -> u64;
}

/// Rows in segments, sorted by their orders, with what belongs to each in a column of its own: going through the rows of
/// 100,000 entries takes a millisecond or two, and many times as long if each lies elsewhere in memory.
#[derive(Clone, Debug)]
pub(super) struct RowTable<R, T> {
    /// Segments, none of them empty, by a bound: the orders in a segment are at or after its own and before that of the next.
    segments: BTreeMap<u64, RowSegment<R, T>>,
}

#[derive(Clone, Debug)]
struct RowSegment<R, T> {
    rows: Vec<R>,
    /// The other column, in the order of the rows.
    rest: Vec<T>,
}

impl<R: Row, T> RowSegment<R, T> {
    fn of_one(row: R, rest: T) -> Self {
        let (rows, rest) = (vec![row], vec![rest]);
        Self { rows, rest }
    }

    fn position(&self, order: u64) -> Result<usize, usize> {
        self.rows.binary_search_by_key(&order, Row::order)
    }

    fn entries(
        &self,
        from: usize,
        to: usize,
    ) -> impl DoubleEndedIterator<Item = (&R, &T)> + ExactSizeIterator {
        self.rows[from..to].iter().zip(&self.rest[from..to])
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = (&R, &T)> {
        self.entries(0, self.rows.len())
    }
}

impl<R: Row, T> RowTable<R, T> {
    pub(super) fn len(&self) -> usize {
        self.segments
            .values()
            .map(|segment| segment.rows.len())
            .sum()
    }

    pub(super) fn get(&self, order: u64) -> Option<&T> {
        let (_, segment) = self.segments.range(..=order).next_back()?;
        segment.rest.get(segment.position(order).ok()?)
    }

    pub(super) fn get_mut(&mut self, order: u64) -> Option<(&mut R, &mut T)> {
        let (_, segment) = self.segments.range_mut(..=order).next_back()?;
        let at = segment.position(order).ok()?;
        segment.rows.get_mut(at).zip(segment.rest.get_mut(at))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.segments
            .values_mut()
            .flat_map(|segment| &mut segment.rest)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&R, &T)> {
        self.segments.values().flat_map(RowSegment::all)
    }

    /// The entries after an order.
    pub(super) fn after(&self, order: u64) -> impl Iterator<Item = (&R, &T)> {
        let first = self.segments.range(..=order).next_back();
        let bound = first.map_or(0, |(bound, _)| *bound);
        let first = first.into_iter().flat_map(move |(_, segment)| {
            let from = segment.rows.partition_point(|row| row.order() <= order);
            segment.entries(from, segment.rows.len())
        });
        let rest = (Bound::Excluded(bound), Bound::Unbounded);
        let rest = self.segments.range(rest);
        first.chain(rest.flat_map(|(_, segment)| segment.all()))
    }

    /// The entries before an order, the last first.
    pub(super) fn before(&self, order: u64) -> impl Iterator<Item = (&R, &T)> {
        let last = self.segments.range(..order).next_back();
        let bound = last.map_or(0, |(bound, _)| *bound);
        let last = last.into_iter().flat_map(move |(_, segment)| {
            let to = segment.rows.partition_point(|row| row.order() < order);
            segment.entries(0, to).rev()
        });
        let rest = self.segments.range(..bound).rev();
        last.chain(rest.flat_map(|(_, segment)| segment.all().rev()))
    }

    /// Adds an entry, in the place of one that has its order.
    pub(super) fn insert(&mut self, row: R, rest: T) {
        let order = row.order();
        let Some((_, segment)) = self.segments.range_mut(..=order).next_back() else {
            self.segments.insert(order, RowSegment::of_one(row, rest));
            return;
        };
        match segment.position(order) {
            Ok(at) => {
                segment.rows[at] = row;
                segment.rest[at] = rest;
            }
            // The usual case: what is new has the highest order.
            Err(at) if at == MOST => {
                self.segments.insert(order, RowSegment::of_one(row, rest));
            }
            Err(at) => {
                segment.rows.insert(at, row);
                segment.rest.insert(at, rest);
                if segment.rows.len() > MOST {
                    let later = RowSegment {
                        rows: segment.rows.split_off(MOST / 2),
                        rest: segment.rest.split_off(MOST / 2),
                    };
                    self.segments.insert(later.rows[0].order(), later);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, order: u64) -> Option<(R, T)> {
        let (bound, segment) = self.segments.range_mut(..=order).next_back()?;
        let at = segment.position(order).ok()?;
        let removed = (segment.rows.remove(at), segment.rest.remove(at));
        let left = segment.rows.len();
        if left == 0 {
            let bound = *bound;
            self.segments.remove(&bound);
        } else if left < segment.rows.capacity() / 4 {
            segment.rows.shrink_to(2 * left);
            segment.rest.shrink_to(2 * left);
        }
        Some(removed)
    }
}

impl<R, T> Default for RowTable<R, T> {
    fn default() -> Self {
        let segments = BTreeMap::new();
        Self { segments }
    }
}

impl<R: Row + PartialEq, T: PartialEq> PartialEq for RowTable<R, T> {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl<R: Row + Eq, T: Eq> Eq for RowTable<R, T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Row for u64 {
        fn order(&self) -> u64 {
            *self
        }
    }

    proptest! {
        /// The table has what a plain map has, whatever is added and removed.
        #[test]
        fn it_has_what_a_plain_map_has(
            changes in prop::collection::vec((0..3_u8, 0..3000_u64), 0..4000),
            from in 0..3000_u64,
        ) {
            let (mut table, mut map) = (RowTable::default(), BTreeMap::new());
            for (time, (kind, order)) in changes.into_iter().enumerate() {
                if kind > 0 {
                    table.insert(order, time);
                    map.insert(order, time);
                } else {
                    let removed = map.remove(&order).map(|time| (order, time));
                    prop_assert_eq!(table.remove(order), removed);
                }
            }
            prop_assert_eq!(table.len(), map.len());
            prop_assert!(table.entries().eq(map.iter()));
            prop_assert!(table.after(from).eq(map.range(from + 1..)));
            prop_assert!(table.before(from).eq(map.range(..from).rev()));
            prop_assert_eq!(table.get(from), map.get(&from));
            let sizes = table.segments.values().map(|segment| (segment.rows.len(), segment.rest.len()));
            prop_assert!(sizes.into_iter().all(|(rows, rest)| rows == rest && (1..=MOST).contains(&rows)));
        }
    }
}
