//! Prints results in the format of `-o`. JSON and YAML have the shape of the HTTP API: a single thing is itself, a list
//! is `{"items": [...]}`. What `get` prints of a document's kind can be applied again: JSON adds the `kind`, YAML is
//! the document with a `status`.

use jiff::Timestamp;
use serde::Serialize;

use crate::args::Format;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::data::{self, DataError};
use crate::render::document;
use crate::render::listed::{self, Listed};

/// The shape of a list.
#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

/// Prints a list: a table, `{"items": [...]}`, or names.
pub(crate) fn list<T: Listed>(items: &[T], out: Out) -> Result<(), Failure> {
    out.result(&list_text(items, Timestamp::now(), out)?)
}

/// Prints the results of a change of several things: `line` of each, `{"items": [...]}`, or names.
pub(crate) fn each<T: Listed>(
    items: &[T],
    out: Out,
    line: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let lines = |items: &[T]| items.iter().map(|item| line(item) + "\n").collect();
    out.result(&many(items, out, lines)?)
}

/// Prints one thing: `text` of it, itself as data, or its name.
pub(crate) fn one<T: Listed>(
    item: &T,
    out: Out,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    out.result(&one_text(item, out, text)?)
}

/// Prints one thing of a list, as a table of one row in text formats.
pub(crate) fn row<T: Listed>(item: &T, out: Out) -> Result<(), Failure> {
    out.result(&row_text(item, Timestamp::now(), out)?)
}

/// Prints one of many things that come one by one, in data formats: a line of JSON, a document of YAML, a name.
pub(crate) fn next<T: Listed>(item: &T, out: Out) -> Result<(), Failure> {
    out.result(&next_text(item, out)?)
}

/// Prints a list of things without a kind.
pub(crate) fn items(items: &[impl Serialize], out: Out) -> Result<(), Failure> {
    value(&Items { items }, out)
}

/// Refuses a format in which a report has nothing to print.
pub(crate) fn check_report_format(out: Out) -> Result<(), Failure> {
    match out.format() {
        Format::Name => Err(Failure::Usage(
            "--output: `name` does not apply to a report: choose -o table, json or yaml".to_owned(),
        )),
        Format::Table | Format::Wide | Format::Json | Format::Yaml => Ok(()),
    }
}

/// Prints something without a kind, as YAML if requested, else as JSON.
pub(crate) fn value(value: &impl Serialize, out: Out) -> Result<(), Failure> {
    out.result(&data_text(value, out)?)
}

fn row_text<T: Listed>(item: &T, now: Timestamp, out: Out) -> Result<String, DataError> {
    if out.format().is_data() {
        return data_text(&shown(item, out)?, out);
    }
    one_text(item, out, |item| {
        listed::table(std::slice::from_ref(item), now, out)
    })
}

fn list_text<T: Listed>(items: &[T], now: Timestamp, out: Out) -> Result<String, DataError> {
    if out.format().is_data() {
        let items: Result<Vec<_>, DataError> = items.iter().map(|it| shown(it, out)).collect();
        return data_text(&Items { items: &items? }, out);
    }
    many(items, out, |items| listed::table(items, now, out))
}

/// An item as data that can be applied or submitted again.
#[derive(Serialize)]
#[serde(untagged)]
enum ListItem<'a, T> {
    /// A read-only view.
    Told(&'a T),
    /// The view, with its kind.
    Kind {
        kind: &'static str,
        #[serde(flatten)]
        told: &'a T,
    },
    /// The document, with its status.
    Document(document::DocumentWithStatus),
}

fn shown<T: Listed>(item: &T, out: Out) -> Result<ListItem<'_, T>, DataError> {
    let Some(document) = item.document() else {
        return Ok(ListItem::Told(item));
    };
    match out.format() == Format::Yaml && !document.is_flat() {
        true => Ok(ListItem::Document(document.with_status(item)?)),
        false => Ok(ListItem::Kind {
            kind: document.kind,
            told: item,
        }),
    }
}

fn many<T: Listed>(
    items: &[T],
    out: Out,
    text: impl FnOnce(&[T]) -> String,
) -> Result<String, DataError> {
    match out.format() {
        Format::Table | Format::Wide => Ok(text(items)),
        Format::Json | Format::Yaml => data_text(&Items { items }, out),
        Format::Name => Ok(items
            .iter()
            .map(|item| listed::full_name(item) + "\n")
            .collect()),
    }
}

fn one_text<T: Listed>(
    item: &T,
    out: Out,
    text: impl FnOnce(&T) -> String,
) -> Result<String, DataError> {
    match out.format() {
        Format::Table | Format::Wide => Ok(text(item)),
        Format::Json | Format::Yaml => data_text(item, out),
        Format::Name => Ok(listed::full_name(item)),
    }
}

fn next_text<T: Listed>(item: &T, out: Out) -> Result<String, DataError> {
    match out.format() {
        Format::Json => data::json_line(&shown(item, out)?),
        Format::Yaml => Ok(format!("---\n{}", data::yaml(&shown(item, out)?)?)),
        Format::Name | Format::Table | Format::Wide => Ok(listed::full_name(item)),
    }
}

fn data_text(value: &impl Serialize, out: Out) -> Result<String, DataError> {
    match out.format() {
        Format::Yaml => data::yaml(value),
        Format::Table | Format::Wide | Format::Json | Format::Name => data::json(value),
    }
}

#[cfg(test)]
mod tests;
