//! Names of steps as people write them to select some: names, ids, and patterns with `*` and `?`, separated by commas.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Most names in one list. With [`MAX_CHARS`] it bounds the time that one step takes.
pub const MAX_STEP_NAMES: usize = 100;

/// Longest name or pattern, in characters, like the longest name of a step.
const MAX_CHARS: usize = 200;

/// Error for a text that is not a list of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepNamesError {
    /// A name is empty.
    #[error("an empty name: write names such as `train-7` or `train-*`, with `,` between them")]
    Empty,
    /// A name is too long.
    #[error(
        "a name of more than {MAX_CHARS} characters: no step has one, use `*` for a part of it"
    )]
    TooLong,
    /// The list has too many names.
    #[error("more than {MAX_STEP_NAMES} names: use patterns such as `train-*`, or labels")]
    TooMany,
}

/// Names and patterns; a step is among them if its id or its name matches one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepNames(Vec<StepPattern>);

/// A name or a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StepPattern {
    /// The text before the first `*` or `?`.
    literal: String,
    /// The rest of a pattern.
    rest: Option<String>,
}

impl StepPattern {
    fn new(mut literal: String) -> Self {
        let first_wildcard = literal.find(['*', '?']);
        let rest = first_wildcard.map(|at| literal.split_off(at));
        Self { literal, rest }
    }

    fn selects(&self, name: &str) -> bool {
        // Names that begin alike are told apart by one byte, most of them without a comparison.
        let last = self.literal.len().checked_sub(1);
        if last.is_some_and(|at| name.as_bytes().get(at) != self.literal.as_bytes().get(at)) {
            return false;
        }
        let Some(rest) = &self.rest else {
            return name == self.literal;
        };
        name.strip_prefix(&*self.literal)
            .is_some_and(|name| is_match(rest, name))
    }
}

impl StepNames {
    /// Whether a step of this id and this name is among them.
    pub fn select(&self, id: &str, name: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|pattern| pattern.selects(name) || pattern.selects(id))
    }
}

impl fmt::Display for StepNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, StepPattern { literal, rest }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{literal}{}", rest.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

impl FromStr for StepNames {
    type Err = StepNamesError;

    fn from_str(text: &str) -> Result<Self, StepNamesError> {
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        if names.len() > MAX_STEP_NAMES {
            return Err(StepNamesError::TooMany);
        }
        if names.iter().any(String::is_empty) {
            return Err(StepNamesError::Empty);
        }
        if names.iter().any(|name| name.chars().count() > MAX_CHARS) {
            return Err(StepNamesError::TooLong);
        }
        Ok(Self(names.into_iter().map(StepPattern::new).collect()))
    }
}

/// Whether a text is a pattern: `*` stands for any text, `?` for any character.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// A pattern that matches a name in a list of names: one with a comma would be read as two.
pub fn in_list(name: &str) -> String {
    name.replace(',', "?")
}

/// Matches from left to right. After a mismatch the last `*` takes one character more, so the time is bounded by the
/// product of the lengths.
pub(crate) fn is_match(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star: Option<(core::str::Chars<'_>, core::str::Chars<'_>)> = None;
    loop {
        let mut after = pattern.clone();
        match (after.next(), text.clone().next()) {
            (Some('*'), _) => {
                pattern = after;
                last_star = Some((pattern.clone(), text.clone()));
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                pattern = after;
                text.next();
                continue;
            }
            (None, None) => return true,
            (Some(_) | None, Some(_)) | (Some(_), None) => {}
        }
        let Some((rest, from)) = &mut last_star else {
            return false;
        };
        if from.next().is_none() {
            return false;
        }
        (pattern, text) = (rest.clone(), from.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_select_by_name_and_by_id() {
        let names: StepNames = "train-*,k3v9,ev?l".parse().unwrap();
        for (id, name, expected) in [
            ("a", "train-7", true),
            ("a", "train-", true),
            ("a", "train", false),
            ("k3v9", "other", true),
            ("train-8", "python", true),
            ("a", "evil", true),
            ("a", "evl", false),
            ("a", "k3v", false),
        ] {
            assert_eq!(names.select(id, name), expected, "{id} {name}");
        }
    }

    #[test]
    fn lists_are_bounded_and_hold_no_empty_name() {
        let parse = str::parse::<StepNames>;
        assert_eq!(parse("").unwrap_err(), StepNamesError::Empty);
        assert_eq!(parse("a,,b").unwrap_err(), StepNamesError::Empty);
        assert_eq!(
            parse(&"é".repeat(201)).unwrap_err(),
            StepNamesError::TooLong
        );
        assert!(parse(&"é".repeat(200)).is_ok());
        let many = alloc::vec!["a"; MAX_STEP_NAMES + 1].join(",");
        assert_eq!(parse(&many).unwrap_err(), StepNamesError::TooMany);
    }

    /// Matches by trying every way in which `*` can be read.
    fn matches_slowly(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                (0..=text.len()).any(|taken| matches_slowly(rest, &text[taken..]))
            }
            (['?', rest @ ..], [_, left @ ..]) => matches_slowly(rest, left),
            ([wanted, rest @ ..], [found, left @ ..]) => {
                wanted == found && matches_slowly(rest, left)
            }
            ([], [_, ..]) | ([_, ..], []) => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_means_what_it_means_read_in_every_way(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<char>>();
            let expected = matches_slowly(&chars(&pattern), &chars(&text));
            prop_assert_eq!(StepPattern::new(pattern).selects(&text), expected);
        }
    }
}
