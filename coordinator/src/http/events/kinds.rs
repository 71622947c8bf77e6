//! Kinds of events: the `type` of each, and those that a caller asks for.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use super::super::error::ApiError;
use super::super::params;
use super::times::SCHEMA;
use crate::store::Event;

/// Kinds of all events that a coordinator of this release makes.
static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let kinds = SCHEMA["oneOf"].as_array().into_iter().flatten();
    let names = kinds.filter_map(|kind| kind["properties"]["type"]["const"].as_str());
    names.map(str::to_owned).collect()
});

/// The kinds that a caller asks for.
#[derive(Clone)]
pub(super) struct EventKinds(BTreeSet<&'static str>);

impl EventKinds {
    /// Parses kinds separated by commas; a `*` at an end stands for any rest.
    ///
    /// # Errors
    /// If no event has such a kind.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut kinds = BTreeSet::new();
        for word in text.split(',') {
            let named = KNOWN.iter().filter(|known| is_named(known, word));
            let mut named = named.map(String::as_str).peekable();
            if named.peek().is_none() {
                return Err(unknown(word));
            }
            kinds.extend(named);
        }
        Ok(Self(kinds))
    }

    /// Whether an event with this JSON is of one of the kinds.
    pub(super) fn have(&self, json: &str) -> bool {
        self.0.contains(kind(json).as_str())
    }
}

/// Whether a word of a caller stands for a kind.
fn is_named(kind: &str, word: &str) -> bool {
    match word.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None => kind == word,
    }
}

fn unknown(word: &str) -> ApiError {
    let known = KNOWN.iter().map(String::as_str);
    let hint = params::hint(word, known, |all| {
        format!("write some of {}", all.join(", "))
    });
    let word = params::shown(word);
    params::invalid("type", format!("`{word}` is no type of events: {hint}"))
}

/// Returns the `type` of an event.
pub(super) fn of(event: &Event) -> String {
    kind(&event.json)
}

fn kind(json: &str) -> String {
    #[derive(Deserialize)]
    struct TypeOnly {
        r#type: String,
    }
    let typed = serde_json::from_str(json);
    typed.map_or_else(|_| "record".to_owned(), |typed: TypeOnly| typed.r#type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_whole_or_beginnings_and_unknown_ones_are_refused() {
        let takes = |text: &str, kind: &str| {
            let kinds = EventKinds::parse(text).ok().unwrap();
            kinds.0.contains(kind)
        };
        assert!(takes("ended", "ended") && !takes("ended", "step_ended"));
        assert!(takes("step_*,ended", "step_ended") && takes("step_*,ended", "ended"));
        assert!(takes("*", "allocated") && !takes("service_*", "allocated"));
        for (text, hint) in [
            ("step_endd", "did you mean `step_ended`?"),
            ("ended,", "`` is no type of events: write some of "),
            (
                "nothing_like_it_*",
                "`nothing_like_it_*` is no type of events",
            ),
        ] {
            let refused = EventKinds::parse(text).err().unwrap();
            let told = refused.body().error.message;
            assert!(told.contains(hint), "{told}");
        }
    }
}
