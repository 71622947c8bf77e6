//! Pages of lists, bounded in items and bytes. A page of named things begins after the last name of the page before.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use sluice_common::api::Page;

use super::error::ApiError;
use super::params;

/// Most bytes of a page's items, unless a single item is larger: a step may be near a megabyte, and a thousand of them
/// are more than a caller or this process should hold at once.
pub(super) const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Builds a page. `C` is the cursor behind an item.
pub(super) struct PageBuilder<C> {
    items: Vec<Box<RawValue>>,
    limit: usize,
    bytes: usize,
    last: Option<C>,
    full: bool,
}

impl<C: ToString> PageBuilder<C> {
    /// Starts a page of at most `limit` items.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            items: Vec::new(),
            limit,
            bytes: 0,
            last: None,
            full: false,
        }
    }

    /// Returns how many more items may fit.
    pub(super) fn room(&self) -> usize {
        self.limit - self.items.len()
    }

    /// Adds an item, unless there is no room for it: then the page is full.
    pub(super) fn offer(&mut self, cursor: C, item: &impl Serialize) -> Result<(), ApiError> {
        if self.room() == 0 {
            self.full = true;
        }
        if self.full {
            return Ok(());
        }
        let raw = to_raw_value(item).map_err(|error| ApiError::Internal {
            message: format!("an item of a list cannot be written: {error}"),
        })?;
        let bytes = self.bytes + raw.get().len();
        if bytes > MAX_PAGE_BYTES && !self.items.is_empty() {
            self.full = true;
            return Ok(());
        }
        self.bytes = bytes;
        self.items.push(raw);
        self.last = Some(cursor);
        Ok(())
    }

    /// Whether an item was offered that did not fit.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the page, with a cursor if something follows: an item that did not fit, or what is after `onward`.
    pub(super) fn page(self, onward: Option<C>) -> Page<Box<RawValue>> {
        let next = if self.full { self.last } else { onward };
        Page {
            items: self.items,
            next_cursor: next.map(|cursor| cursor.to_string()),
            left_out: None,
        }
    }
}

/// Parameters of a list sorted by name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamePageParams {
    cursor: Option<String>,
    limit: Option<String>,
}

impl NamePageParams {
    pub(super) fn read<K>(&self) -> Result<NamePage<K>, ApiError>
    where
        K: FromStr<Err: ToString>,
    {
        NamePage::read(self.cursor.as_deref(), self.limit.as_deref())
    }
}

/// A requested page of a list sorted by name.
pub(super) struct NamePage<K> {
    after: Option<K>,
    limit: usize,
}

impl<K> NamePage<K> {
    /// Parses the parameters `cursor` and `limit`.
    pub(super) fn read(cursor: Option<&str>, limit: Option<&str>) -> Result<Self, ApiError>
    where
        K: FromStr<Err: ToString>,
    {
        let limit = params::limit(limit)?;
        let after = params::read("cursor", cursor)?;
        Ok(Self { after, limit })
    }

    /// Returns the entries after the cursor.
    pub(super) fn of<'a, V>(
        &self,
        all: &'a BTreeMap<K, V>,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V>
    where
        K: Ord,
    {
        let from = self
            .after
            .as_ref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        all.range::<K, _>((from, Bound::Unbounded))
    }

    /// Whether a name is after the cursor.
    pub(super) fn reaches(&self, name: &K) -> bool
    where
        K: Ord,
    {
        self.after.as_ref().is_none_or(|after| name > after)
    }

    /// Returns the first of `items`, as many as fit; `name` is the cursor of an item.
    pub(super) fn page<T>(
        &self,
        items: impl Iterator<Item = T>,
        name: impl Fn(&T) -> String,
    ) -> Page<T> {
        let mut items: Vec<T> = items.take(self.limit + 1).collect();
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next_cursor = items.last().filter(|_| more).map(name);
        Page::of(items, next_cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(limit: usize, sizes: &[usize]) -> (Vec<usize>, Option<String>) {
        let mut filling = PageBuilder::new(limit);
        for (cursor, size) in (1..).zip(sizes) {
            // Two of the bytes are the quotes.
            filling.offer(cursor, &"x".repeat(size - 2)).unwrap();
        }
        let page = filling.page(None::<u64>);
        let sizes = page.items.iter().map(|item| item.get().len());
        (sizes.collect(), page.next_cursor)
    }

    #[test]
    fn a_page_ends_where_its_items_or_bytes_do() {
        const M: usize = MAX_PAGE_BYTES;
        for (limit, sizes, taken, next) in [
            (2, &[3, 3][..], 2, None),
            (2, &[3, 3, 3], 2, Some("2")),
            (9, &[M / 2, M / 2], 2, None),
            (9, &[M / 2, M / 2, 2], 2, Some("2")),
            // The cursor stays before an item that did not fit.
            (9, &[M - 9, 10, 2], 1, Some("1")),
            (9, &[M + 1, 2], 1, Some("1")),
            (9, &[M + 1], 1, None),
            (9, &[], 0, None),
        ] {
            let (found, cursor) = filled(limit, sizes);
            assert_eq!(found, sizes[..taken], "{limit} of {sizes:?}");
            assert_eq!(cursor.as_deref(), next, "{limit} of {sizes:?}");
        }
    }
}
