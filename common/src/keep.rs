//! Patterns of the files in a step's own directory that its host keeps after the end of an attempt.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::step_names::is_match;

/// Most patterns of one step.
pub const MAX_KEEP_PATTERNS: usize = 32;

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1_000;

/// Bytes of notes on what was left out, beyond the most bytes that a host keeps.
pub const KEEP_NOTES_BYTES: u64 = 1024 * 1024;

/// Bytes at the end of a file of what was kept, with a [`KeptFiles`] in JSON and spaces.
pub const KEPT_SUMMARY_BYTES: usize = 1024;

/// Longest [`KeptFiles::why`], in bytes.
pub const MAX_KEPT_WHY_BYTES: usize = 400;

/// Component that stands for any number of directories.
const ANY_DIRECTORIES: &str = "**";

/// Count of the files that a host has kept of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeptFiles {
    /// Number of files and links that were kept.
    pub files: u64,
    /// Size of their contents, in bytes.
    pub bytes: u64,
    /// Number of files and directories that match and were left out; it stops at 1,000.
    pub left_out: u64,
    /// The first that was left out, and why; or why nothing could be kept.
    pub why: Option<String>,
}

impl KeptFiles {
    /// Reports that nothing could be kept.
    pub fn nothing(why: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            ..Self::default()
        }
        .bounded()
    }

    /// Cuts a text that is too long, and what no terminal shows: the step's user may have written it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Some(why) = &mut self.why {
            *why = why.replace(char::is_control, " ");
            why.truncate(why.floor_char_boundary(MAX_KEPT_WHY_BYTES));
        }
        self
    }
}

/// Error for a text that is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepPatternError {
    /// The text is empty.
    #[error(
        "is empty: write a path below the step's directory, such as `out/*.pt`, or `.` for all of it"
    )]
    Empty,
    /// The text is too long.
    #[error("is longer than {MAX_PATTERN_BYTES} bytes: use `*` for a part of it")]
    TooLong,
    /// The path does not begin at the step's directory.
    #[error(
        "begins with `/`: only files in the step's own directory are kept, and their paths begin there"
    )]
    Absolute,
    /// The path leads out of a directory.
    #[error("contains `..`: only files in the step's own directory are kept")]
    LeadsOut,
    /// The text contains a character that no terminal shows.
    #[error("contains a control character: use `?` in its place")]
    Control,
}

/// Path below a step's own directory with `*`, `?` and `**`, as in a shell; a directory that matches is kept with everything
/// in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct KeepPattern(String);

/// Part of a step's directory that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptPart {
    /// Neither the file nor anything below it.
    Nothing,
    /// Perhaps files below it, if it is a directory.
    Below,
    /// The file; a directory with everything in it.
    Whole,
}

impl KeepPattern {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Part of the file at this path that is kept. The time is bounded by the product of the lengths.
    pub fn part_of(&self, path: &[Vec<u8>]) -> KeptPart {
        let components: Vec<&str> = components(&self.0).collect();
        // Numbers of components that the names so far match.
        let mut matched = vec![false; components.len() + 1];
        matched[0] = true;
        pass_directories(&components, &mut matched);
        for name in path {
            if matched[components.len()] {
                break;
            }
            let name = String::from_utf8_lossy(name);
            let mut next = vec![false; components.len() + 1];
            for (at, pattern) in components.iter().enumerate().filter(|(at, _)| matched[*at]) {
                match *pattern {
                    ANY_DIRECTORIES => next[at] |= !name.starts_with('.'),
                    pattern => next[at + 1] |= is_name_match(pattern, &name),
                }
            }
            pass_directories(&components, &mut next);
            matched = next;
        }
        match matched[components.len()] {
            true => KeptPart::Whole,
            false if matched.contains(&true) => KeptPart::Below,
            false => KeptPart::Nothing,
        }
    }
}

/// Part of the file at this path that is kept by one of the patterns; an empty path is that of the directory itself.
pub fn kept_part(patterns: &[KeepPattern], path: &[Vec<u8>]) -> KeptPart {
    let parts = patterns.iter().map(|pattern| pattern.part_of(path));
    parts.max().unwrap_or(KeptPart::Nothing)
}

