//! Subjects of a binding: name patterns in which one `{user}` or `{claim}` stands for a name of the caller. They are
//! filled in when rights are evaluated, by the HTTP layer, which knows what the caller has proved.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use super::NamePattern;
use crate::id::{NameError, Subject};

/// Longest name of a claim in braces.
const MAX_CLAIM_BYTES: usize = 128;
/// Subject of steps that name none: no caller's name is filled in as this one.
const DEFAULT_SUBJECT: &str = "default";

/// Error for a subject that a binding cannot have, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a subject of a binding: {hint}", text.escape_debug())]
pub struct BindingSubjectError {
    text: String,
    hint: String,
}

/// Part of a caller's identity that stands in braces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerField {
    /// `{user}`: the name by which the caller was authenticated as a user.
    User,
    /// A claim of an issuer's token. Names of claims within others are written with dots.
    Claim(String),
}

/// A pattern of subjects, in which a field of the caller may stand in braces: `ml-*`, `{user}`, `team-{groups}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct BindingSubject {
    before: String,
    /// The field in braces; `None` if the pattern is the same for all callers.
    field: Option<CallerField>,
    after: String,
}

impl BindingSubject {
    /// The field of the caller that stands in braces.
    pub fn field(&self) -> Option<&CallerField> {
        self.field.as_ref()
    }

    /// The pattern for a caller whose field is `value`. A value is a literal name and never a pattern.
    ///
    /// # Errors
    /// The value, or the value with the text around it, is not the name of a subject, or is that of steps that name
    /// none.
    pub fn fill(&self, value: &str) -> Result<NamePattern, NameError> {
        if self.field.is_none() {
            return self.before.parse();
        }
        let refuse = |text: &str, rule| {
            Err(NameError {
                kind: "name of a caller's subject",
                text: text.to_owned(),
                rule,
            })
        };
        if Subject::new(value)?.is_everyone() {
            return refuse(value, "`*` stands for all subjects");
        }
        let whole = format!("{}{value}{}", self.before, self.after);
        if !whole.contains('*') {
            Subject::new(whole.as_str())?;
        }
        if whole == DEFAULT_SUBJECT {
            return refuse(&whole, "it is the subject of all steps that name none");
        }
        whole.parse()
    }
}

impl FromStr for BindingSubject {
    type Err = BindingSubjectError;

    fn from_str(text: &str) -> Result<Self, BindingSubjectError> {
        let error = |hint: &str| BindingSubjectError {
            text: text.chars().take(2 * MAX_CLAIM_BYTES).collect(),
            hint: hint.to_owned(),
        };
        let parts = text
            .split_once('{')
            .map(|(before, rest)| (before, rest.split_once('}')));
        let (before, name, after) = match parts {
            None if text.contains('}') => return Err(error("write `{` before the name")),
            None => (text, None, ""),
            Some((_, None)) => return Err(error("write `}` after the name")),
            Some((before, Some((name, after)))) => (before, Some(name), after),
        };
        if after.contains(['{', '}'])
            || before.contains('}')
            || name.is_some_and(|it| it.contains('{'))
        {
            return Err(error(
                "write one name in braces, such as `{user}` or `ml-{team}`",
            ));
        }
        if before.ends_with('*') && name.is_some() || after.starts_with('*') {
            return Err(error(
                "a `*` beside the braces would match names of other callers: write something between them, such as `{user}-*`",
            ));
        }
        let field = name.map(|name| field(name).ok_or_else(|| error(CLAIM_RULE)));
        let field = field.transpose()?;
        let around = if field.is_some() {
            format!("{before}a{after}")
        } else {
            before.to_owned()
        };
        around.parse::<NamePattern>().map_err(|e| error(e.rule))?;
        Ok(Self {
            before: before.to_owned(),
            field,
            after: after.to_owned(),
        })
    }
}

const CLAIM_RULE: &str = "write `{user}` for the caller's own name, or the name of a claim of the issuer's tokens in the braces, such as `{team}` or `{realm_access.roles}`";

fn field(name: &str) -> Option<CallerField> {
    let is_claim =
        (1..=MAX_CLAIM_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    match name {
        "user" => Some(CallerField::User),
        name => is_claim.then(|| CallerField::Claim(name.to_owned())),
    }
}

impl fmt::Display for BindingSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        match &self.field {
            None => {}
            Some(CallerField::User) => f.write_str("{user}")?,
            Some(CallerField::Claim(name)) => write!(f, "{{{name}}}")?,
        }
        f.write_str(&self.after)
    }
}

impl TryFrom<String> for BindingSubject {
    type Error = BindingSubjectError;
    fn try_from(text: String) -> Result<Self, BindingSubjectError> {
        text.parse()
    }
}

impl From<BindingSubject> for String {
    fn from(subject: BindingSubject) -> String {
        subject.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MAX_NAME_BYTES;

    fn filled(template: &str, value: &str) -> Option<String> {
        let template: BindingSubject = template.parse().unwrap();
        template.fill(value).ok().map(String::from)
    }

    #[test]
    fn a_name_of_the_caller_is_filled_in_as_it_is_and_never_as_a_pattern() {
        let long = "a".repeat(MAX_NAME_BYTES);
        for (template, value, pattern) in [
            ("{user}", "alice", Some("alice")),
            ("u-{user}", "alice", Some("u-alice")),
            ("{team}-*", "ml", Some("ml-*")),
            ("{realm_access.roles}.x", "ml", Some("ml.x")),
            ("ml-*", "whoever", Some("ml-*")),
            ("{user}", "*", None),
            ("{user}", "a*", None),
            ("{user}", "", None),
            ("{user}", "alice@lab", None),
            ("{user}", "{user}", None),
            ("{user}", "a/b", None),
            ("{user}", "default", None),
            ("de{user}", "fault", None),
            ("{user}-x", "default", Some("default-x")),
            ("{user}", &long, Some(&long)),
            ("u-{user}", &long, None),
        ] {
            assert_eq!(
                filled(template, value).as_deref(),
                pattern,
                "{template} {value}"
            );
        }
    }

    #[test]
    fn braces_that_cannot_be_filled_are_refused_with_the_way_out() {
        for (text, hint) in [
            ("{user", "write `}`"),
            ("user}", "write `{`"),
            ("{}", "{user}"),
            ("{{user}}", "one name in braces"),
            ("{org}-{team}", "one name in braces"),
            ("{a b}", "name of a claim"),
            ("{user}*", "other callers"),
            ("*{user}", "other callers"),
            ("a b", "1 to 63"),
            ("{user}/x", "1 to 63"),
            ("", "1 to 63"),
        ] {
            let error = text.parse::<BindingSubject>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
        for text in [
            "*",
            "ml-*",
            "{user}",
            "a-{https://id.example/team}",
            "{a.b}-*",
        ] {
            let read: BindingSubject = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
    }
}
