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
pub fn shown(message: &str) -> String {
    let quiet = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    message.chars().map(quiet).collect()
}

/// The parser's sentence, with the key that was probably meant, or with the line that it is about.
pub fn way_out(message: &str, line: Option<&str>) -> String {
    let message = shown(message);
    match (unknown_field(&message), line.map(str::trim)) {
        (Some((key, Some(near))), _) => format!("unknown key `{key}`: did you mean `{near}`?"),
        (None, Some(line)) if !line.is_empty() => {
            let line = &line[..line.floor_char_boundary(MAX_SHOWN_BYTES)];
            format!("`{}`: {message}", shown(line))
        }
        (Some(_) | None, _) => message,
    }
}

/// A line as it may be told: somebody may have written a token itself where its file belongs.
pub fn without_token(line: &str) -> Option<&str> {
    (!line.contains("token")).then_some(line)
}

/// What became of a config that was read anew.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The keys whose new values count from now on.
    pub taken: Vec<&'static str>,
    /// What stays as it is until the next start: for each key a sentence.
    pub kept: Vec<String>,
}

impl Changes {
    /// Has a key's new value count.
    pub fn take<T: PartialEq>(&mut self, key: &'static str, runs: &mut T, written: T) {
        if *runs != written {
            *runs = written;
            self.taken.push(key);
        }
    }

    /// Notes a key whose new value does not count yet.
    pub fn keep(&mut self, key: &str, runs: impl fmt::Display, written: impl fmt::Display) {
        let (runs, written) = (runs.to_string(), written.to_string());
        if runs != written {
            self.kept.push(format!(
                "{key} changed from {runs} to {written}: takes effect at the next start"
            ));
        }
    }

    /// The same of a value that nobody wants to read on one line.
    pub fn keep_section<T: PartialEq>(&mut self, key: &str, runs: &T, written: &T) {
        if runs != written {
            let sentence = format!("{key} changed: takes effect at the next start");
            self.kept.push(sentence);
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
        assert_eq!(way_out(unknown, Some("labls = 1")), meant);
        assert_eq!(
            way_out("no\u{1b}[2J", Some(" a\u{7} ")),
            "`a\\u{7}`: no\\u{1b}[2J"
        );
        assert_eq!(way_out("no", Some(" ")), "no");
        let long = "é".repeat(MAX_SHOWN_BYTES);
        assert_eq!(
            way_out("no", Some(&long)),
            format!("`{}`: no", "é".repeat(60))
        );
        assert_eq!(without_token("api_token_file = 'secret'"), None);
    }

    #[test]
    fn what_is_taken_counts_and_what_is_kept_is_told() {
        let mut changes = Changes::default();
        let mut runs = 1;
        changes.take("a", &mut runs, 1);
        changes.keep("b", 1, 1);
        changes.keep_section("c", &1, &1);
        assert_eq!(changes, Changes::default());
        changes.take("a", &mut runs, 2);
        changes.keep("b", 1, 2);
        changes.keep_section("c", &1, &2);
        assert_eq!((runs, &changes.taken[..]), (2, &["a"][..]));
        assert_eq!(
            changes.kept,
            [
                "b changed from 1 to 2: takes effect at the next start",
                "c changed: takes effect at the next start"
            ]
        );
    }
}
