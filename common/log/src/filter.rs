//! Log filters: `SLUICE_LOG`, else `log_filter` in the daemon's config, in the syntax of `tracing-subscriber`. An
//! invalid filter stops the start, since it would hide the lines that an admin looks for.

use std::env::VarError;
use std::fmt;

use sluice_common::nearest::nearest;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Environment variable with the filter; overrides the config.
pub const FILTER_VARIABLE: &str = "SLUICE_LOG";
/// Config key of the filter.
const FILTER_KEY: &str = "log_filter";
/// Filter if none is configured.
const DEFAULT_FILTER: &str = "info";
/// Names of levels, used to detect misspelled ones.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A valid filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(String);

/// Error for an invalid filter.
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
    /// The filter from the environment, else from the config, else the default. All that are present must be valid.
    ///
    /// # Errors
    /// If one is invalid.
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

/// Parses a filter; an empty text means the default.
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

/// Splits a filter at commas.
fn parts(text: &str) -> Vec<&str> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

fn check(part: &str) -> Result<(), String> {
    // A single word is a target, so a misspelled level would silently match nothing.
    let word = part.to_ascii_lowercase();
    let is_word = word.bytes().all(|b| b.is_ascii_alphabetic());
    if let Some(level) = meant_level(&word).filter(|level| is_word && *level != word) {
        return Err(format!("did you mean `{level}`?"));
    }
    let read = part.parse::<Directive>();
    read.map(drop).map_err(|error| error.to_string())
}

/// The level that a word resembles.
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
            // Tests run without the variable, or with a valid one.
            let filter = parse(FILTER_KEY, nothing.unwrap_or_default());
            assert_eq!(filter, Ok(Filter::default()));
        }
        let filter = parse(FILTER_KEY, " warn , sluice_agent=debug ").unwrap();
        assert_eq!(filter.to_string(), "warn,sluice_agent=debug");
    }
}
