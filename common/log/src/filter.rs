//! What is logged: `SLUICE_LOG`, else `log_filter` of a daemon's config, in the syntax of `tracing-subscriber`'s filters.
//! A filter that cannot be read stops the start, since whoever writes one is looking for something, and would look in
//! vain.

use std::env::VarError;
use std::fmt;

use sluice_common::nearest::nearest;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Holds the filter; it goes before the config's.
pub const FILTER_VARIABLE: &str = "SLUICE_LOG";
/// What a daemon's config calls it.
const FILTER_KEY: &str = "log_filter";
/// What is logged where nothing is asked for.
const DEFAULT_FILTER: &str = "info";
/// The words that are levels, which a target is not called by mistake.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Which lines are written; it was read and can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(String);

/// Why a filter is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{by}: `{}` cannot be read as a filter ({why}): write a level (error, warn, info, debug, trace, off), and others for \
     parts of the program, such as `info,sluice_coordinator::engine=debug`",
    part.escape_debug()
)]
pub struct FilterError {
    by: &'static str,
    part: String,
    why: String,
}

impl Filter {
    /// The one that the environment asks for, else a config's, else the default. Each that is there must be one.
    ///
    /// # Errors
    /// Where one is none.
    pub fn from_env_or(configured: Option<&str>) -> Result<Self, FilterError> {
        let configured = parse(FILTER_KEY, configured.unwrap_or_default())?;
        match std::env::var(FILTER_VARIABLE) {
            Ok(text) => parse(FILTER_VARIABLE, &text),
            Err(VarError::NotPresent) => Ok(configured),
            Err(VarError::NotUnicode(text)) => Err(FilterError {
                by: FILTER_VARIABLE,
                part: text.to_string_lossy().into_owned(),
                why: "it is not UTF-8".to_owned(),
            }),
        }
    }

    pub(crate) fn to_env_filter(&self) -> EnvFilter {
        let built = EnvFilter::builder().parse(&self.0);
        built.expect("it was read before")
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self(DEFAULT_FILTER.to_owned())
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An empty text asks for nothing, which is the default.
fn parse(by: &'static str, text: &str) -> Result<Filter, FilterError> {
    let parts: Vec<&str> = parts(text);
    let refused = |part: &str, why: String| FilterError {
        by,
        part: part.to_owned(),
        why,
    };
    if parts.is_empty() {
        return Ok(Filter::default());
    }
    for part in &parts {
        check(part).map_err(|why| refused(part, why))?;
    }
    let whole = parts.join(",");
    EnvFilter::builder()
        .parse(&whole)
        .map_err(|error| refused(text, error.to_string()))?;
    Ok(Filter(whole))
}

/// The parts between commas, none of which can hold one.
fn parts(text: &str) -> Vec<&str> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

fn check(part: &str) -> Result<(), String> {
    // A word alone is a target, of which everything is logged: a slip in a level would be one that does not exist.
    let word = part.to_ascii_lowercase();
    let is_word = word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(level) = meant_level(&word).filter(|level| is_word && *level != word) {
        return Err(format!("did you mean `{level}`?"));
    }
    let read = part.parse::<Directive>();
    read.map(drop).map_err(|error| error.to_string())
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
            let filter = parse(FILTER_KEY, text).unwrap();
            assert!(!filter.to_env_filter().to_string().is_empty(), "{text}");
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
            let refusal = parse(FILTER_VARIABLE, text).unwrap_err().to_string();
            assert!(refusal.contains(bad), "{text}: {refusal}");
            assert!(refusal.starts_with("SLUICE_LOG: "), "{refusal}");
            assert!(refusal.contains("such as `info,"), "{refusal}");
        }
    }

    #[test]
    fn a_config_is_named_by_its_key_and_what_asks_for_nothing_is_the_default() {
        let refusal = Filter::from_env_or(Some("info,sluice_agent=loud")).unwrap_err();
        assert!(refusal.to_string().starts_with("log_filter: "), "{refusal}");
        for nothing in [None, Some(""), Some(" , ")] {
            // A test is run without the variable, or with one that can be read.
            let filter = parse(FILTER_KEY, nothing.unwrap_or_default());
            assert_eq!(filter, Ok(Filter::default()));
        }
        let filter = parse(FILTER_KEY, " warn , sluice_agent=debug ").unwrap();
        assert_eq!(filter.to_string(), "warn,sluice_agent=debug");
    }
}
