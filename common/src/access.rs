//! Access control vocabulary: verbs and resources, rules, roles, and the members that roles are given to.
//! `access/evaluate.rs` decides queries, `access/builtin.rs` defines the built-in roles.
//!
//! The coordinator's HTTP layer queries it for each call; its core stores roles, bindings and tokens. Authentication
//! (who a caller is, what a token or a certificate proves) is the HTTP layer's.

mod binding_subject;
mod builtin;
mod evaluate;
mod name_pattern;

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{MAX_NAME_BYTES, RoleName, TokenName, UserName};
use crate::nearest::nearest;
use crate::time::Time;

pub use binding_subject::{BindingSubject, BindingSubjectError, CallerField};
pub use builtin::{BUILT_IN_ROLES, built_in_role, is_reserved, pool_roles};
pub use evaluate::{AccessQuery, Decision, Scope, decide};
pub use name_pattern::NamePattern;

/// Error for a word that is not in a closed list, with a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a {kind}: {hint}", word.escape_debug())]
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
            /// All values, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name as the API writes it.
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
    /// Actions that a caller may perform on a resource.
    Verb, "verb" {
        /// Read one object.
        Get = "get",
        /// List all objects of a kind.
        List = "list",
        /// Create an object; for steps, submit.
        Create = "create",
        /// Change an object.
        Update = "update",
        /// Delete an object or revoke a token.
        Delete = "delete",
        /// Cancel a step.
        Cancel = "cancel",
        /// Suspend a step.
        Suspend = "suspend",
        /// Resume a step.
        Resume = "resume",
        /// Stop a step and queue it again.
        Requeue = "requeue",
        /// Close a node to new work.
        Cordon = "cordon",
        /// Open a node to new work.
        Uncordon = "uncordon",
        /// Close a node and empty it of steps.
        Drain = "drain",
        /// Set labels of a node.
        Label = "label",
        /// Move a node, or a step that waits, to another pool.
        Move = "move",
        /// Revoke the access of a node.
        Revoke = "revoke",
    }
);

keywords!(
    /// Kinds of objects that access is controlled for.
    Resource, "resource" {
        /// Steps and their explanations.
        Steps = "steps",
        /// Output of steps.
        StepLogs = "steps/logs",
        /// Programs run inside a step's attempt (`exec`).
        StepExec = "steps/exec",
        /// Values of steps' environment variables.
        StepEnv = "steps/env",
        /// Pools and their specs.
        Pools = "pools",
        /// Policies of subjects in pools.
        Policies = "policies",
        /// Nodes (hosts with an agent).
        Nodes = "nodes",
        /// Settings of the cluster as a whole.
        Cluster = "cluster",
        /// The event stream. Access to each event is also checked against the object that it is about.
        Events = "events",
        /// Audit events: who did what.
        Audit = "audit",
        /// Roles and their rules.
        Roles = "roles",
        /// Bindings of members to roles.
        Bindings = "bindings",
        /// Tokens for calling the API.
        ApiTokens = "api-tokens",
        /// Tokens for joining hosts.
        JoinTokens = "join-tokens",
        /// Platforms (kinds of hardware).
        Platforms = "platforms",
        /// Templates for steps.
        Templates = "templates",
        /// Validation rules for submitted steps.
        Validations = "validations",
    }
);

/// A keyword, or `*` for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOrAll<T> {
    /// Every keyword (`*`).
    All,
    /// Only this keyword.
    One(T),
}

impl<T: PartialEq> OneOrAll<T> {
    /// Whether `word` is covered.
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

/// Effect of an access rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The rule grants the right.
    Allow,
    /// The rule denies the right, overriding every rule that allows it.
    Deny,
}

