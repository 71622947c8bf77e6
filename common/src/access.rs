//! Who may do what, in words: verbs and resources, rules made of them, roles made of rules, and what gives a role to
//! somebody. `access/evaluate.rs` is what they mean, `access/builtin.rs` the roles that are always there.
//!
//! The coordinator's edge asks for each call; its core keeps roles, bindings and tokens. Who a caller is, and what a
//! token or a certificate proves, is the edge's business.

mod builtin;
mod evaluate;

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{MAX_NAME_BYTES, NameError, RoleName, TokenName, UserName};
use crate::nearest::nearest;
use crate::time::Time;

pub use builtin::{BUILT_IN_ROLES, built_in_role, is_reserved, pool_roles};
pub use evaluate::{AccessQuery, Decision, Scope, decide};

/// A word that is none of those that there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no {kind}: {hint}", word.escape_debug())]
pub struct UnknownKeyword {
    kind: &'static str,
    word: String,
    hint: String,
}

impl UnknownKeyword {
    fn new(kind: &'static str, word: &str, known: impl Iterator<Item = &'static str>) -> Self {
        let known: Vec<&str> = known.collect();
        let hint = match nearest(word, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", known.join(", ")),
        };
        let word = word.chars().take(MAX_NAME_BYTES).collect();
        Self { kind, word, hint }
    }
}

macro_rules! keywords {
    ($(#[$doc:meta])* $type:ident, $kind:literal { $($(#[doc = $about:literal])+ $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        pub enum $type {
            $($(#[doc = $about])+ $variant,)*
        }

        impl $type {
            /// Every one that there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = UnknownKeyword;
            fn from_str(text: &str) -> Result<Self, UnknownKeyword> {
                let found = Self::ALL.iter().find(|it| it.as_str() == text);
                let all = || Self::ALL.iter().map(|it| it.as_str());
                found.copied().ok_or_else(|| UnknownKeyword::new($kind, text, all()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = UnknownKeyword;
            fn try_from(text: String) -> Result<Self, UnknownKeyword> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(word: $type) -> String {
                word.as_str().to_owned()
            }
        }
    };
}

keywords!(
    /// What is done to something.
    Verb, "verb" {
        /// See one.
        Get = "get",
        /// See those that there are.
        List = "list",
        /// Make one; of steps: submit it.
        Create = "create",
        /// Change what it is.
        Update = "update",
        /// Delete it, or take it back.
        Delete = "delete",
        /// End a step.
        Cancel = "cancel",
        /// Freeze a step.
        Suspend = "suspend",
        /// Let a step go on.
        Resume = "resume",
        /// Have a step start anew.
        Requeue = "requeue",
        /// Close a node to new work.
        Cordon = "cordon",
        /// Open a node to new work.
        Uncordon = "uncordon",
        /// Empty a node.
        Drain = "drain",
        /// Set labels of a node.
        Label = "label",
        /// Move a node to another pool.
        Move = "move",
        /// End the access of a node.
        Revoke = "revoke",
    }
);

keywords!(
    /// To what something is done.
    Resource, "resource" {
        /// What was submitted, and why it is where it is.
        Steps = "steps",
        /// What steps wrote.
        StepLogs = "steps/logs",
        /// Programs beside steps.
        StepExec = "steps/exec",
        /// The values of the variables that steps are given.
        StepEnv = "steps/env",
        /// Pools and their terms.
        Pools = "pools",
        /// Who may use a pool, and how.
        Policies = "policies",
        /// Hosts.
        Nodes = "nodes",
        /// The terms of the cluster as a whole.
        Cluster = "cluster",
        /// What happened; each event is also judged by what it is about.
        Events = "events",
        /// Who did what: a kind of event.
        Audit = "audit",
        /// Roles.
        Roles = "roles",
        /// Who has which role.
        Bindings = "bindings",
        /// Tokens by which programs call.
        ApiTokens = "api-tokens",
        /// Tokens by which hosts join.
        JoinTokens = "join-tokens",
        /// Kinds of hardware.
        Platforms = "platforms",
        /// Templates of steps.
        Templates = "templates",
        /// Rules that what is submitted must keep.
        Validations = "validations",
    }
);

/// A word, or `*` for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOrAll<T> {
    /// Any.
    All,
    /// This one.
    One(T),
}

impl<T: PartialEq> OneOrAll<T> {
    /// Whether it takes this one.
    pub fn matches(&self, word: &T) -> bool {
        match self {
            OneOrAll::All => true,
            OneOrAll::One(this) => this == word,
        }
    }
}

impl<T: FromStr> FromStr for OneOrAll<T> {
    type Err = T::Err;
    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            "*" => Ok(OneOrAll::All),
            text => Ok(OneOrAll::One(text.parse()?)),
        }
    }
}

impl<T: Serialize> Serialize for OneOrAll<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            OneOrAll::All => serializer.serialize_str("*"),
            OneOrAll::One(word) => word.serialize(serializer),
        }
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for OneOrAll<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl<T> schemars::JsonSchema for OneOrAll<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        "Word".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        <String as schemars::JsonSchema>::json_schema(generator)
    }
}

