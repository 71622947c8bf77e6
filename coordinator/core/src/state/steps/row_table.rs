//! A map by numbers whose entries lie side by side in memory.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

/// Most entries in one chunk.
const MOST: usize = 512;

/// Entries in chunks, sorted by their numbers: going through 100,000 of them takes milliseconds, and several times as long
/// if each lies elsewhere in memory.
#[derive(Clone, Debug)]
pub(super) struct RowTable<T> {
    /// Chunks, none of them empty, by a bound: the numbers in a chunk are at or after its own and before that of the next.
    chunks: BTreeMap<u64, Vec<(u64, T)>>,
}

impl<T> RowTable<T> {
    pub(super) fn len(&self) -> usize {
        self.chunks.values().map(Vec::len).sum()
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (_, chunk) = self.chunks.range(..=number).next_back()?;
        let at = position(chunk, number).ok()?;
        chunk.get(at).map(|(_, entry)| entry)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (_, chunk) = self.chunks.range_mut(..=number).next_back()?;
        let at = position(chunk, number).ok()?;
        chunk.get_mut(at).map(|(_, entry)| entry)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.values().flatten().map(|(_, entry)| entry)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let entries = self.chunks.values_mut().flatten();
        entries.map(|(_, entry)| entry)
    }

    /// The entries after a number.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &T> {
        let (first, bound) = self.chunk_of(number);
        let from = first.partition_point(|(own, _)| *own <= number);
        let rest = self
            .chunks
            .range((Bound::Excluded(bound), Bound::Unbounded));
        let entries = first[from..]
            .iter()
            .chain(rest.flat_map(|(_, chunk)| chunk));
        entries.map(|(_, entry)| entry)
    }

    /// The entries before a number, the last first.
    pub(super) fn before(&self, number: u64) -> impl Iterator<Item = &T> {
        let (last, bound) = self.chunk_of(number);
        let to = last.partition_point(|(own, _)| *own < number);
        let rest = self.chunks.range(..bound).rev();
        let rest = rest.flat_map(|(_, chunk)| chunk.iter().rev());
        let entries = last[..to].iter().rev().chain(rest);
        entries.map(|(_, entry)| entry)
    }

    /// The chunk in which a number belongs, with its bound.
    fn chunk_of(&self, number: u64) -> (&[(u64, T)], u64) {
        let found = self.chunks.range(..=number).next_back();
        found.map_or((&[], 0), |(bound, chunk)| (chunk, *bound))
    }

    /// Adds an entry, in the place of one that has its number.
    pub(super) fn insert(&mut self, number: u64, entry: T) {
        let Some((_, chunk)) = self.chunks.range_mut(..=number).next_back() else {
            self.chunks.insert(number, vec![(number, entry)]);
            return;
        };
        match position(chunk, number) {
            Ok(at) => chunk[at] = (number, entry),
            // The usual case: what is new has the highest number.
            Err(at) if at == MOST => {
                self.chunks.insert(number, vec![(number, entry)]);
            }
            Err(at) => {
                chunk.insert(at, (number, entry));
                if chunk.len() > MOST {
                    let later = chunk.split_off(MOST / 2);
                    self.chunks.insert(later[0].0, later);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let (bound, chunk) = self.chunks.range_mut(..=number).next_back()?;
        let (_, removed) = chunk.remove(position(chunk, number).ok()?);
        if chunk.is_empty() {
            let bound = *bound;
            self.chunks.remove(&bound);
        } else if chunk.len() < chunk.capacity() / 4 {
            chunk.shrink_to(2 * chunk.len());
        }
        Some(removed)
    }
}

impl<T> Default for RowTable<T> {
    fn default() -> Self {
        let chunks = BTreeMap::new();
        Self { chunks }
    }
}

impl<T: PartialEq> PartialEq for RowTable<T> {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.chunks.values(), other.chunks.values());
        own.flatten().eq(others.flatten())
    }
}

impl<T: Eq> Eq for RowTable<T> {}

fn position<T>(chunk: &[(u64, T)], number: u64) -> Result<usize, usize> {
    chunk.binary_search_by_key(&number, |(own, _)| *own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The map has what a plain one has, whatever is added and removed.
        #[test]
        fn it_has_what_a_plain_map_has(
            changes in prop::collection::vec((0..3_u8, 0..3000_u64), 0..4000),
            from in 0..3000_u64,
        ) {
            let (mut chunked, mut map) = (RowTable::default(), BTreeMap::new());
            for (time, (kind, number)) in changes.into_iter().enumerate() {
                if kind > 0 {
                    chunked.insert(number, time);
                    map.insert(number, time);
                } else {
                    prop_assert_eq!(chunked.remove(number), map.remove(&number));
                }
            }
            prop_assert_eq!(chunked.len(), map.len());
            prop_assert!(chunked.values().eq(map.values()));
            prop_assert!(chunked.after(from).eq(map.range(from + 1..).map(|(_, time)| time)));
            prop_assert!(chunked.before(from).eq(map.range(..from).rev().map(|(_, time)| time)));
            prop_assert_eq!(chunked.get(from), map.get(&from));
            let sizes = chunked.chunks.values().map(Vec::len);
            prop_assert!(sizes.into_iter().all(|size| (1..=MOST).contains(&size)));
        }
    }
}
