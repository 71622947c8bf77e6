//! What every kind of thing says of itself so that it can be listed, watched and named in one way.

use jiff::Timestamp;
use serde::Serialize;

use super::document::ApplyDocument;
use super::safe;
use super::table::{Cell, Column, Table};
use crate::out::Out;

/// A kind of thing that can be listed.
pub(crate) trait Listed: Serialize {
    /// The kind in the singular, as commands take it.
    const KIND: &'static str;
    /// The columns of its table.
    const COLUMNS: &'static [Column];

    /// What it is known by, unique among its kind.
    fn name(&self) -> String;

    /// A cell for each column.
    fn cells(&self, now: Timestamp) -> Vec<Cell>;

    /// The document by which it is applied again, if there is one.
    fn document(&self) -> Option<ApplyDocument> {
        None
    }

    /// What stands in the last line below several of them, by the titles of columns; nothing of kinds that are not
    /// added up.
    fn sum(_items: &[Self]) -> Option<Vec<(&'static str, Cell)>>
    where
        Self: Sized,
    {
        None
    }
}

/// A table of them.
pub(crate) fn table<T: Listed>(items: &[T], now: Timestamp, out: Out) -> String {
    let mut rows = rows(items, now);
    rows.extend(T::sum(items).map(|sum| row_of(T::COLUMNS, &sum)));
    Table::new(T::COLUMNS, out).whole(&rows)
}

/// A row of the cells that there are, and of nothing below the other columns.
fn row_of(columns: &[Column], cells: &[(&'static str, Cell)]) -> Vec<Cell> {
    let cell = |column: &Column| {
        let found = cells.iter().find(|(title, _)| *title == column.title());
        found.map_or_else(|| String::new().into(), |(_, cell)| cell.clone())
    };
    columns.iter().map(cell).collect()
}

/// The rows of a table of them.
pub(crate) fn rows<T: Listed>(items: &[T], now: Timestamp) -> Vec<Vec<Cell>> {
    items.iter().map(|item| item.cells(now)).collect()
}

/// `KIND/NAME`, which commands take in place of the name.
pub(crate) fn full_name<T: Listed>(item: &T) -> String {
    format!("{}/{}", T::KIND, safe(&item.name()))
}
