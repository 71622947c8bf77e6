//! Reads tables in CSV with a header. Errors in a row name file, line and column.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use csv::{ReaderBuilder, StringRecord, Trim};

/// Most errors that are reported at once.
const MOST_MISTAKES: usize = 20;

/// Errors of a file, for people: one sentence on each line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub(crate) String);

/// The rows of a CSV file, with the column of each name.
#[derive(Debug)]
pub struct CsvTable {
    file: String,
    columns: StringRecord,
    /// Rows with the line number of their first line.
    rows: Vec<(u64, StringRecord)>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    csv_table: &'a CsvTable,
    line: u64,
    cells: &'a StringRecord,
}

impl CsvTable {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a table.
    pub fn read(path: &Path) -> Result<Self, Unreadable> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|e| Unreadable(format!("{file}: cannot be read: {e}")))?;
        Self::parse(file, &text)
    }

    /// Reads a text; errors name it `file`.
    ///
    /// # Errors
    /// The text is not a table.
    pub fn parse(file: String, text: &str) -> Result<Self, Unreadable> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Rows of another length get our own error message.
        let mut reader = ReaderBuilder::new()
            .trim(Trim::All)
            .flexible(true)
            .from_reader(text.as_bytes());
        let wrong = |error: csv::Error| Unreadable(format!("{file}: {error}"));
        let columns = reader.headers().map_err(wrong)?.clone();
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(wrong)?;
            if row.iter().all(str::is_empty) {
                continue;
            }
            let line = row.position().map_or(0, |at| line_of(text, at));
            if row.len() != columns.len() {
                return Err(Unreadable(format!(
                    "{file}, line {line}: it has {} columns and the header has {}",
                    row.len(),
                    columns.len()
                )));
            }
            rows.push((line, row));
        }
        Ok(Self {
            file,
            columns,
            rows,
        })
    }

    /// The file of the table.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Whether the table has all of these columns.
    pub fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.at(column).is_some())
    }

    /// The columns, as they are written.
    pub fn header(&self) -> String {
        self.columns.iter().collect::<Vec<_>>().join(",")
    }

    fn at(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known == column)
    }

    /// Reads every row, and collects the errors of all rows.
    ///
    /// # Errors
    /// Some row has an error.
    pub fn each<T>(
        &self,
        read: impl Fn(Row<'_>) -> Result<T, String>,
    ) -> Result<Vec<T>, Unreadable> {
        let mut found = Vec::with_capacity(self.rows.len());
        let mut mistakes = Vec::new();
        for (line, cells) in &self.rows {
            let row = Row {
                csv_table: self,
                line: *line,
                cells,
            };
            match read(row) {
                Ok(thing) => found.push(thing),
                Err(mistake) => mistakes.push(mistake),
            }
            if mistakes.len() == MOST_MISTAKES {
                break;
            }
        }
        if mistakes.is_empty() {
            return Ok(found);
        }
        Err(Unreadable(mistakes.join("\n")))
    }
}

/// The line of a row. Its position is that of the empty lines before it, which belong to no row.
fn line_of(text: &str, at: &csv::Position) -> u64 {
    let rest = usize::try_from(at.byte()).map_or("", |byte| &text[byte..]);
    let empty = rest.chars().take_while(|c| ['\r', '\n'].contains(c));
    (at.line()..)
        .zip(empty.filter(|c| *c == '\n'))
        .last()
        .map_or(at.line(), |(line, _)| line + 1)
}

impl Row<'_> {
    /// The text in a column; empty if there is no such column.
    pub fn text(&self, column: &str) -> &str {
        let at = self.csv_table.at(column);
        at.and_then(|at| self.cells.get(at)).unwrap_or("")
    }

    /// Reads a value of a column.
    ///
    /// # Errors
    /// The value is not `what` it should be.
    pub fn value<T: FromStr>(&self, column: &str, what: &str) -> Result<T, String> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.wrong(column, format!("`{}` is not {what}", text.escape_debug())))
    }

    /// Reads a whole number from 0.
    ///
    /// # Errors
    /// The value is something else.
    pub fn number(&self, column: &str) -> Result<u64, String> {
        self.value(column, "a whole number from 0")
    }

    /// Makes an error about a column of this row.
    pub fn wrong(&self, column: &str, why: impl Display) -> String {
        let Self {
            csv_table, line, ..
        } = self;
        format!("{}, line {line}, column `{column}`: {why}", csv_table.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Result<Vec<u64>, String> {
        let csv_table = CsvTable::parse("f.csv".to_owned(), text);
        let read = csv_table.and_then(|csv_table| csv_table.each(|row| row.number("n")));
        read.map_err(|e| e.to_string())
    }

    #[test]
    fn columns_are_found_by_name_and_empty_lines_are_none() {
        let text = "\u{feff}a,n\r\nx, 1\r\n\r\ny,2\r\n";
        assert_eq!(numbers(text), Ok(vec![1, 2]));
    }

    #[test]
    fn a_quoted_field_may_hold_commas_quotes_and_lines() {
        let text = "a,n\n\"x, \"\"y\"\"\nz\",3\nw,4\n";
        assert_eq!(numbers(text), Ok(vec![3, 4]));
        let text = "a,n\n\"x\ny\",1\nz,b\n";
        let error = numbers(text).unwrap_err();
        assert!(error.starts_with("f.csv, line 4, column `n`"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_column() {
        for (text, words) in [
            (
                "a,n\nx,1\n\ny,-2\n",
                "f.csv, line 4, column `n`: `-2` is not a whole number",
            ),
            (
                "a,n\nx,1\ny\n",
                "f.csv, line 3: it has 1 columns and the header has 2",
            ),
            (
                "a\nx\n",
                "f.csv, line 2, column `n`: `` is not a whole number",
            ),
        ] {
            let error = numbers(text).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