/// A name, in which each `*` stands for any text, also for none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

impl NamePattern {
    /// Whether it takes this name.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or("");
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Whether it takes every name.
    pub fn matches_all(&self) -> bool {
        self.0.bytes().all(|b| b == b'*')
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'*');
        if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(byte) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError {
            kind: "pattern of names",
            text: text.to_owned(),
            rule: "use 1 to 63 letters, digits, `-`, `_`, `.`, and `*` for any text",
        })
    }
}

impl TryFrom<String> for NamePattern {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> String {
        pattern.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It gives a right.
    Allow,
    /// It takes a right away, whatever else gives it.
    Deny,
}

/// A rule of a role. An empty list of pools or subjects is any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// Whether it gives or takes.
    pub effect: Effect,
    /// What may be done, such as `get` or `cancel`; `*` is everything.
    pub verbs: Vec<OneOrAll<Verb>>,
    /// To what, such as `steps` or `steps/logs`; `*` is everything.
    pub resources: Vec<OneOrAll<Resource>>,
    /// In which pools; patterns such as `train-*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// Of which subjects; patterns such as `prod-*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<NamePattern>,
}

/// What a role is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RoleTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct RoleSpec {
    /// For people.
    pub description: String,
    /// Its rules. Their order does not matter: one that denies wins.
    pub rules: Vec<AccessRule>,
}

/// A role, perhaps for some pools and subjects alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleGrant {
    /// Which role.
    pub role: RoleName,
    /// For these pools alone; for any where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// For these subjects alone; for any where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<NamePattern>,
}

/// Somebody to whom roles are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Member {
    /// Whoever shows the API token of this name.
    Token(TokenName),
    /// Whoever shows a certificate of this user.
    Certificate(String),
    /// Whoever shows an issuer's token with these claims, each with this value or with it among several.
    Claims(BTreeMap<String, String>),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Member::Token(token) => write!(f, "token {token}"),
            Member::Certificate(user) => write!(f, "certificate {user}"),
            Member::Claims(claims) => {
                let claims = claims.iter().map(|(name, value)| format!("{name}={value}"));
                write!(f, "claims {}", claims.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// What a binding is: roles, and to whom they are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BindingTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct BindingSpec {
    /// For people.
    pub description: String,
    /// The roles.
    pub roles: Vec<RoleName>,
    /// For these pools alone; for any where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// For these subjects alone; for any where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<NamePattern>,
    /// To whom they are given.
    pub members: Vec<Member>,
}

impl BindingSpec {
    /// What it gives to each of its members.
    pub fn grants(&self) -> impl Iterator<Item = RoleGrant> {
        self.roles.iter().map(|role| RoleGrant {
            role: role.clone(),
            pools: self.pools.clone(),
            subjects: self.subjects.clone(),
        })
    }
}

/// The SHA-256 of a token, in hex. The token itself is kept nowhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct TokenDigest(String);

impl TokenDigest {
    /// Of these bytes, which a hash function made.
    pub fn from_hash(hash: &[u8; 32]) -> Self {
        Self(crate::hex::encode(hash))
    }

    /// In place of one that is not told.
    pub fn hidden() -> Self {
        Self(crate::environment::HIDDEN.to_string())
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "KeptApiToken")
)]
pub struct ApiToken {
    /// By which it is known again.
    pub digest: TokenDigest,
    /// What it may do, beside what bindings give it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<RoleGrant>,
    /// The user who submits what is submitted with it; `None` if it is nobody's, such as a program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    /// Who had it made.
    pub created_by: String,
    /// From when on it is worth nothing; never where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Who did what from where, or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Who, such as `token/ci`, `certificate/alice` or `nobody`.
    pub who: String,
    /// From which address.
    pub from: String,
    /// What was done.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
    /// Which, where it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it was allowed. What became of it then is told by other events.
    pub allowed: bool,
    /// The code of the refusal, where it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, takes) in [
            ("*", "x", true),
            ("train", "train", true),
            ("train", "training", false),
            ("train*", "training", true),
            ("*-prod", "a-prod", true),
            ("*-prod", "a-prod2", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            let read: NamePattern = pattern.parse().unwrap();
            assert_eq!(read.matches(name), takes, "{pattern} {name}");
        }
        for bad in ["", "a b", "a/b", "\u{1b}[2J", &"x".repeat(64)] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_word_that_is_none_is_answered_with_the_nearest() {
        let error = "gett".parse::<Verb>().unwrap_err().to_string();
        assert_eq!(error, "`gett` is no verb: did you mean `get`?");
        let error = serde_json::from_str::<AccessRule>(
            r#"{"effect":"allow","verbs":["*"],"resources":["step"]}"#,
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("did you mean `steps`?"), "{error}");
    }

    #[test]
    fn a_role_is_read_and_written_as_it_stands() {
        let text = r#"{"description":"","rules":[{"effect":"deny","verbs":["*"],"resources":["steps/env"],"pools":["a*"]}]}"#;
        let terms: RoleSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&terms).unwrap(), text);
    }
}