/// One rule of a role. An empty list of pools or subjects means all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// Whether the rule allows or denies.
    pub effect: Effect,
    /// Actions, such as `get` or `cancel`; `*` is every action.
    pub verbs: Vec<OneOrAll<Verb>>,
    /// Kinds of objects, such as `steps` or `steps/logs`; `*` is every kind.
    pub resources: Vec<OneOrAll<Resource>>,
    /// Pools that the rule applies to; patterns such as `train-*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// Subjects that the rule applies to; patterns such as `prod-*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<NamePattern>,
}

/// Spec of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RoleTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct RoleSpec {
    /// Free text for people.
    pub description: String,
    /// Rules in any order: a rule that denies overrides every rule that allows.
    pub rules: Vec<AccessRule>,
}

/// A role, optionally limited to some pools and subjects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleGrant {
    /// Name of the role.
    pub role: RoleName,
    /// Limits the role to these pools. Empty means every pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// Limits the role to these subjects. Empty means every subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<NamePattern>,
}

/// A caller, or set of callers, that roles are given to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Member {
    /// Callers that present the API token of this name.
    Token(TokenName),
    /// Callers that present a certificate of this user.
    Certificate(String),
    /// Callers that present an issuer's token with all these claims. A claim that is a list must contain the value.
    Claims(BTreeMap<String, String>),
    /// Callers that a certificate or an issuer's token names as this user; `*` is every user.
    User(OneOrAll<UserName>),
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
            Member::User(OneOrAll::All) => f.write_str("user *"),
            Member::User(OneOrAll::One(user)) => write!(f, "user {user}"),
        }
    }
}

/// Spec of a binding: roles and the members that get them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BindingTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct BindingSpec {
    /// Free text for people.
    pub description: String,
    /// Roles that the members get.
    pub roles: Vec<RoleName>,
    /// Limits the roles to these pools. Empty means every pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<NamePattern>,
    /// Limits the roles to these subjects. Empty means every subject. `{user}` stands for the member's own name, and
    /// `{CLAIM}` for each value of a claim of the member's token; a member without a name that a subject can have gets
    /// nothing there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<BindingSubject>,
    /// Members that get the roles.
    pub members: Vec<Member>,
}

impl BindingSpec {
    /// The grants of a member whose names make `subjects` of those of the binding. There are none if none of them can
    /// be filled in, because an empty list would mean every subject.
    pub fn grants(&self, subjects: &[NamePattern]) -> Vec<RoleGrant> {
        if subjects.is_empty() && !self.subjects.is_empty() {
            return Vec::new();
        }
        let roles = self.roles.iter().map(|role| RoleGrant {
            role: role.clone(),
            pools: self.pools.clone(),
            subjects: subjects.to_vec(),
        });
        roles.collect()
    }
}

/// SHA-256 of a token in hex. The token itself is not stored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct TokenDigest(String);

impl TokenDigest {
    /// Formats a SHA-256 hash.
    pub fn from_hash(hash: &[u8; 32]) -> Self {
        Self(crate::hex::encode(hash))
    }

    /// Placeholder for a digest that is not shown.
    pub fn hidden() -> Self {
        Self(crate::environment::HIDDEN.to_string())
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

/// A stored API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "KeptApiToken")
)]
pub struct ApiToken {
    /// Digest that identifies the token.
    pub digest: TokenDigest,
    /// Roles of the token itself; bindings may add more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<RoleGrant>,
    /// User recorded as submitter of what is submitted with the token; `None` for tokens of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    /// The caller who created the token.
    pub created_by: String,
    /// Time when the token expires; `None` if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Audit record of one call, allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// The caller, such as `token/ci`, `certificate/alice` or `nobody`.
    pub who: String,
    /// Network address of the caller.
    pub from: String,
    /// Action of the call.
    pub verb: Verb,
    /// Kind of object that the call addressed.
    pub resource: Resource,
    /// Name of the object, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the call was allowed. Its outcome is in other events.
    pub allowed: bool,
    /// Error code of a refused call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_none_is_answered_with_the_nearest() {
        let error = "gett".parse::<Verb>().unwrap_err().to_string();
        assert_eq!(error, "`gett` is not a verb: did you mean `get`?");
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
