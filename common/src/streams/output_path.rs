//! Paths of the files that get the output of a step, as patterns: letters after `%` stand for what differs between
//! steps, parts of an array, and hosts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::Chars;

use serde::{Deserialize, Serialize};

use super::MAX_PATH_BYTES;

/// Most digits that a width may ask for, as in Slurm.
const MAX_WIDTH: usize = 10;

/// A value that a pattern may contain. The letters are Slurm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathVariable {
    /// `%A`: id of the array, or of the step if it is no part of one.
    Array,
    /// `%a`: index of the part of an array.
    Index,
    /// `%j`: id of the step.
    Step,
    /// `%N`: name of the node.
    Node,
    /// `%t`: rank in a gang.
    Rank,
    /// `%u`: user of the host that runs the step.
    User,
    /// `%x`: name of the step.
    Name,
}

impl PathVariable {
    const ALL: [(char, Self); 7] = [
        ('A', Self::Array),
        ('a', Self::Index),
        ('j', Self::Step),
        ('N', Self::Node),
        ('t', Self::Rank),
        ('u', Self::User),
        ('x', Self::Name),
    ];

    fn of(letter: char) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == letter);
        found.map(|(_, letter)| *letter)
    }
}

/// Reasons for which a text is no path of an output file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputPathError {
    /// The text names no file.
    #[error("`{}` names no file", .0.escape_default())]
    NoFile(String),
    /// The path is longer than the system allows.
    #[error("its path takes {0} bytes: the maximum is {MAX_PATH_BYTES}")]
    TooLong(usize),
    /// A letter after `%` has no meaning.
    #[error(
        "`{}`: `%{}` has no meaning: write %j (step), %x (its name), %A (array), %a (index), %N (node), %t (rank), %u (user) or %%",
        text.escape_default(), letter.escape_default()
    )]
    UnknownLetter {
        /// The whole path.
        text: String,
        /// The letters after `%`.
        letter: String,
    },
}

/// Path of a file on the host, absolute or relative to the step's working directory, with letters to be filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct OutputPath(String);

impl OutputPath {
    /// Checks a path as written.
    ///
    /// # Errors
    /// If it names no file, is too long, or has an unknown letter.
    pub fn new(text: impl Into<String>) -> Result<Self, OutputPathError> {
        let text = text.into();
        if text.is_empty() || text.ends_with('/') || text.contains('\0') {
            return Err(OutputPathError::NoFile(text));
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(OutputPathError::TooLong(text.len()));
        }
        let unknown = PatternParts(text.chars()).find_map(|piece| match piece {
            PatternPart::Unknown(letter) => Some(letter),
            PatternPart::Char(_) | PatternPart::Letter(..) => None,
        });
        match unknown {
            Some(letter) => Err(OutputPathError::UnknownLetter { text, letter }),
            None => Ok(Self(text)),
        }
    }

    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the path begins at the root of the file system.
    pub fn is_absolute(&self) -> bool {
        self.0.starts_with('/')
    }

    /// Whether the path contains a letter.
    pub fn contains(&self, letter: PathVariable) -> bool {
        PatternParts(self.0.chars())
            .any(|piece| matches!(piece, PatternPart::Letter(found, _) if found == letter))
    }

    /// Fills in letters; those without a value stay. A `/` in a value becomes `_`, so that a value is one part of the path.
    #[must_use]
    pub fn filled(&self, value: impl Fn(PathVariable) -> Option<String>) -> Self {
        let mut text = String::new();
        for piece in PatternParts(self.0.chars()) {
            match piece {
                PatternPart::Char('%') => text.push_str("%%"),
                PatternPart::Char(c) => text.push(c),
                PatternPart::Letter(letter, width) => match value(letter) {
                    Some(value) => text.push_str(&padded(&value, width).replace('%', "%%")),
                    None => text.push_str(&written(letter, width)),
                },
                PatternPart::Unknown(_) => {}
            }
        }
        Self(text)
    }

    /// The path with the last letters filled in. Letters without a value are left out.
    pub fn resolved(&self, value: impl Fn(PathVariable) -> Option<String>) -> String {
        let pieces = PatternParts(self.0.chars());
        let pieces = pieces.map(|piece| match piece {
            PatternPart::Char(c) => c.into(),
            PatternPart::Letter(letter, width) => padded(&value(letter).unwrap_or_default(), width),
            PatternPart::Unknown(_) => String::new(),
        });
        pieces.collect()
    }
}

