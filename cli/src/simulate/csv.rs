//! Tables in CSV with a header. What is wrong in a row is told with file, line and column.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::failure::Failure;

/// Mistakes that are told at once: more are not read by anybody.
const MOST_MISTAKES: usize = 20;

/// A table.
#[derive(Debug)]
pub(super) struct Sheet {
    file: String,
    columns: Vec<String>,
    /// With the number of each line.
    rows: Vec<(usize, Vec<String>)>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    sheet: &'a Sheet,
    line: usize,
    cells: &'a [String],
}

impl Sheet {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|e| Failure::Usage(format!("{file}: cannot be read: {e}")))?;
        Self::parse(file, &text).map_err(Failure::Usage)
    }

    /// Reads a text; `file` is what mistakes in it are told of.
    pub(super) fn parse(file: String, text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.contains('"') {
            return Err(format!(
                "{file}: it has quoted fields, which are not understood: write them without"
            ));
        }
        let mut lines = (1..).zip(text.lines());
        let header = lines.next().map_or("", |(_, header)| header);
        let columns = cells(header);
        let rows = lines.filter(|(_, line)| !line.trim().is_empty());
        let rows: Vec<(usize, Vec<String>)> =
            rows.map(|(line, text)| (line, cells(text))).collect();
        if let Some((line, row)) = rows.iter().find(|(_, row)| row.len() != columns.len()) {
            return Err(format!(
                "{file}, line {line}: it has {} columns and the header has {}",
                row.len(),
                columns.len()
            ));
        }
        Ok(Self {
            file,
            columns,
            rows,
        })
    }

    /// The file that it was read from.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Whether it has all of these columns.
    pub(super) fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.at(column).is_some())
    }

    /// The columns, as they are written.
    pub(super) fn header(&self) -> String {
        self.columns.join(",")
    }

    fn at(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known == column)
    }

    /// Reads every row, and tells every mistake at once.
    pub(super) fn each<T>(
        &self,
        read: impl Fn(Row<'_>) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let mut found = Vec::with_capacity(self.rows.len());
        let mut mistakes = Vec::new();
        for (line, cells) in &self.rows {
            let row = Row {
                sheet: self,
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
        Err(Failure::Usage(mistakes.join("\n")))
    }
}

fn cells(line: &str) -> Vec<String> {
    line.split(',').map(|cell| cell.trim().to_owned()).collect()
}

impl Row<'_> {
    /// What stands in a column; nothing where there is no such column.
    pub(super) fn text(&self, column: &str) -> &str {
        let at = self.sheet.at(column);
        at.and_then(|at| self.cells.get(at))
            .map_or("", String::as_str)
    }

    /// A value of a column.
    pub(super) fn value<T: FromStr>(&self, column: &str, what: &str) -> Result<T, String> {
        let text = self.text(column);
        text.parse()
            .map_err(|_| self.wrong(column, format!("`{}` is not {what}", text.escape_debug())))
    }

    /// A whole number from 0.
    pub(super) fn number(&self, column: &str) -> Result<u64, String> {
        self.value(column, "a whole number from 0")
    }

    /// What is wrong with a column of this row.
    pub(super) fn wrong(&self, column: &str, why: impl Display) -> String {
        let Self { sheet, line, .. } = self;
        format!("{}, line {line}, column `{column}`: {why}", sheet.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Result<Vec<u64>, String> {
        let sheet = Sheet::parse("f.csv".to_owned(), text)?;
        sheet.each(|row| row.number("n")).map_err(|e| e.to_string())
    }

    #[test]
    fn columns_are_found_by_name_and_empty_lines_are_none() {
        let text = "\u{feff}a,n\r\nx, 1\r\n\r\ny,2\r\n";
        assert_eq!(numbers(text), Ok(vec![1, 2]));
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
            ("a,n\n\"x\",1\n", "f.csv: it has quoted fields"),
        ] {
            let told = numbers(text).unwrap_err();
            assert!(told.starts_with(words), "{told}");
        }
    }
}
