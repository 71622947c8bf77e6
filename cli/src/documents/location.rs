//! Locations of documents in files, and of the line that an error is about, whether this program or the cluster found
//! it.

use std::fmt;

/// Location of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentLocation {
    /// File, as messages call it.
    file: String,
    /// Line at which the document begins, counted from 1, if known.
    line: Option<usize>,
    /// Number of the document, counted from 1, if there are several.
    number: Option<usize>,
    text: String,
}

impl DocumentLocation {
    /// Finds the location of each of `documents` documents in a text.
    pub(super) fn all(file: &str, text: &str, documents: usize) -> Vec<Self> {
        let starts = starts(text);
        let known = starts.len() == documents;
        let place = |i: usize| {
            let start = starts.get(i).filter(|_| known);
            Self {
                file: file.to_owned(),
                line: start.map(|(line, _)| *line),
                number: (documents > 1).then_some(i + 1),
                text: start.map_or("", |(_, own)| own).to_owned(),
            }
        };
        (0..documents).map(place).collect()
    }

    /// Makes the location of a line, counted from 1.
    pub(super) fn of_line(file: &str, text: &str, line: usize) -> Self {
        let starts = starts(text);
        let before = starts.iter().filter(|(start, _)| *start <= line).count();
        Self {
            file: file.to_owned(),
            line: Some(line),
            number: (starts.len() > 1).then_some(before.max(1)),
            text: String::new(),
        }
    }

    /// Formats advice that begins with the field that it is about.
    pub(crate) fn noted(&self, note: &str) -> String {
        let field = note.split_once(": ").map(|(field, _)| field);
        format!("{}: {note}", self.of(field, note))
    }

    /// Finds the line of an error by the field, or else by the words of the message.
    pub(crate) fn of(&self, field: Option<&str>, message: &str) -> Self {
        let below = field.and_then(|field| line_of_field(&self.text, field));
        let below = below.unwrap_or_else(|| line_of(&self.text, message));
        Self {
            line: self.line.map(|line| line + below),
            ..self.clone()
        }
    }
}

impl fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match self.number {
            Some(number) => write!(f, ", document {number}"),
            None => Ok(()),
        }
    }
}

/// Returns the line at which each document begins, counted from 1, with its text. Empty documents are skipped, as the
/// parser does.
fn starts(text: &str) -> Vec<(usize, &str)> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    let (mut line, mut begin, mut at) = (1, 1, 0);
    let mut offset = 0;
    for piece in text.split_inclusive('\n') {
        if piece.trim_end() == "---" || piece.starts_with("--- ") {
            found.push((begin, &text[at..offset]));
            begin = line + 1;
            at = offset + piece.len();
        }
        line += 1;
        offset += piece.len();
    }
    found.push((begin, &text[at..]));
    let says = |own: &&str| {
        own.lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    found.retain(|(_, own)| says(own));
    found
}

/// Returns the offset in lines of a field such as `max.timeout` or `require[0]`: its first word begins a line, and each
/// other word is there or below.
fn line_of_field(document: &str, field: &str) -> Option<usize> {
    let words = field.split('.').map(|word| word.split('[').next());
    let mut words = words.map(Option::unwrap_or_default);
    let first = format!("{}:", words.next()?);
    let mut lines = document.lines();
    let mut at = lines.position(|line| line.trim_start().starts_with(&first))?;
    for word in words {
        let mut below = document.lines().skip(at);
        at += below.position(|line| line.contains(word)).unwrap_or(0);
    }
    Some(at)
}

/// Returns the offset of the line that a message is about: by quoted words, a field that it names, its first quoted
/// word, or its first word.
fn line_of(document: &str, mistake: &str) -> usize {
    let words = mistake.split_whitespace();
    let words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let mut fields = words.filter(|word| word.contains('.'));
    let field = fields.find_map(|field| line_of_field(document, field));
    let quoted = mistake.split('`').nth(1);
    let phrase = quoted.filter(|quoted| quoted.contains(' '));
    let phrase = phrase.and_then(|phrase| document.lines().position(|line| line.contains(phrase)));
    let begins = mistake.split(':').next();
    let words = [quoted, begins].into_iter().flatten();
    let mut words = words.filter(|word| !word.is_empty() && !word.contains(' '));
    let quoted = || words.find_map(|word| line_with(document, word));
    let first = document.lines().position(|line| !line.trim().is_empty());
    phrase.or(field).or_else(quoted).or(first).unwrap_or(0)
}

/// Returns the first line with a word by itself, or else within another.
fn line_with(document: &str, word: &str) -> Option<usize> {
    let is_own = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    let whole = |line: &str| line.split(|c| !is_own(c)).any(|own| own == word);
    let lines = || document.lines();
    let found = lines().position(whole);
    found.or_else(|| lines().position(|line| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kind: pool\nname: p\n---\n# a policy\nkind: policy\nsubject: gpu-lab\nreserved:\n  mcpu: 4\n  \
                        gpu: 4\nlimit: {gpu: 2}\nrequire: [freeze, frost]\n";

    #[test]
    fn what_a_message_is_about_is_found_by_field_or_words() {
        let places = DocumentLocation::all("f.yaml", TEXT, 2);
        let second = &places[1];
        assert_eq!(second.to_string(), "f.yaml:4, document 2");
        for (field, message, line) in [
            (Some("reserved.gpu"), "", 9),
            (Some("limit.gpu"), "", 10),
            (Some("require[1]"), "", 11),
            (
                None,
                "policy of `gpu-lab`: limit.gpu is 2 and too small",
                10,
            ),
            (None, "`gpu-lab` is unknown", 6),
            (None, "it cannot be", 4),
            (Some("absent"), "nothing", 4),
        ] {
            let found = second.of(field, message).to_string();
            let expected = format!("f.yaml:{line}, document 2");
            assert_eq!(found, expected, "{field:?} {message}");
        }
        assert_eq!(
            DocumentLocation::all("f", "a: 1\n", 1)[0].to_string(),
            "f:1"
        );
        assert_eq!(
            DocumentLocation::all("f", "a: 1\n", 3)[2].to_string(),
            "f, document 3"
        );
    }
}
