//! Notes in an inventory about what could not be read and why: each once, short, without control characters,
//! and in a stable order.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Longest note in bytes; driver and kernel messages are truncated.
const MAX_BYTES: usize = 400;
/// Most notes in one inventory. More have a common cause.
const MAX_NOTES: usize = 32;

/// The notes of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes(BTreeSet<String>);

impl Notes {
    /// Adds a note unless it exists.
    pub(crate) fn add(&mut self, text: impl AsRef<str>) {
        let clean = text.as_ref().replace(char::is_control, " ");
        let cut = clean.floor_char_boundary(MAX_BYTES);
        self.0.insert(clean[..cut].trim().to_owned());
    }

    /// Adds the notes of another scan.
    pub(crate) fn extend(&mut self, other: &Notes) {
        self.0.extend(other.0.iter().cloned());
    }

    pub(crate) fn list(&self) -> Vec<String> {
        self.0.iter().take(MAX_NOTES).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_few_short_harmless_and_in_a_lasting_order() {
        let mut notes = Notes::default();
        notes.add("b \u{1b}[2J\nc");
        notes.add("a");
        notes.add("a");
        notes.add("\u{e4}".repeat(1000));
        assert_eq!(notes.list()[..2], ["a".to_owned(), "b  [2J c".to_owned()]);
        assert!(notes.list()[2].len() <= MAX_BYTES);
        for n in 0..100 {
            notes.add(format!("{n}"));
        }
        assert_eq!(notes.list().len(), MAX_NOTES);
    }
}
