//! Label selectors as kubectl has them: `KEY=VALUE`, `KEY!=VALUE`, `KEY` and `!KEY`, with commas for "and".

use std::collections::BTreeMap;
use std::str::FromStr;

/// What labels must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    Lacks(String),
}

impl Selector {
    /// Whether these labels are like that. A key that is absent has no value, so it `!=` any.
    pub(crate) fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| match term {
            Term::Is(key, value) => labels.get(key) == Some(value),
            Term::IsNot(key, value) => labels.get(key) != Some(value),
            Term::Has(key) => labels.contains_key(key),
            Term::Lacks(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .map(term)
            .collect::<Result<_, _>>()
            .map(Selector)
    }
}

fn term(text: &str) -> Result<Term, String> {
    let text = text.trim();
    let term = if let Some((key, value)) = text.split_once("!=") {
        Term::IsNot(key.trim().into(), value.trim().into())
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        Term::Is(key.trim().into(), value.trim().into())
    } else if let Some(key) = text.strip_prefix('!') {
        Term::Lacks(key.trim().into())
    } else {
        Term::Has(text.into())
    };
    let (Term::Is(key, _) | Term::IsNot(key, _) | Term::Has(key) | Term::Lacks(key)) = &term;
    if key.is_empty() || key.contains(['!', '=', ' ']) {
        return Err("write KEY=VALUE, KEY!=VALUE, KEY or !KEY, such as `zone=a,!spot`".into());
    }
    Ok(term)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Selector::from_str(selector)
            .unwrap()
            .takes(&labels.collect())
    }

    #[test]
    fn terms_are_those_of_kubectl() {
        let labels = [("zone", "a"), ("gpu", "")];
        for (selector, expected) in [
            ("zone=a", true),
            ("zone==a", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("zone!=a", false),
            ("spot!=yes", true),
            ("gpu", true),
            ("gpu=", true),
            ("spot", false),
            ("!spot", true),
            ("!gpu", false),
            ("zone=a, gpu", true),
            ("zone=a,spot", false),
        ] {
            assert_eq!(takes(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_says_how_one_looks() {
        for text in ["", "=a", "a,,b", "!", "a b", "!a=b"] {
            let error = Selector::from_str(text).unwrap_err();
            assert!(error.contains("KEY!=VALUE"), "{text}: {error}");
        }
    }
}
