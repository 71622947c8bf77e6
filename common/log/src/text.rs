//! Formats events as text: `TIME LEVEL MESSAGE NAME=VALUE...`. For the journal, which adds the time, a priority number
//! replaces time and level.

use std::fmt::Write;

use serde_json::Value;
use tracing::Level;

use crate::layer::LogEvent;

const FAINT: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// Formats a line with time and level.
pub(crate) fn plain(entry: &LogEvent, colors: bool) -> String {
    let mut line = String::new();
    let [faint, bright, reset] = if colors {
        [FAINT, color(entry.level), RESET]
    } else {
        [""; 3]
    };
    write!(
        line,
        "{faint}{:.3}{reset} {bright}{:<5}{reset} ",
        entry.time, entry.level
    )
    .expect("a string takes all that is written");
    push_event(&mut line, entry, faint, reset);
    line
}

/// Formats a line with `<PRIORITY>` in front, as described in sd-daemon(3).
pub(crate) fn journal(entry: &LogEvent) -> String {
    let mut line = format!("<{}>", priority(entry.level));
    push_event(&mut line, entry, "", "");
    line
}

fn push_event(line: &mut String, entry: &LogEvent, faint: &str, reset: &str) {
    push_escaped(line, entry.fields.message());
    for (name, value) in entry.fields.named() {
        line.push(' ');
        line.push_str(faint);
        line.push_str(name);
        line.push('=');
        line.push_str(reset);
        push_value(line, value);
    }
}

/// Appends a value; texts that are not a plain word are quoted.
fn push_value(line: &mut String, value: &Value) {
    match value {
        Value::String(text) if is_word(text) => line.push_str(text),
        Value::String(text) => {
            write!(line, "{text:?}").expect("a string takes all that is written");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            write!(line, "{value}").expect("a string takes all that is written");
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'=' | b'\\'))
}

/// Appends a text with control characters escaped, so that it stays on one line and cannot steer a terminal.
fn push_escaped(line: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '"' | '\'' | '\\') {
            line.push(c);
        } else {
            line.extend(c.escape_debug());
        }
    }
}

fn color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG => "\u{1b}[34m",
        Level::TRACE => "\u{1b}[35m",
    }
}

/// Priority of syslog(3); `tracing` has no level for notice (5).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use jiff::Timestamp;

    fn entry(level: Level) -> LogEvent {
        LogEvent {
            time: Timestamp::new(1_735_689_599, 1_999_999).unwrap(),
            level,
            target: "sluice",
            fields: Fields::default(),
        }
    }

    #[test]
    fn a_plain_line_begins_with_time_and_level() {
        assert_eq!(
            plain(&entry(Level::ERROR), false),
            "2024-12-31T23:59:59.001Z ERROR "
        );
        let colored = plain(&entry(Level::INFO), true);
        assert!(colored.contains("\u{1b}[32mINFO \u{1b}[0m"), "{colored:?}");
    }

    #[test]
    fn the_journal_is_told_the_priority() {
        for (level, mark) in [
            (Level::ERROR, "<3>"),
            (Level::WARN, "<4>"),
            (Level::INFO, "<6>"),
            (Level::TRACE, "<7>"),
        ] {
            assert_eq!(journal(&entry(level)), mark);
        }
    }

    #[test]
    fn values_are_quoted_where_they_would_run_together() {
        for (value, text) in [
            ("gpu-1", "gpu-1"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a=b", "\"a=b\""),
            ("\"", "\"\\\"\""),
        ] {
            let mut line = String::new();
            push_value(&mut line, &Value::from(value));
            assert_eq!(line, text);
        }
    }
}
