//! What the configs of the daemons have in common: the words for what is wrong in one, and what one that was read anew
//! changes. Which keys there are, and which of them may change while a daemon runs, is each daemon's to say.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::nearest::unknown_field;

/// Of a line of the file that cannot be read, in a message.
const MAX_SHOWN_BYTES: usize = 120;

/// The words of a message. What was written stands in them, and a terminal would obey it.
pub fn escape_controls(message: &str) -> String {
    let quiet = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    message.chars().map(quiet).collect()
}

/// The parser's sentence, with the key that was probably meant, or with the line that it is about.
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

/// A line as it may be told: somebody may have written a token itself where its file belongs.
pub fn line_without_token(line: &str) -> Option<&str> {
    (!line.contains("token")).then_some(line)
}

/// What became of a config that was read anew.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// The keys whose new values count from now on.
    pub applied: Vec<&'static str>,
    /// What stays as it is until the next start: for each key a sentence.
    pub deferred: Vec<String>,
}

impl ReloadReport {
    /// Has a key's new value count.
    pub fn apply<T: PartialEq>(&mut self, key: &'static str, runs: &mut T, written: T) {
        if *runs != written {
            *runs = written;
            self.applied.push(key);
        }
    }

    /// Notes a key whose new value does not count yet.
    pub fn defer(&mut self, key: &str, runs: impl fmt::Display, written: impl fmt::Display) {
        let (runs, written) = (runs.to_string(), written.to_string());
        if runs != written {
            self.deferred.push(format!(
                "{key} changed from {runs} to {written}: takes effect at the next start"
            ));
        }
    }

    /// The same of a value that nobody wants to read on one line.
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
