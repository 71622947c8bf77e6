//! Tables in kubectl's shape: upper-case headers, columns two spaces apart, no borders, nothing at the ends of lines.

use std::io::Write;

use tabwriter::TabWriter;

/// Spaces between columns.
const GAP: usize = 2;

/// Aligns rows under a header. Cells are what the row functions made: safe, and `-` where there was nothing.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    let lines: Vec<String> = std::iter::once(&header)
        .chain(rows)
        .map(|row| row.join("\t"))
        .collect();
    align(&lines)
}

/// Aligns lines whose cells end in tabs.
pub(crate) fn align(lines: &[String]) -> String {
    // Colours take no room.
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

    #[test]
    fn columns_are_aligned_two_spaces_apart_and_colours_take_no_room() {
        let rows = [
            vec![
                "a".to_owned(),
                "\u{1b}[32mrunning\u{1b}[0m".to_owned(),
                "3m".to_owned(),
            ],
            vec!["a-long-name".to_owned(), "ok".to_owned(), "-".to_owned()],
        ];
        assert_eq!(
            table(&["NAME", "STATE", "AGE"], &rows),
            "NAME         STATE    AGE\n\
             a            \u{1b}[32mrunning\u{1b}[0m  3m\n\
             a-long-name  ok       -\n"
        );
    }
}
