//! Tables in kubectl's style: upper-case headers, columns two spaces apart, no borders, no trailing spaces. On a
//! terminal a table fits its width: texts are cut with `…`, then the least important columns are left out. Into a pipe,
//! and with `-o wide`, it is always complete.

use std::io::Write;

use tabwriter::TabWriter;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::out::{Out, Tone};

/// Spaces between columns.
const GAP: usize = 2;
/// Least width of a cut text, before whole columns are left out.
const LEAST_TEXT: usize = 12;

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    title: &'static str,
    /// Columns with less weight are left out first if there is no room.
    weight: u8,
    /// Whether it needs `-o wide`.
    wide: bool,
    /// Whether it needs `-o wide` or `--show-labels`.
    labels: bool,
    /// Whether it may be cut.
    text: bool,
    /// Least width in tables printed row by row, which cannot be aligned to later rows.
    room: usize,
}

impl Column {
    /// Makes a column that is shown if there is room.
    pub(crate) const fn new(title: &'static str, weight: u8) -> Self {
        Self {
            title,
            weight,
            wide: false,
            labels: false,
            text: false,
            room: 0,
        }
    }

    /// Shows it only with `-o wide`.
    #[must_use]
    pub(crate) const fn wide(mut self) -> Self {
        self.wide = true;
        self
    }

    /// Marks it as the column of labels, shown only with `-o wide` or `--show-labels`.
    #[must_use]
    pub(crate) const fn labels(mut self) -> Self {
        self.labels = true;
        self
    }

    /// Returns its title.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// Whether it was requested.
    pub(crate) fn is_wanted(&self, out: Out) -> bool {
        out.is_wide() || (!self.wide && (!self.labels || out.shows_labels()))
    }

    /// Allows its texts to be cut.
    #[must_use]
    pub(crate) const fn text(mut self) -> Self {
        self.text = true;
        self
    }

    /// Sets its least width in tables printed row by row.
    #[must_use]
    pub(crate) const fn room(mut self, room: usize) -> Self {
        self.room = room;
        self
    }
}

/// The content of a cell: safe, and `-` if empty.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    /// Makes a coloured word.
    pub(crate) fn toned(tone: Tone, text: impl ToString) -> Self {
        Self {
            text: text.to_string(),
            tone: Some(tone),
        }
    }
}

impl Cell {
    /// Returns its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns its text in its colour.
    pub(crate) fn painted(&self, out: Out) -> String {
        match self.tone {
            Some(tone) => out.paint(tone, &self.text),
            None => self.text.clone(),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: None }
    }
}

/// A table that is printed in one piece or row by row: widths only grow, so that later rows are aligned.
#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
    out: Out,
    /// Columns of the last header.
    under: Vec<usize>,
}

impl Table {
    /// Makes a table whose rows have a cell for each of `columns`, shown or not.
    pub(crate) fn new(columns: &'static [Column], out: Out) -> Self {
        let widths = columns.iter().map(|column| column.title.width()).collect();
        Self {
            columns,
            widths,
            out,
            under: Vec::new(),
        }
    }

    /// Widens the columns for unknown rows.
    pub(crate) fn make_room(&mut self) {
        for (width, column) in self.widths.iter_mut().zip(self.columns) {
            *width = column.room.max(*width);
        }
    }

    /// Returns the header, aligned to the measured rows.
    pub(crate) fn header(&mut self) -> String {
        self.under = self.shown();
        let cells: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| column.title.to_owned().into())
            .collect();
        self.lines(&[cells])
    }

    /// Returns the rows as lines, below a new header if other columns fit now.
    pub(crate) fn rows(&mut self, rows: &[Vec<Cell>]) -> String {
        self.measure(rows);
        let moved = self.shown() != self.under;
        let header = if moved { self.header() } else { String::new() };
        header + &self.lines(rows)
    }

    fn shown(&self) -> Vec<usize> {
        self.places()
            .into_iter()
            .map(|(column, _)| column)
            .collect()
    }

    /// Returns header and rows.
    pub(crate) fn whole(mut self, rows: &[Vec<Cell>]) -> String {
        self.measure(rows);
        self.header() + &self.lines(rows)
    }

    /// Widens the columns to what `rows` need.
    pub(crate) fn measure(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.text.width().max(*width);
            }
        }
    }

    fn lines(&self, rows: &[Vec<Cell>]) -> String {
        let places = self.places();
        rows.iter().map(|row| self.line(row, &places)).collect()
    }

    /// Returns the shown columns with their widths.
    fn places(&self) -> Vec<(usize, usize)> {
        let wide = self.out.is_wide();
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|i| self.columns[*i].is_wanted(self.out))
            .collect();
        match self.out.width().filter(|_| !wide) {
            Some(limit) => self.fit(shown, limit),
            None => shown.into_iter().map(|i| (i, self.widths[i])).collect(),
        }
    }

    fn line(&self, row: &[Cell], places: &[(usize, usize)]) -> String {
        let mut line = String::new();
        for (nth, (column, width)) in places.iter().enumerate() {
            let Cell { text, tone } = &row[*column];
            let text = cut(text, *width);
            let padding = width.saturating_sub(text.width()) + GAP;
            match tone {
                Some(tone) => line.push_str(&self.out.paint(*tone, text)),
                None => line.push_str(&text),
            }
            if nth + 1 < places.len() {
                line.push_str(&" ".repeat(padding));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    /// Returns the columns that fit in `limit`, with their widths.
    fn fit(&self, mut shown: Vec<usize>, limit: usize) -> Vec<(usize, usize)> {
        loop {
            let mut places: Vec<(usize, usize)> =
                shown.iter().map(|i| (*i, self.widths[*i])).collect();
            if shown.len() == 1 {
                places[0].1 = places[0].1.min(limit);
                return places;
            }
            if self.shrink(&mut places, limit) {
                return places;
            }
            let least = (0..shown.len()).min_by_key(|nth| self.columns[shown[*nth]].weight);
            shown.remove(least.expect("at least two are shown"));
        }
    }

    /// Cuts the widest texts down to `limit` in all; returns whether that was enough.
    fn shrink(&self, places: &mut [(usize, usize)], limit: usize) -> bool {
        loop {
            let total: usize = places.iter().map(|(_, width)| width + GAP).sum();
            let Some(over) = (total - GAP).checked_sub(limit).filter(|over| *over > 0) else {
                return true;
            };
            let texts = places
                .iter_mut()
                .filter(|(i, width)| self.columns[*i].text && *width > LEAST_TEXT);
            let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) else {
                return false;
            };
            // Half of the excess at a time, so that two long texts share the loss.
            *widest = widest.saturating_sub(over.div_ceil(2)).max(LEAST_TEXT);
        }
    }
}

/// Cuts a text to `width` columns, with `…` if something was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut kept: String = text
        .chars()
        .take_while(|c| {
            let wide = c.width().unwrap_or(0);
            let fits = wide <= left;
            left = left.saturating_sub(wide);
            fits
        })
        .collect();
    kept.push('…');
    kept
}

