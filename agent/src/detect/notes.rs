//! What could not be read and why, as an inventory carries it: each once, short, harmless on a terminal, and in an order
//! that does not change from one look to the next.

use std::collections::BTreeSet;

/// Longest note, in bytes: the words of a driver or a kernel are cut.
const MAX_BYTES: usize = 400;
/// Notes of one inventory. A host with more to complain of has one cause.
const MAX_NOTES: usize = 32;

/// The notes of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes(BTreeSet<String>);

impl Notes {
    /// Adds one, if it is not there.
    pub(crate) fn add(&mut self, text: impl AsRef<str>) {
        let clean = text.as_ref().replace(char::is_control, " ");
        let cut = clean.floor_char_boundary(MAX_BYTES);
        self.0.insert(clean[..cut].trim().to_owned());
    }

    /// Adds those of another.
    pub(crate) fn extend(&mut self, other: &Notes) {
        self.0.extend(other.0.iter().cloned());
    }

    /// All of them.
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
