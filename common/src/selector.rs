//! Label selectors in the grammar of Kubernetes: `key=value`, `key==value`, `key!=value`, `key in (a, b)`, `key notin
//! (a, b)`, `key`, `!key`, combined with `,` for "and". As in Kubernetes, `!=` and `notin` also match objects without
//! the label.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::label::{LabelError, LabelKey, LabelValue};

/// Most conditions of a selector and most values of one condition, so that matching every node stays cheap.
const MAX_PARTS: usize = 64;

/// Number of characters that messages quote.
const SHOWN_CHARS: usize = 80;

/// Error for a text that is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A key or value is not valid.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Unexpected token or end of text.
    #[error("selector: {found} where {wanted} was expected; {FORMS}")]
    Unexpected {
        /// The token found, as a clause.
        found: String,
        /// The tokens that were expected.
        wanted: &'static str,
    },
    /// The `in` or `notin` condition has no values.
    #[error(
        "selector: `{key}` is compared with no value: name at least one, such as `{key} in (a, b)`"
    )]
    NoValues {
        /// Key of the condition.
        key: String,
    },
    /// Too many conditions or values.
    #[error(
        "selector: it has more than {MAX_PARTS} {what}: split the work, or label what is meant"
    )]
    TooLong {
        /// Name of the excess items: `conditions` or `values`.
        what: &'static str,
    },
}

/// Summary of the grammar for messages.
const FORMS: &str = "write `key=value`, `key!=value`, `key in (a, b)`, `key notin (a, b)`, `key` or `!key`, with `,` \
                     between them";

/// Condition on the value of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelTest {
    /// The label exists and has one of these values.
    In(BTreeSet<LabelValue>),
    /// The label is missing or has none of these values.
    NotIn(BTreeSet<LabelValue>),
    /// The label exists.
    Exists,
    /// The label is missing.
    Missing,
}

impl LabelTest {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &BTreeSet<LabelValue>| {
            value.is_some_and(|value| values.iter().any(|it| it.as_str() == value))
        };
        match self {
            LabelTest::In(values) => among(values),
            LabelTest::NotIn(values) => !among(values),
            LabelTest::Exists => value.is_some(),
            LabelTest::Missing => value.is_none(),
        }
    }
}

/// One condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Key of the label.
    pub key: LabelKey,
    /// Condition on the label's value.
    pub test: LabelTest,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let (sign, word, values) = match &self.test {
            LabelTest::Exists => return write!(f, "{key}"),
            LabelTest::Missing => return write!(f, "!{key}"),
            LabelTest::In(values) => ("=", "in", values),
            LabelTest::NotIn(values) => ("!=", "notin", values),
        };
        if let (1, Some(one)) = (values.len(), values.first()) {
            return write!(f, "{key}{sign}{one}");
        }
        let values: Vec<&str> = values.iter().map(LabelValue::as_str).collect();
        write!(f, "{key} {word} ({})", values.join(","))
    }
}

/// Conditions that must all hold; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Conditions in the order in which they were written.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the selector matches an object; `value_of` looks up its labels.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let mut all = self.0.iter();
        all.all(|it| it.test.holds(value_of(it.key.as_str())))
    }
}

impl From<Vec<Requirement>> for Selector {
    fn from(requirements: Vec<Requirement>) -> Self {
        Self(requirements)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> String {
        alloc::format!("{selector}")
    }
}

impl TryFrom<String> for Selector {
    type Error = SelectorError;
    fn try_from(text: String) -> Result<Self, SelectorError> {
        text.parse()
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut reader = SelectorParser { rest: text };
        let mut requirements = Vec::new();
        if reader.peek() == SelectorToken::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(reader.requirement()?);
            if requirements.len() > MAX_PARTS {
                return Err(SelectorError::TooLong { what: "conditions" });
            }
            match reader.next() {
                SelectorToken::End => return Ok(Self(requirements)),
                SelectorToken::Sign(",") => {}
                other => return Err(other.instead_of("`,` or the end")),
            }
        }
    }
}

/// Token of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorToken<'a> {
    /// A key, a value, `in` or `notin`.
    Word(&'a str),
    Sign(&'a str),
    End,
}

impl SelectorToken<'_> {
    fn instead_of(self, wanted: &'static str) -> SelectorError {
        let found = match self {
            SelectorToken::Word(text) | SelectorToken::Sign(text) => {
                let shown = text.chars().take(SHOWN_CHARS);
                let shown: String = shown.flat_map(char::escape_default).collect();
                alloc::format!("`{shown}` stands")
            }
            SelectorToken::End => "it ends".to_owned(),
        };
        SelectorError::Unexpected { found, wanted }
    }
}

/// Operators, longer ones first.
const SIGNS: [&str; 7] = ["==", "!=", "=", "!", ",", "(", ")"];

/// Parser state: the remaining text.
struct SelectorParser<'a> {
    rest: &'a str,
}