/// Aligns lines whose cells end in tabs.
pub(crate) fn align(lines: &[String]) -> String {
    // Colours take no width.
    let mut writer = TabWriter::new(Vec::new())
        .minwidth(0)
        .padding(GAP)
        .ansi(true);
    for line in lines {
        writeln!(writer, "{line}").expect("memory takes any text");
    }
    let bytes = writer.into_inner().expect("memory takes any text");
    String::from_utf8(bytes).expect("text stays text when it is padded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Format;
    use proptest::prelude::*;

    const COLUMNS: &[Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("STATE", 8),
        Column::new("AGE", 1).room(6),
        Column::new("WHY", 3).text(),
        Column::new("MORE", 0).wide(),
    ];

    fn row(name: &str, why: &str) -> Vec<Cell> {
        vec![
            name.to_owned().into(),
            Cell::toned(Tone::Good, "running"),
            "3m".to_owned().into(),
            why.to_owned().into(),
            "x".to_owned().into(),
        ]
    }

    #[test]
    fn columns_are_aligned_two_spaces_apart_and_colours_take_no_room() {
        let rows = [row("a", "ok"), row("日本", "-")];
        assert_eq!(
            Table::new(COLUMNS, Out::plain()).whole(&rows),
            "NAME  STATE    AGE  WHY\n\
             a     running  3m   ok\n\
             日本  running  3m   -\n"
        );
        assert_eq!(
            Table::new(COLUMNS, Out::colored()).whole(&rows[..1]),
            "NAME  STATE    AGE  WHY\n\
             a     \u{1b}[32mrunning\u{1b}[0m  3m   ok\n"
        );
    }

    #[test]
    fn wide_shows_all_whatever_the_terminal() {
        let out = Out::sized(10).with_format(Format::Wide);
        assert_eq!(
            Table::new(COLUMNS, out).whole(&[row("a", "ok")]),
            "NAME  STATE    AGE  WHY  MORE\n\
             a     running  3m   ok   x\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_texts_and_then_leaves_columns_out() {
        let rows = [row(
            "a-rather-long-name-it-is",
            "because it was told to run",
        )];
        let at = |width| Table::new(COLUMNS, Out::sized(width)).whole(&rows);
        assert_eq!(
            at(48),
            "NAME              STATE    AGE  WHY\n\
             a-rather-long-n…  running  3m   because it was …\n"
        );
        assert_eq!(
            at(30),
            "NAME                   STATE\n\
             a-rather-long-name-i…  running\n"
        );
        assert_eq!(at(9), "NAME\na-rather…\n");
    }

    #[test]
    fn rows_that_come_one_by_one_stand_below_each_other() {
        let mut table = Table::new(COLUMNS, Out::plain());
        table.make_room();
        assert_eq!(table.header(), "NAME  STATE  AGE     WHY\n");
        assert_eq!(table.rows(&[row("a", "ok")]), "a     running  3m      ok\n");
        assert_eq!(
            table.rows(&[row("abcdef", "ok")]),
            "abcdef  running  3m      ok\n"
        );
        assert_eq!(
            table.rows(&[row("b", "ok")]),
            "b       running  3m      ok\n"
        );
    }

    #[test]
    fn a_row_that_leaves_no_room_for_a_column_stands_under_a_header_of_its_own() {
        let mut table = Table::new(COLUMNS, Out::sized(20));
        assert_eq!(table.header(), "NAME  STATE  WHY\n");
        let long = table.rows(&[row("abcdefghijk", "ok")]);
        assert_eq!(long, "NAME         STATE\nabcdefghijk  running\n");
        assert_eq!(table.rows(&[row("b", "ok")]), "b            running\n");
    }

    #[test]
    fn wide_characters_are_cut_by_the_room_that_they_take() {
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 3), "abc");
    }

    proptest! {
        #[test]
        fn nothing_is_wider_than_the_terminal(
            names in proptest::collection::vec("[a-z日é]{0,40}", 1..5),
            why in "[a-z 本]{0,80}",
            width in 1usize..120,
        ) {
            let rows: Vec<_> = names.iter().map(|name| row(name, &why)).collect();
            let text = Table::new(COLUMNS, Out::sized(width)).whole(&rows);
            prop_assert_eq!(text.lines().count(), rows.len() + 1);
            for line in text.lines() {
                prop_assert!(line.width() <= width, "{line:?} at {width}");
            }
        }
    }
}