fn components(text: &str) -> impl Iterator<Item = &str> {
    text.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// Adds that each `**` stands for no directory too.
fn pass_directories(components: &[&str], matched: &mut [bool]) {
    for (at, pattern) in components.iter().enumerate() {
        matched[at + 1] |= matched[at] && *pattern == ANY_DIRECTORIES;
    }
}

/// Matches one name. As in a shell, one that begins with a dot matches only a pattern that does.
fn is_name_match(pattern: &str, name: &str) -> bool {
    let is_hidden = name.starts_with('.') && !pattern.starts_with('.');
    !is_hidden && is_match(pattern, name)
}

impl fmt::Display for KeepPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for KeepPattern {
    type Err = KeepPatternError;

    fn from_str(text: &str) -> Result<Self, KeepPatternError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for KeepPattern {
    type Error = KeepPatternError;

    fn try_from(text: String) -> Result<Self, KeepPatternError> {
        if text.is_empty() {
            return Err(KeepPatternError::Empty);
        }
        if text.len() > MAX_PATTERN_BYTES {
            return Err(KeepPatternError::TooLong);
        }
        if text.starts_with('/') {
            return Err(KeepPatternError::Absolute);
        }
        if components(&text).any(|part| part == "..") {
            return Err(KeepPatternError::LeadsOut);
        }
        if text.chars().any(char::is_control) {
            return Err(KeepPatternError::Control);
        }
        Ok(Self(text))
    }
}

impl From<KeepPattern> for String {
    fn from(pattern: KeepPattern) -> String {
        pattern.0
    }
}

/// Whether a step works in a directory of its own and in no other: files are put into it, or kept of it.
pub fn needs_own_directory<I, K>(inputs: &[I], keep: &[K]) -> bool {
    !inputs.is_empty() || !keep.is_empty()
}

/// Checks the patterns of a request.
///
/// # Errors
/// If one is no pattern, if there are too many, or if the step has another directory.
pub(crate) fn check_keep(
    patterns: &[String],
    has_workdir: bool,
) -> Result<Vec<KeepPattern>, FieldError> {
    if has_workdir && !patterns.is_empty() {
        let message = "files are kept of a directory of the step's own, and `workdir` names another, whose files stay anyway: leave out one of them";
        return Err(FieldError::new(ErrorCode::Contradiction, "keep", message));
    }
    if patterns.len() > MAX_KEEP_PATTERNS {
        let count = patterns.len();
        let message = format!(
            "{count} patterns: the maximum is {MAX_KEEP_PATTERNS}; write files to one directory, and keep that"
        );
        return Err(FieldError::new(ErrorCode::InvalidKeep, "keep", message));
    }
    let checked = patterns.iter().enumerate().map(|(place, text)| {
        text.parse().map_err(|why: KeepPatternError| {
            let shown: String = text.chars().take(100).collect();
            let message = format!("`{}` {why}", shown.escape_default());
            FieldError::new(ErrorCode::InvalidKeep, format!("keep[{place}]"), message)
        })
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn part(pattern: &str, path: &str) -> KeptPart {
        let names = path.split('/').filter(|name| !name.is_empty());
        let names: Vec<Vec<u8>> = names.map(|name| name.as_bytes().to_vec()).collect();
        pattern.parse::<KeepPattern>().unwrap().part_of(&names)
    }

    #[test]
    fn patterns_match_as_in_a_shell_and_directories_with_everything() {
        use KeptPart::{Below, Nothing, Whole};
        for (pattern, path, expected) in [
            ("out", "", Below),
            ("out", "out", Whole),
            ("out", "out/deep/.a", Whole),
            ("out", "outer", Nothing),
            ("./out/", "out", Whole),
            ("out/*.pt", "out", Below),
            ("out/*.pt", "out/a.pt", Whole),
            ("out/*.pt", "out/a/b.pt", Nothing),
            ("out/*.pt", "out/.a.pt", Nothing),
            ("out/.*", "out/.a.pt", Whole),
            ("*.pt", "out", Nothing),
            ("?.log", "\u{e4}.log", Whole),
            ("?.log", "ab.log", Nothing),
            ("**/*.pt", "a.pt", Whole),
            ("**/*.pt", "a/b/c.pt", Whole),
            ("**/*.pt", "a/b", Below),
            ("**/*.pt", ".git/c.pt", Nothing),
            ("a/**/z", "a/z", Whole),
            ("a/**/z", "a/b/c/z", Whole),
            ("a/**/z", "b", Nothing),
            ("a/**", "a", Whole),
            ("a**b", "axxb", Whole),
            ("[a]", "a", Nothing),
            (".", "", Whole),
            (".", ".hidden", Whole),
            ("**", "", Whole),
        ] {
            assert_eq!(part(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_time_does_not_grow_with_the_number_of_ways_to_match() {
        let pattern = "**/a/".repeat(190) + "b";
        let path = "a/".repeat(100) + "c";
        assert_eq!(part(&pattern, &path), KeptPart::Below);
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_way_out() {
        let one = |text: &str| vec![text.to_string()];
        for (patterns, has_workdir, field, words) in [
            (one("a"), true, "keep", "whose files stay anyway"),
            (one(""), false, "keep[0]", "or `.` for all of it"),
            (one("/etc/a"), false, "keep[0]", "begins with `/`"),
            (one("a/../../b"), false, "keep[0]", "contains `..`"),
            (one("a\nb"), false, "keep[0]", r"`a\nb` contains a control"),
            (one(&"a".repeat(1001)), false, "keep[0]", "longer than 1000"),
            (vec!["a".to_string(); 33], false, "keep", "maximum is 32"),
        ] {
            let error = check_keep(&patterns, has_workdir).unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(check_keep(&[], true), Ok(Vec::new()));
        assert_eq!(check_keep(&one("a..b/..c"), false).unwrap().len(), 1);
    }

    #[test]
    fn a_reason_of_any_kind_fits_on_a_line_and_into_the_end_of_a_file() {
        let kept = KeptFiles {
            files: u64::MAX,
            bytes: u64::MAX,
            left_out: u64::MAX,
            why: Some("\n\"\\\u{e4}\u{1b}".repeat(200)),
        };
        let why = kept.bounded().why.unwrap();
        assert!(why.starts_with(" \"\\\u{e4} ") && why.len() <= MAX_KEPT_WHY_BYTES);
        let worst = KeptFiles::nothing("\"".repeat(1_000));
        let worst = KeptFiles {
            files: u64::MAX,
            bytes: u64::MAX,
            left_out: u64::MAX,
            ..worst
        };
        assert!(serde_json::to_vec(&worst).unwrap().len() <= KEPT_SUMMARY_BYTES);
    }

    #[test]
    fn a_record_with_something_else_is_refused() {
        let pattern: KeepPattern = serde_json::from_str("\"a/*\"").unwrap();
        assert_eq!(serde_json::to_string(&pattern).unwrap(), "\"a/*\"");
        assert!(serde_json::from_str::<KeepPattern>("\"../a\"").is_err());
    }
}
