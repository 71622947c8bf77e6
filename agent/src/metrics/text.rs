//! Reads Prometheus' text format line by line, as far as it is needed: the sum of all series of one name. Strict: a line
//! that is no comment and no sample makes the whole answer unreadable, because half of it would be a wrong sum.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use sluice_common::service::MAX_LOAD;

/// Longest line. A series with many labels takes a fraction of it.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Adds the series of one name in a text that comes in pieces.
pub(crate) struct MetricParser<'a> {
    name: &'a str,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Number of the line, starting at 1.
    number: u64,
    sum: Option<f64>,
}

impl<'a> MetricParser<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        Self {
            name,
            line: Vec::new(),
            number: 1,
            sum: None,
        }
    }

    /// Takes a piece of the text. The error is a clause for people, without text of the answer.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        let mut lines = piece.split(|b| *b == b'\n');
        let first = lines.next().unwrap_or_default();
        self.extend(first)?;
        for rest in lines {
            self.end_line()?;
            self.extend(rest)?;
        }
        Ok(())
    }

    fn extend(&mut self, piece: &[u8]) -> Result<(), String> {
        if self.line.len() + piece.len() > MAX_LINE_BYTES {
            return Err(format!(
                "its line {} has more than {MAX_LINE_BYTES} bytes",
                self.number
            ));
        }
        self.line.extend(piece);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), String> {
        let line = std::mem::take(&mut self.line);
        let sample = std::str::from_utf8(&line).ok().and_then(read_line);
        let Some(sample) = sample else {
            return Err(format!(
                "its line {} is not in the text format of Prometheus",
                self.number
            ));
        };
        if let Line::Sample(name, value) = sample
            && name == self.name
        {
            if !(0.0..=MAX_LOAD).contains(&value) {
                return Err(format!(
                    "a series of it is {value:?}, which is not a number from 0 to {MAX_LOAD}"
                ));
            }
            self.sum = Some(self.sum.unwrap_or_default() + value);
        }
        self.line = line;
        self.line.clear();
        self.number += 1;
        Ok(())
    }

    /// The sum in thousandths, at the end of the text.
    pub(crate) fn end(mut self) -> Result<u64, String> {
        self.end_line()?;
        let sum = self.sum.ok_or("there is no such metric")?;
        if sum > MAX_LOAD {
            return Err(format!("the sum of its series is more than {MAX_LOAD}"));
        }
        Ok((sum * 1000.0).ceil() as u64)
    }
}

#[derive(Debug, PartialEq)]
enum Line<'a> {
    /// A comment, or nothing.
    Empty,
    /// Name and value.
    Sample(&'a str, f64),
}

/// Reads `NAME{LABEL="VALUE",...} NUMBER [TIMESTAMP]`, a comment, or an empty line; `None` for any other.
fn read_line(line: &str) -> Option<Line<'_>> {
    let line = line.trim_matches([' ', '\t', '\r']);
    if line.is_empty() || line.starts_with('#') {
        return Some(Line::Empty);
    }
    let (name, rest) = take_name(line, |b| b == b':')?;
    let rest = match rest.trim_start().strip_prefix('{') {
        Some(labels) => after_labels(labels)?,
        None => rest.strip_prefix([' ', '\t'])?,
    };
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next()?)?;
    let is_time = |word: &str| word.parse::<i64>().is_ok();
    let rest = words.next().is_none_or(is_time) && words.next().is_none();
    rest.then_some(Line::Sample(name, value))
}

/// Splits a name off. `also` are bytes that may be in it beside letters, digits and `_`.
fn take_name(text: &str, also: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let is_first = |b: u8| b.is_ascii_alphabetic() || b == b'_' || also(b);
    let begins = text.bytes().next().is_some_and(is_first);
    let is_inside = |b: u8| is_first(b) || b.is_ascii_digit();
    let end = text.bytes().position(|b| !is_inside(b));
    begins.then(|| text.split_at(end.unwrap_or(text.len())))
}

/// The text behind labels, whose values may have any character, with `\` before a quote.
fn after_labels(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (_, rest) = take_name(text, |_| false)?;
        let rest = rest.trim_start().strip_prefix('=')?;
        let value = rest.trim_start().strip_prefix('"')?;
        let mut is_escaped = false;
        let end = value.bytes().position(|b| {
            let is_end = b == b'"' && !is_escaped;
            is_escaped = b == b'\\' && !is_escaped;
            is_end
        })?;
        text = value[end + 1..].trim_start();
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None if text.starts_with('}') => {}
            None => return None,
        }
    }
}

/// A number as Go writes it, which is how Prometheus reads it.
fn number(word: &str) -> Option<f64> {
    match word {
        "NaN" => Some(f64::NAN),
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        word => {
            let is_number = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
            word.bytes().all(is_number).then(|| word.parse().ok())?
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of `q` in a text that comes in pieces of this size.
    fn sum(text: &str, size: usize) -> Result<u64, String> {
        let mut sum = MetricParser::new("q");
        for piece in text.as_bytes().chunks(size) {
            sum.push(piece)?;
        }
        sum.end()
    }

    #[test]
    fn all_series_of_a_name_are_added() {
        for (text, expected) in [
            ("q 3\n", 3000),
            ("q 3", 3000),
            (
                "# HELP q Waiting.\n# TYPE q gauge\n\nq{a=\"b\"} 1.5\r\nq{a=\"c\",} 2 1700000000000\nother 9\n",
                3500,
            ),
            ("q_total 7\nxq 8\nq 0\n", 0),
            (
                " q\t{ a = \"}\\\" \\\\\" , b=\"\u{e9}\" }\t1e3\n",
                1_000_000,
            ),
            ("q 0.0001\n", 1),
            ("nan NaN\ninf{le=\"+Inf\"} +Inf\nneg -4\nq 1", 1000),
        ] {
            for size in [1, 2, 7, 1000] {
                assert_eq!(sum(text, size), Ok(expected), "{text:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_unknown_with_the_reason() {
        let many = "q 600000000\n".repeat(2);
        let long = format!("# {}\nq 1\n", "x".repeat(MAX_LINE_BYTES));
        for (text, part) in [
            ("", "no such metric"),
            ("p 1\n", "no such metric"),
            ("q NaN\n", "is NaN"),
            ("q +Inf\n", "is inf"),
            ("q -1\n", "is -1"),
            ("q 1e18\n", "is 1e18"),
            ("q 1\nq NaN\n", "is NaN"),
            (&many, "the sum"),
            (&long, "line 1 has more than"),
            ("q 1\n<html>\n", "line 2 is not in the text format"),
            ("{\"q\": 1}", "line 1 is not"),
            ("q\n", "line 1 is not"),
            ("q one\n", "line 1 is not"),
            ("q infinity\n", "line 1 is not"),
            ("q 1 2 3\n", "line 1 is not"),
            ("q 1 now\n", "line 1 is not"),
            ("q{a=\"b} 1\n", "line 1 is not"),
            ("q{a=\"b\" c=\"d\"} 1\n", "line 1 is not"),
            ("q{=\"b\"} 1\n", "line 1 is not"),
            ("q{a:b=\"c\"} 1\n", "line 1 is not"),
            ("1q 1\n", "line 1 is not"),
        ] {
            let why = sum(text, 3).unwrap_err();
            assert!(why.contains(part), "{text:?}: {why}");
        }
        let mut binary = MetricParser::new("q");
        binary.push(b"q 1\n\xff\xfe\n").unwrap_err();
    }
}