impl<'a> SelectorParser<'a> {
    fn peek(&self) -> SelectorToken<'a> {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            return SelectorToken::End;
        }
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            return SelectorToken::Sign(sign);
        }
        let ends = |c: char| c.is_whitespace() || SIGNS.iter().any(|sign| sign.starts_with(c));
        let length = rest.find(ends).unwrap_or(rest.len());
        SelectorToken::Word(&rest[..length])
    }

    fn next(&mut self) -> SelectorToken<'a> {
        let token = self.peek();
        if let SelectorToken::Word(text) | SelectorToken::Sign(text) = token {
            self.rest = &self.rest.trim_start()[text.len()..];
        }
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.peek() == SelectorToken::Sign("!") {
            self.next();
            let key = self.key()?;
            let test = LabelTest::Missing;
            return Ok(Requirement { key, test });
        }
        let key = self.key()?;
        let test = self.test(&key)?;
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<LabelKey, SelectorError> {
        match self.next() {
            SelectorToken::Word(word) => Ok(LabelKey::new(word)?),
            other => Err(other.instead_of("the key of a label")),
        }
    }

    fn test(&mut self, key: &LabelKey) -> Result<LabelTest, SelectorError> {
        let test = match self.peek() {
            SelectorToken::End | SelectorToken::Sign(",") => return Ok(LabelTest::Exists),
            SelectorToken::Sign("=" | "==") => {
                self.next();
                LabelTest::In(BTreeSet::from([self.value()?]))
            }
            SelectorToken::Sign("!=") => {
                self.next();
                LabelTest::NotIn(BTreeSet::from([self.value()?]))
            }
            SelectorToken::Word("in") => {
                self.next();
                LabelTest::In(self.values(key)?)
            }
            SelectorToken::Word("notin") => {
                self.next();
                LabelTest::NotIn(self.values(key)?)
            }
            other => return Err(other.instead_of("`=`, `!=`, `in`, `notin` or `,`")),
        };
        Ok(test)
    }

    /// Parses a value; empty if none precedes the next operator.
    fn value(&mut self) -> Result<LabelValue, SelectorError> {
        match self.peek() {
            SelectorToken::Word(word) => {
                self.next();
                Ok(LabelValue::new(word)?)
            }
            SelectorToken::End | SelectorToken::Sign("," | ")") => Ok(LabelValue::default()),
            other => Err(other.instead_of("a value")),
        }
    }

    fn values(&mut self, key: &LabelKey) -> Result<BTreeSet<LabelValue>, SelectorError> {
        match self.next() {
            SelectorToken::Sign("(") => {}
            other => return Err(other.instead_of("`(`")),
        }
        if self.peek() == SelectorToken::Sign(")") {
            let key = String::from(key.clone());
            return Err(SelectorError::NoValues { key });
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            if values.len() > MAX_PARTS {
                return Err(SelectorError::TooLong { what: "values" });
            }
            match self.next() {
                SelectorToken::Sign(")") => return Ok(values),
                SelectorToken::Sign(",") => {}
                other => return Err(other.instead_of("`,` or `)`")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn read(text: &str) -> Selector {
        text.parse().unwrap()
    }

    #[test]
    fn each_form_means_what_it_means_in_kubernetes() {
        let labels = [("zone", "a"), ("sluice/gpu.model", "h100"), ("bare", "")];
        let value_of = |key: &str| {
            let found = labels.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| *value)
        };
        for (text, meant) in [
            ("", true),
            ("  ", true),
            ("zone=a", true),
            ("zone == a", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("zone!=a", false),
            ("rack!=a", true),
            ("zone in (a, b)", true),
            ("zone in(b,c)", false),
            ("zone notin (b, c)", true),
            ("rack notin (b)", true),
            ("rack in (b)", false),
            ("zone", true),
            ("rack", false),
            ("!rack", true),
            ("! zone", false),
            ("bare=", true),
            ("bare in (,a)", true),
            ("zone=a,sluice/gpu.model in (h100, a100) , !rack", true),
            ("zone=a,rack", false),
            // Keywords may be keys too.
            ("in notin (in)", true),
        ] {
            assert_eq!(read(text).matches(value_of), meant, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_the_way_out() {
        for (text, words) in [
            (
                ",",
                "selector: `,` stands where the key of a label was expected; write `key=value`",
            ),
            ("zone=a,", "selector: it ends where the key of a label"),
            ("zone a", "`a` stands where `=`, `!=`, `in`, `notin` or `,`"),
            ("zone=a b", "`b` stands where `,` or the end"),
            ("zone=(a)", "`(` stands where a value"),
            ("zone in a", "`a` stands where `(`"),
            ("zone in (a", "it ends where `,` or `)`"),
            ("zone in ()", "`zone` is compared with no value"),
            ("zone=a!", "`!` stands where"),
            ("Zone.Example/x=a", "DNS name"),
            ("zone=-a", "label value `-a`: it must begin and end"),
            ("zone=\u{1b}", "\\u{1b}"),
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let many = alloc::vec!["a"; MAX_PARTS + 1].join(",");
        let error = many.parse::<Selector>().unwrap_err().to_string();
        assert!(error.contains("more than 64 conditions"), "{error}");
    }

    fn value() -> impl Strategy<Value = LabelValue> {
        "([a-zA-Z0-9]([a-zA-Z0-9._-]{0,8}[a-zA-Z0-9])?)?"
            .prop_map(|text| LabelValue::new(text).unwrap())
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let key = "([a-z]{1,5}[.][a-z]{1,3}/)?[a-zA-Z0-9]{1,8}";
        let key = key.prop_map(|text| LabelKey::new(text).unwrap());
        let values = || prop::collection::btree_set(value(), 1..4);
        let test = prop_oneof![
            values().prop_map(LabelTest::In),
            values().prop_map(LabelTest::NotIn),
            Just(LabelTest::Exists),
            Just(LabelTest::Missing),
        ];
        (key, test).prop_map(|(key, test)| Requirement { key, test })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_as_the_same(parts in prop::collection::vec(requirement(), 0..5)) {
            let selector = Selector::from(parts);
            let printed = selector.to_string();
            prop_assert_eq!(printed.parse::<Selector>(), Ok(selector), "{}", printed);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z=!,() .\\PC]{0,40}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(read(&selector.to_string()), selector);
            }
        }
    }
}
