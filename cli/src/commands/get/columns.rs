//! Lists with columns of the caller's choice, as an aligned table or as CSV.
//!
//! A column is one of the kind's own by its title, or a field of the JSON: `.reason.code`, or `WHY:.reason.code` with a
//! title.

use jiff::Timestamp;
use serde_json::Value;
use sluice_common::nearest::nearest;

use crate::args::{GetArgs, ListFormat};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::data::DataError;
use crate::render::listed::Listed;
use crate::render::table::align;
use crate::render::{or_dash, safe};
use crate::show;

/// Whether the list is printed here.
pub(super) fn are_chosen(args: &GetArgs, out: Out) -> bool {
    !args.columns.is_empty() || args.no_headers || out.list_format().is_some()
}

/// Rejects what does not go together.
pub(super) fn check(args: &GetArgs, out: Out) -> Result<(), Failure> {
    let table = out.format().is_text();
    if (args.no_headers || !args.columns.is_empty()) && !table {
        return Err(Failure::Usage(
            "--columns and --no-headers are for tables and CSV: leave them out, or -o".to_owned(),
        ));
    }
    if args.watch && table && are_chosen(args, out) {
        return Err(Failure::Usage(
            "--columns, --no-headers and -o csv are for a list that ends: leave them out, or --watch".to_owned(),
        ));
    }
    Ok(())
}

/// Prints a list.
pub(super) fn show<T: Listed>(items: &[T], args: &GetArgs, out: Out) -> Result<(), Failure> {
    if out.list_format() == Some(ListFormat::Jsonl) {
        return items.iter().try_for_each(|item| show::next(item, out));
    }
    let columns = match args.columns.is_empty() {
        true => own_columns::<T>(out),
        false => chosen::<T>(&args.columns)?,
    };
    let now = Timestamp::now();
    let head: Vec<String> = columns.iter().map(|column| column.title.clone()).collect();
    let rows = items.iter().map(|item| row(item, &columns, now));
    let rows: Vec<Vec<String>> = rows.collect::<Result<_, DataError>>()?;
    let head = (!args.no_headers).then_some(head);
    let lines: Vec<Vec<String>> = head.into_iter().chain(rows).collect();
    let text = match out.list_format() {
        Some(ListFormat::Csv) => csv_text(&lines)?,
        Some(ListFormat::Jsonl) | None => {
            let lines: Vec<String> = lines.iter().map(|line| line.join("\t")).collect();
            let aligned = align(&lines);
            aligned
                .lines()
                .map(|line| line.trim_end().to_owned() + "\n")
                .collect()
        }
    };
    out.result(&text)
}

/// A column to print.
#[derive(Debug)]
struct GetColumn {
    title: String,
    source: ColumnSource,
}

/// The source of a column's texts.
#[derive(Debug)]
enum ColumnSource {
    /// The column of the kind's table at this index.
    Own(usize),
    /// A field of the JSON, as a pointer such as `/reason/code`.
    Field(String),
}

/// Returns the columns of the kind's table; all of them for CSV.
fn own_columns<T: Listed>(out: Out) -> Vec<GetColumn> {
    let all = (0..).zip(T::COLUMNS);
    let shown = all.filter(|(_, column)| out.list_format().is_some() || column.is_wanted(out));
    let own = shown.map(|(index, column)| GetColumn {
        title: column.title().to_owned(),
        source: ColumnSource::Own(index),
    });
    own.collect()
}

fn chosen<T: Listed>(wanted: &[String]) -> Result<Vec<GetColumn>, Failure> {
    wanted.iter().map(|text| column::<T>(text)).collect()
}

fn column<T: Listed>(text: &str) -> Result<GetColumn, Failure> {
    let (title, path) = match text.split_once(':') {
        Some((title, path)) => (title, Some(path)),
        None => (text, text.starts_with('.').then_some(text)),
    };
    if let Some(path) = path {
        let Some(fields) = path.strip_prefix('.').filter(|fields| !fields.is_empty()) else {
            return Err(Failure::Usage(format!(
                "--columns: `{}` names no field: write TITLE:.FIELD, such as WHY:.reason.code",
                safe(text)
            )));
        };
        let fields = fields.replace(['.', '['], "/").replace(']', "");
        return Ok(GetColumn {
            title: safe(title),
            source: ColumnSource::Field(format!("/{fields}")),
        });
    }
    let title = title.to_uppercase();
    let titles = T::COLUMNS.iter().map(|column| column.title());
    let index = titles.clone().position(|known| known == title);
    let index = index.ok_or_else(|| {
        let hint = match nearest(&title, titles.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "there are {}, and fields such as .reason.code",
                titles.collect::<Vec<_>>().join(", ")
            ),
        };
        Failure::Usage(format!(
            "--columns: there is no column `{}`: {hint}",
            safe(text)
        ))
    })?;
    Ok(GetColumn {
        title,
        source: ColumnSource::Own(index),
    })
}

fn row<T: Listed>(
    item: &T,
    columns: &[GetColumn],
    now: Timestamp,
) -> Result<Vec<String>, DataError> {
    let cells = item.cells(now);
    let has_fields = columns
        .iter()
        .any(|column| matches!(column.source, ColumnSource::Field(_)));
    let json = match has_fields {
        true => serde_json::to_value(item)?,
        false => Value::Null,
    };
    let text = |column: &GetColumn| match &column.source {
        ColumnSource::Own(index) => cells[*index].text().to_owned(),
        ColumnSource::Field(pointer) => match json.pointer(pointer) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => or_dash(Some(text)),
            Some(other) => safe(&other.to_string()),
        },
    };
    Ok(columns.iter().map(text).collect())
}

fn csv_text(lines: &[Vec<String>]) -> Result<String, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot write CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        writer.write_record(line).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::step::tests::{now, running};
    use sluice_common::api::StepView;

    fn texts(wanted: &[&str]) -> Result<Vec<String>, Failure> {
        let wanted: Vec<String> = wanted.iter().copied().map(str::to_owned).collect();
        let columns = chosen::<StepView>(&wanted)?;
        let row = row(&running(), &columns, now())?;
        let cells = columns.iter().zip(row);
        Ok(cells
            .map(|(column, text)| format!("{}={text}", column.title))
            .collect())
    }

    #[test]
    fn columns_are_titles_or_fields() {
        let found = texts(&[
            "id",
            "Command",
            "WHY:.reason.code",
            ".placements[0].node",
            "X:.exit",
            "N:.nodes",
        ]);
        let expected = [
            "ID=k3v9",
            "COMMAND=python train.py --name 'a b'",
            "WHY=running",
            ".placements[0].node=gpu-1",
            "X=-",
            "N=1",
        ];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn an_unknown_column_is_answered_with_the_nearest() {
        let message = |text| texts(&[text]).unwrap_err().to_string();
        assert_eq!(
            message("stat"),
            "--columns: there is no column `stat`: did you mean `STATE`?"
        );
        assert!(
            message("xyzzy").contains("there are ID, NAME, "),
            "{}",
            message("xyzzy")
        );
        assert!(
            message("A:b").ends_with("such as WHY:.reason.code"),
            "{}",
            message("A:b")
        );
    }

    #[test]
    fn csv_quotes_what_it_must() {
        let lines = [vec!["a".to_owned(), "b, \"c\"".to_owned()]];
        assert_eq!(csv_text(&lines).unwrap(), "a,\"b, \"\"c\"\"\"\n");
    }
}
