//! Environment variables of a step. A separate type so that its `Debug` output, and thereby any log, shows names but
//! not values, which may be secrets.

use core::fmt;
use core::ops::{Deref, DerefMut};

use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Placeholder for a hidden value.
pub const HIDDEN: &str = "***";

/// Environment variables by name; serialized as a plain map.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The same names with [`HIDDEN`] as values.
    #[must_use]
    pub fn hidden(&self) -> Self {
        let names = self.0.keys().cloned();
        names.map(|name| (name, String::from(HIDDEN))).collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = format_args!("{HIDDEN}");
        f.debug_map()
            .entries(self.0.keys().map(|name| (name, hidden)))
            .finish()
    }
}

impl Deref for Environment {
    type Target = BTreeMap<String, String>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Environment {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<BTreeMap<String, String>> for Environment {
    fn from(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }
}

impl<const N: usize> From<[(String, String); N]> for Environment {
    fn from(variables: [(String, String); N]) -> Self {
        Self(variables.into())
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl IntoIterator for Environment {
    type Item = (String, String);
    type IntoIter = alloc::collections::btree_map::IntoIter<String, String>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Environment {
    type Item = (&'a String, &'a String);
    type IntoIter = alloc::collections::btree_map::Iter<'a, String, String>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn names_are_printed_and_values_are_not() {
        let environment = Environment::from([("PASSWORD".into(), "hunter2".into())]);
        assert_eq!(format!("{environment:?}"), r#"{"PASSWORD": ***}"#);
    }

    #[test]
    fn it_is_written_and_read_as_a_map() {
        let environment = Environment::from([("A".into(), "b".into())]);
        let text = serde_json::to_string(&environment).unwrap();
        assert_eq!(text, r#"{"A":"b"}"#);
        assert_eq!(
            serde_json::from_str::<Environment>(&text).unwrap(),
            environment
        );
    }
}
