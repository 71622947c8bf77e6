//! The trait that each kind implements so that it can be listed, watched and named.

use jiff::Timestamp;
use serde::Serialize;

use super::document::ApplyDocument;
use super::safe;
use super::table::{Cell, Column, Table};
use crate::out::Out;

/// A kind that can be listed.
pub(crate) trait Listed: Serialize {
    /// Kind in the singular, as commands take it.
    const KIND: &'static str;
    /// Columns of its table.
    const COLUMNS: &'static [Column];

    /// Returns its name, unique among its kind.
    fn name(&self) -> String;

    /// Returns a cell for each column.
    fn cells(&self, now: Timestamp) -> Vec<Cell>;

    /// Returns the document by which it can be applied again, if there is one.
    fn document(&self) -> Option<ApplyDocument> {
        None
    }

    /// Returns the cells of the totals line, by column title; none for kinds without totals.
    fn sum(_items: &[Self]) -> Option<Vec<(&'static str, Cell)>>
    where
        Self: Sized,
    {
        None
    }
}

/// Renders a table.
pub(crate) fn table<T: Listed>(items: &[T], now: Timestamp, out: Out) -> String {
    let mut rows = rows(items, now);
    rows.extend(T::sum(items).map(|sum| row_of(T::COLUMNS, &sum)));
    Table::new(T::COLUMNS, out).whole(&rows)
}

/// Puts cells below their columns, and empty ones below the others.
fn row_of(columns: &[Column], cells: &[(&'static str, Cell)]) -> Vec<Cell> {
    let cell = |column: &Column| {
        let found = cells.iter().find(|(title, _)| *title == column.title());
        found.map_or_else(|| String::new().into(), |(_, cell)| cell.clone())
    };
    columns.iter().map(cell).collect()
}

/// Renders the rows of a table.
pub(crate) fn rows<T: Listed>(items: &[T], now: Timestamp) -> Vec<Vec<Cell>> {
    items.iter().map(|item| item.cells(now)).collect()
}

/// Returns `KIND/NAME`, which commands accept as a name.
pub(crate) fn full_name<T: Listed>(item: &T) -> String {
    format!("{}/{}", T::KIND, safe(&item.name()))
}
