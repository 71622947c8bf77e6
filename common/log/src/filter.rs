//! What is logged: `SLUICE_LOG`, in the syntax of `tracing-subscriber`'s filters. A filter that cannot be read stops
//! the start, since whoever writes one is looking for something, and would look in vain.

use std::env::VarError;

use sluice_common::nearest::nearest;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Holds the filter.
pub const FILTER_VARIABLE: &str = "SLUICE_LOG";
/// What is logged where nothing is asked for.
const DEFAULT_FILTER: &str = "info";
/// The words that are levels, which a target is not called by mistake.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Why a filter is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{FILTER_VARIABLE}: `{}` cannot be read as a filter ({why}): write a level (error, warn, info, debug, trace, off), \
     and others for parts of the program, such as `info,sluice_coordinator::engine=debug`",
    part.escape_debug()
)]
pub struct FilterError {
    part: String,
    why: String,
}

/// The filter that the environment asks for.
pub(crate) fn from_environment() -> Result<EnvFilter, FilterError> {
    match std::env::var(FILTER_VARIABLE) {
        Ok(text) => parse(&text),
        Err(VarError::NotPresent) => parse(DEFAULT_FILTER),
        Err(VarError::NotUnicode(text)) => Err(FilterError {
            part: text.to_string_lossy().into_owned(),
            why: "it is not UTF-8".to_owned(),
        }),
    }
}

fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let mut parts: Vec<&str> = parts(text);
    if parts.is_empty() {
        parts.push(DEFAULT_FILTER);
    }
    parts.iter().try_for_each(|part| check(part))?;
    EnvFilter::builder()
        .parse(parts.join(","))
        .map_err(|error| FilterError {
            part: text.to_owned(),
            why: error.to_string(),
        })
}

/// The parts between commas, none of which can hold one.
fn parts(text: &str) -> Vec<&str> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

fn check(part: &str) -> Result<(), FilterError> {
    let refused = |why: String| FilterError {
        part: part.to_owned(),
        why,
    };
    // A word alone is a target, of which everything is logged: a slip in a level would be one that does not exist.
    let word = part.to_ascii_lowercase();
    let is_word = word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(level) = meant_level(&word).filter(|level| is_word && *level != word) {
        return Err(refused(format!("did you mean `{level}`?")));
    }
    let read = part.parse::<Directive>();
    read.map(drop).map_err(|error| refused(error.to_string()))
}

/// The level that a word is near to, or has the letters of.
fn meant_level(word: &str) -> Option<&'static str> {
    let letters = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let swapped = LEVELS.into_iter().find(|l| letters(l) == letters(word));
    swapped.or_else(|| nearest(word, LEVELS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_part_by_part() {
        for text in [
            "",
            "info",
            "WARN",
            "off",
            "info, sluice_agent=debug",
            "quinn",
            "warn,sluice_coordinator[session{node=gpu-1}]=trace,",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_an_example() {
        for (text, bad) in [
            ("info,sluice_agent=loud", "`sluice_agent=loud`"),
            ("debgu", "did you mean `debug`?"),
            ("information", "did you mean `info`?"),
            ("info,[", "`[`"),
        ] {
            let refusal = parse(text).unwrap_err().to_string();
            assert!(refusal.contains(bad), "{text}: {refusal}");
            assert!(refusal.starts_with("SLUICE_LOG: "), "{refusal}");
            assert!(refusal.contains("such as `info,"), "{refusal}");
        }
    }
}
