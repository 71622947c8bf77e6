//! Helpers shared by the daemons' config files: messages for parse errors, and the report of a reload. Each daemon
//! defines its own keys and decides which of them may change while it runs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::nearest::unknown_field;

/// Longest quote of an unreadable line in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 120;

/// Escapes control characters, so that a message cannot steer a terminal.
pub fn escape_controls(message: &str) -> String {
    let quiet = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    message.chars().map(quiet).collect()
}

/// Turns a parser's message into one for people: suggests a known key, or quotes the line.
pub fn parse_error_text(message: &str, line: Option<&str>) -> String {
    let message = escape_controls(message);
    match (unknown_field(&message), line.map(str::trim)) {
        (Some((key, Some(near))), _) => format!("unknown key `{key}`: did you mean `{near}`?"),
        (None, Some(line)) if !line.is_empty() => {
            let line = &line[..line.floor_char_boundary(MAX_SHOWN_BYTES)];
            format!("`{}`: {message}", escape_controls(line))
        }
        (Some(_) | None, _) => message,
    }
}

/// Returns the number, from 1, and the text of the line in which a byte of a config is. An offset beyond the end is that of
/// the end; without one, the line is the first.
pub fn line_at(text: &str, offset: Option<usize>) -> (usize, Option<&str>) {
    let before = offset.unwrap_or(0).min(text.len());
    let before = text.as_bytes()[..before].iter();
    let index = before.filter(|byte| **byte == b'\n').count();
    (index + 1, text.lines().nth(index))
}

/// Returns the line for quoting, or `None` if it mentions a token, which may be a secret.
pub fn line_without_token(line: &str) -> Option<&str> {
    (!line.contains("token")).then_some(line)
}

/// Result of reloading a config.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Keys whose new values are in effect.
    pub applied: Vec<&'static str>,
    /// One sentence for each change that waits for the next start.
    pub deferred: Vec<String>,
}

impl ReloadReport {
    /// Takes over a changed value and lists its key.
    pub fn apply<T: PartialEq>(&mut self, key: &'static str, runs: &mut T, written: T) {
        if *runs != written {
            *runs = written;
            self.applied.push(key);
        }
    }

    /// Reports a changed value that takes effect at the next start.
    pub fn defer(&mut self, key: &str, runs: impl fmt::Display, written: impl fmt::Display) {
        let (runs, written) = (runs.to_string(), written.to_string());
        if runs != written {
            self.deferred.push(format!(
                "{key} changed from {runs} to {written}: takes effect at the next start"
            ));
        }
    }

    /// Like [`Self::defer`], for values too long to print.
    pub fn defer_section<T: PartialEq>(&mut self, key: &str, runs: &T, written: &T) {
        if runs != written {
            let sentence = format!("{key} changed: takes effect at the next start");
            self.deferred.push(sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_steers_no_terminal_and_names_the_key_or_the_line() {
        let unknown = "unknown field `labls`, expected `labels`";
        let meant = "unknown key `labls`: did you mean `labels`?";
        assert_eq!(parse_error_text(unknown, Some("labls = 1")), meant);
        assert_eq!(
            parse_error_text("no\u{1b}[2J", Some(" a\u{7} ")),
            "`a\\u{7}`: no\\u{1b}[2J"
        );
        assert_eq!(parse_error_text("no", Some(" ")), "no");
        let long = "é".repeat(MAX_SHOWN_BYTES);
        assert_eq!(
            parse_error_text("no", Some(&long)),
            format!("`{}`: no", "é".repeat(60))
        );
        assert_eq!(line_without_token("api_token_file = 'secret'"), None);
        let text = "a = 1\nb = é\n";
        assert_eq!(line_at(text, None), (1, Some("a = 1")));
        assert_eq!(line_at(text, Some(6)), (2, Some("b = é")));
        assert_eq!(
            line_at(text, Some(11)),
            (2, Some("b = é")),
            "within a letter"
        );
        assert_eq!(line_at(text, Some(99)), (3, None));
    }

    #[test]
    fn what_is_taken_counts_and_what_is_kept_is_told() {
        let mut changes = ReloadReport::default();
        let mut runs = 1;
        changes.apply("a", &mut runs, 1);
        changes.defer("b", 1, 1);
        changes.defer_section("c", &1, &1);
        assert_eq!(changes, ReloadReport::default());
        changes.apply("a", &mut runs, 2);
        changes.defer("b", 1, 2);
        changes.defer_section("c", &1, &2);
        assert_eq!((runs, &changes.applied[..]), (2, &["a"][..]));
        assert_eq!(
            changes.deferred,
            [
                "b changed from 1 to 2: takes effect at the next start",
                "c changed: takes effect at the next start"
            ]
        );
    }
}