impl fmt::Display for OutputPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for OutputPath {
    type Error = OutputPathError;
    fn try_from(text: String) -> Result<Self, OutputPathError> {
        Self::new(text)
    }
}

impl From<OutputPath> for String {
    fn from(path: OutputPath) -> Self {
        path.0
    }
}

/// Fills a number up with zeros, and replaces what would end a part of the path.
fn padded(value: &str, width: usize) -> String {
    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match is_number {
        true => format!("{value:0>width$}"),
        false => value.replace(['/', '\0'], "_"),
    }
}

fn written(letter: PathVariable, width: usize) -> String {
    let found = PathVariable::ALL.iter().find(|(_, known)| *known == letter);
    let letter = found.map_or('%', |(letter, _)| *letter);
    match width {
        0 => format!("%{letter}"),
        width => format!("%{width}{letter}"),
    }
}

enum PatternPart {
    Char(char),
    /// A letter, and the least number of digits of its value.
    Letter(PathVariable, usize),
    Unknown(String),
}

struct PatternParts<'a>(Chars<'a>);

impl Iterator for PatternParts<'_> {
    type Item = PatternPart;

    fn next(&mut self) -> Option<PatternPart> {
        let next = self.0.next()?;
        if next != '%' {
            return Some(PatternPart::Char(next));
        }
        let rest = self.0.as_str();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (width, after) = rest.split_at(digits);
        self.0 = after.chars();
        let letter = self.0.next();
        let width_number: Option<usize> = match width {
            "" => Some(0),
            _ => width.parse().ok().filter(|n| *n <= MAX_WIDTH),
        };
        Some(
            match (letter, letter.and_then(PathVariable::of), width_number) {
                (Some('%'), _, Some(0)) if width.is_empty() => PatternPart::Char('%'),
                (_, Some(known), Some(width)) => PatternPart::Letter(known, width),
                (letter, _, _) => {
                    let mut text = width.to_owned();
                    text.extend(letter);
                    PatternPart::Unknown(text)
                }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn part(letter: PathVariable) -> Option<String> {
        Some(match letter {
            PathVariable::Array => "sweep".to_owned(),
            PathVariable::Index => "7".to_owned(),
            PathVariable::Step => "sweep.7".to_owned(),
            PathVariable::Node => "host-1".to_owned(),
            PathVariable::Rank => "0".to_owned(),
            PathVariable::Name => "a/b %u".to_owned(),
            PathVariable::User => return None,
        })
    }

    fn user(letter: PathVariable) -> Option<String> {
        (letter == PathVariable::User).then(|| "ann".to_owned())
    }

    #[test]
    fn letters_are_filled_in_on_the_way_to_the_host() {
        for (pattern, first, last) in [
            ("/out/%A_%a.log", "/out/sweep_7.log", "/out/sweep_7.log"),
            ("%j-%N-%t", "sweep.7-host-1-0", "sweep.7-host-1-0"),
            ("%4a %3t %4j", "0007 000 sweep.7", "0007 000 sweep.7"),
            ("/%u/%x", "/%u/a_b %%u", "/ann/a_b %u"),
            ("%%a %%%a 100%%", "%%a %%7 100%%", "%a %7 100%"),
            ("%5u", "%5u", "ann"),
            ("plain", "plain", "plain"),
        ] {
            let path = OutputPath::new(pattern).unwrap();
            let on_the_way = path.filled(part);
            assert_eq!(on_the_way.as_str(), first, "{pattern}");
            assert_eq!(OutputPath::new(first), Ok(on_the_way.clone()));
            assert_eq!(on_the_way.resolved(user), last, "{pattern}");
        }
    }

    #[test]
    fn letters_are_found() {
        let path = OutputPath::new("%%a/%3t").unwrap();
        assert!(path.contains(PathVariable::Rank) && !path.contains(PathVariable::Index));
        assert!(!path.is_absolute() && OutputPath::new("/x").unwrap().is_absolute());
    }

    #[test]
    fn what_is_no_path_of_a_file_is_refused() {
        for (text, words) in [
            ("", "names no file"),
            ("/out/", "`/out/` names no file"),
            ("a\0b", "`a\\u{0}b` names no file"),
            ("%q.log", "`%q` has no meaning: write %j (step)"),
            ("100%", "`%` has no meaning"),
            ("%11a", "`%11a` has no meaning"),
            ("%4%", "`%4%` has no meaning"),
            (&*"x".repeat(5000), "maximum is 4096"),
        ] {
            let error = OutputPath::new(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
