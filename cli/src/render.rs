//! Renders views of the API as text for people. Pure: time and colours come in as arguments; `out` prints.

pub(crate) mod access;
pub(crate) mod age;
pub(crate) mod allocation;
pub(crate) mod amounts;
pub(crate) mod capacity;
pub(crate) mod cluster;
pub(crate) mod data;
mod declared;
pub(crate) mod document;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod host;
pub(crate) mod label;
pub(crate) mod listed;
pub(crate) mod node;
pub(crate) mod platform;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod preview;
pub(crate) mod replay;
pub(crate) mod sections;
pub(crate) mod service;
pub(crate) mod step;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod token;
pub(crate) mod topology;
pub(crate) mod validation;

/// Escapes characters that control a terminal or break a line or column. Names from a cluster are not trusted more than
/// any other text.
pub(crate) fn safe(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            if is_harmful(c) {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
            out
        })
}

/// Whether a character is a control character, or changes or hides the direction of a line.
pub(crate) fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns a value, or `-` if there is none.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    match text {
        Some(text) if !text.is_empty() => safe(text),
        _ => "-".to_owned(),
    }
}

/// Returns the first of some names, and how many more there are.
pub(crate) fn shortened(names: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let first: Vec<String> = names.take(most).collect();
    let first = first.join(", ");
    if more == 0 {
        return first;
    }
    format!("{first} and {more} more")
}

/// Quotes a command for a shell.
pub(crate) fn shell_words(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    safe(&format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(
            safe("a\u{1b}[2J\tb\nc\u{202e}d"),
            r"a\u{1b}[2J\tb\nc\u{202e}d"
        );
        assert_eq!(safe("grün 日本"), "grün 日本");
        assert_eq!(or_dash(None), "-");
        assert_eq!(or_dash(Some("")), "-");
    }

    #[test]
    fn long_lists_are_counted_at_their_end() {
        let names = || ["a", "b", "c"].map(str::to_owned).into_iter();
        assert_eq!(shortened(names(), 3), "a, b, c");
        assert_eq!(shortened(names(), 1), "a and 2 more");
    }

    #[test]
    fn commands_are_shown_as_they_could_be_typed() {
        let command = ["sh", "-c", "echo it's", ""].map(str::to_owned);
        assert_eq!(shell_words(&command), r"sh -c 'echo it'\''s' ''");
    }
}
