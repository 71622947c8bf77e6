//! A map in two columns whose rows lie side by side in memory.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

/// Most entries in one chunk.
const MOST: usize = 512;

/// A row, which knows its own key.
pub(super) trait Row {
    fn order(&self) -> u64;
}

/// Rows in chunks, sorted by their orders, with what belongs to each in a column of its own: going through the rows of
/// 100,000 entries takes a millisecond or two, and many times as long if each lies elsewhere in memory.
#[derive(Clone, Debug)]
pub(super) struct RowTable<R, T> {
    /// Chunks, none of them empty, by a bound: the orders in a chunk are at or after its own and before that of the next.
    chunks: BTreeMap<u64, Chunk<R, T>>,
}

#[derive(Clone, Debug)]
struct Chunk<R, T> {
    rows: Vec<R>,
    /// The other column, in the order of the rows.
    rest: Vec<T>,
}

impl<R: Row, T> Chunk<R, T> {
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
        self.chunks.values().map(|chunk| chunk.rows.len()).sum()
    }

    pub(super) fn get(&self, order: u64) -> Option<&T> {
        let (_, chunk) = self.chunks.range(..=order).next_back()?;
        chunk.rest.get(chunk.position(order).ok()?)
    }

    pub(super) fn get_mut(&mut self, order: u64) -> Option<(&mut R, &mut T)> {
        let (_, chunk) = self.chunks.range_mut(..=order).next_back()?;
        let at = chunk.position(order).ok()?;
        chunk.rows.get_mut(at).zip(chunk.rest.get_mut(at))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.values_mut().flat_map(|chunk| &mut chunk.rest)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&R, &T)> {
        self.chunks.values().flat_map(Chunk::all)
    }

    /// The entries after an order.
    pub(super) fn after(&self, order: u64) -> impl Iterator<Item = (&R, &T)> {
        let first = self.chunks.range(..=order).next_back();
        let bound = first.map_or(0, |(bound, _)| *bound);
        let first = first.into_iter().flat_map(move |(_, chunk)| {
            let from = chunk.rows.partition_point(|row| row.order() <= order);
            chunk.entries(from, chunk.rows.len())
        });
        let rest = (Bound::Excluded(bound), Bound::Unbounded);
        let rest = self.chunks.range(rest);
        first.chain(rest.flat_map(|(_, chunk)| chunk.all()))
    }

    /// The entries before an order, the last first.
    pub(super) fn before(&self, order: u64) -> impl Iterator<Item = (&R, &T)> {
        let last = self.chunks.range(..order).next_back();
        let bound = last.map_or(0, |(bound, _)| *bound);
        let last = last.into_iter().flat_map(move |(_, chunk)| {
            let to = chunk.rows.partition_point(|row| row.order() < order);
            chunk.entries(0, to).rev()
        });
        let rest = self.chunks.range(..bound).rev();
        last.chain(rest.flat_map(|(_, chunk)| chunk.all().rev()))
    }

    /// Adds an entry, in the place of one that has its order.
    pub(super) fn insert(&mut self, row: R, rest: T) {
        let order = row.order();
        let Some((_, chunk)) = self.chunks.range_mut(..=order).next_back() else {
            self.chunks.insert(order, Chunk::of_one(row, rest));
            return;
        };
        match chunk.position(order) {
            Ok(at) => {
                chunk.rows[at] = row;
                chunk.rest[at] = rest;
            }
            // The usual case: what is new has the highest order.
            Err(at) if at == MOST => {
                self.chunks.insert(order, Chunk::of_one(row, rest));
            }
            Err(at) => {
                chunk.rows.insert(at, row);
                chunk.rest.insert(at, rest);
                if chunk.rows.len() > MOST {
                    let later = Chunk {
                        rows: chunk.rows.split_off(MOST / 2),
                        rest: chunk.rest.split_off(MOST / 2),
                    };
                    self.chunks.insert(later.rows[0].order(), later);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, order: u64) -> Option<(R, T)> {
        let (bound, chunk) = self.chunks.range_mut(..=order).next_back()?;
        let at = chunk.position(order).ok()?;
        let removed = (chunk.rows.remove(at), chunk.rest.remove(at));
        let left = chunk.rows.len();
        if left == 0 {
            let bound = *bound;
            self.chunks.remove(&bound);
        } else if left < chunk.rows.capacity() / 4 {
            chunk.rows.shrink_to(2 * left);
            chunk.rest.shrink_to(2 * left);
        }
        Some(removed)
    }
}

impl<R, T> Default for RowTable<R, T> {
    fn default() -> Self {
        let chunks = BTreeMap::new();
        Self { chunks }
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
            let sizes = table.chunks.values().map(|chunk| (chunk.rows.len(), chunk.rest.len()));
            prop_assert!(sizes.into_iter().all(|(rows, rest)| rows == rest && (1..=MOST).contains(&rows)));
        }
    }
}
