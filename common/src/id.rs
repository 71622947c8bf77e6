//! Names and ids. Each kind is a type of its own, and a value that exists is well-formed: ids become file names,
//! environment values and table cells, so nothing that could climb a path or move a cursor gets in.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

/// The longest name or id, in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a valid {kind}: {rule}", shown(text))]
pub struct NameError {
    /// What kind of name was wanted, such as `pool name`.
    pub kind: &'static str,
    /// What was written.
    pub text: String,
    /// The rule, in words.
    pub rule: &'static str,
}

/// A text as it may stand in a message: cut, and without anything that a terminal would obey.
fn shown(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(MAX_NAME_BYTES)
        .flat_map(char::escape_default)
        .collect();
    if text.chars().count() > MAX_NAME_BYTES {
        out.push_str("...");
    }
    out
}

/// The longest name of a user, in bytes. Issuers know people by addresses of mail.
pub const MAX_USER_BYTES: usize = 128;

const RULE: &str =
    "use 1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";

fn check(kind: &'static str, text: &str) -> Result<(), NameError> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if first && rest && text.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: RULE,
    })
}

const USER_RULE: &str = "use 1 to 128 letters, digits, `-`, `_`, `.`, `@`, `+`, `:` and `|`, beginning with a letter, a digit or `_`";

fn check_user(kind: &'static str, text: &str) -> Result<(), NameError> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_rest = |b: u8| is_word(b) || matches!(b, b'-' | b'.' | b'@' | b'+' | b':' | b'|');
    let first = text.bytes().next().is_some_and(is_word);
    if first && text.bytes().all(is_rest) && text.len() <= MAX_USER_BYTES {
        return Ok(());
    }
    Err(NameError {
        kind,
        text: text.to_owned(),
        rule: USER_RULE,
    })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal $(, $also:literal)?) => {
        name!($(#[$doc])* $type, $kind, by check $(, $also)?);
    };
    ($(#[$doc:meta])* $type:ident, $kind:literal, by $check:ident $(, $also:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks `text`.
            ///
            /// # Errors
            /// Where it is empty, too long or holds a character outside the rule, which the error states.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                let named_apart = false $(|| text == $also)?;
                if !named_apart {
                    $check($kind, &text)?;
                }
                Ok(Self(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

name!(
    /// A step, unique in its cluster; chosen by the client or drawn by the coordinator's edge.
    StepId, "step id");
name!(
    /// A host with an agent, unique in its cluster.
    NodeName, "node name");
name!(
    /// A named group of nodes.
    PoolName, "pool name");
name!(
    /// A kind of hardware, such as `h100` or `cpu`.
    PlatformName, "platform name");
name!(
    /// On whose behalf steps are submitted: an orchestrator, a step operator, a person. `*` is nobody's name: its policy
    /// is that of each who has none.
    Subject, "subject", "*");
name!(
    /// A person or program whom the coordinator has authenticated, as a certificate, an issuer or an admin names them.
    UserName, "user name", by check_user);
name!(
    /// The name of a template.
    TemplateName,
    "template name"
);
name!(
    /// One coordinator's realm; drawn once, when its data directory is made.
    ClusterId, "cluster id");
name!(
    /// One boot of one host, as its kernel names it.
    BootId, "boot id");
name!(
    /// A document of assertions over what is submitted.
    ValidationName, "validation name");
name!(
    /// A join token, by which admins speak of it; not its secret.
    JoinTokenId, "join token id");

name!(
    /// What somebody may do.
    RoleName, "role name");
name!(
    /// Who has which roles.
    BindingName, "binding name");
name!(
    /// A token by which a program calls.
    TokenName, "token name");

impl Subject {
    /// Whoever has no policy of his own.
    pub const EVERYONE: &str = "*";

    /// Whether it stands for whoever has no policy of his own.
    pub fn is_everyone(&self) -> bool {
        self.0 == Self::EVERYONE
    }
}

/// One execution of a step: the step's id and a number counted from 1. Written `ID.NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct AttemptId {
    /// Whose execution.
    pub step: StepId,
    /// Which one, from 1.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.step, self.number))
    }
}

impl FromStr for AttemptId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError {
            kind: "attempt id",
            text: text.to_owned(),
            rule: "write the step's id, a dot and the number of the attempt, from 1",
        };
        let (step, digits) = text.rsplit_once('.').ok_or_else(error)?;
        let number = digits.parse::<u32>().map_err(|_| error())?;
        // One attempt has one spelling: `a.01` and `a.+1` would be second names for the same directory.
        if number == 0 || number.to_string() != digits {
            return Err(error());
        }
        Ok(Self {
            step: StepId::new(step)?,
            number,
        })
    }
}

impl TryFrom<String> for AttemptId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<AttemptId> for String {
    fn from(id: AttemptId) -> String {
        id.to_string()
    }
}

/// Which start of which cluster's coordinator speaks. The counter is committed one higher at each start, so of two
/// coordinators that claim one cluster, a host obeys the later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Epoch {
    /// The realm.
    pub cluster: ClusterId,
    /// Starts of its coordinator so far, from 1.
    pub counter: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_climb_a_path_or_move_a_cursor_are_refused() {
        for text in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-rf",
            "a b",
            "a\u{1b}[2J",
            "ä",
            "a\0",
            &"x".repeat(64),
        ] {
            assert!(StepId::new(text).is_err(), "{text:?}");
        }
        for text in ["a", "0", "train-1.2_b", &"x".repeat(63)] {
            assert!(StepId::new(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_refusal_shows_the_text_harmlessly() {
        let message = PoolName::new("a\u{1b}[2J").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'));
        assert!(message.contains("pool name"), "{message}");
    }

    #[test]
    fn an_attempt_has_one_spelling() {
        let id: AttemptId = "train.v2.7".parse().unwrap();
        assert_eq!((id.step.as_str(), id.number), ("train.v2", 7));
        assert_eq!(id.to_string(), "train.v2.7");
        for text in [
            "train", "train.", "train.0", "train.01", "train.+1", ".1", "train.-1",
        ] {
            assert!(text.parse::<AttemptId>().is_err(), "{text}");
        }
    }
}
