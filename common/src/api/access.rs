//! API tokens, roles, bindings and the caller's own identity, as the API shows them.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::{AccessRule, BindingSubject, Member, NamePattern, RoleGrant};
use crate::id::RoleName;

/// Request to create an API token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApiTokenRequest {
    /// Token name, unique in the cluster.
    pub name: String,
    /// Roles of the token.
    pub roles: Vec<String>,
    /// Limits the roles to these pools; patterns such as `train-*`. Empty means every pool.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Limits the roles to these subjects; patterns such as `prod-*`. Empty means every subject, which a submitter's
    /// token may not have.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// User recorded as submitter of what is submitted with the token; a host may run those steps as its own user of
    /// that name. An admin may name any user, other callers only themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Lifetime of the token, such as `30d`; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// An API token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ApiToken")
)]
pub struct ApiTokenView {
    /// Token name, unique in the cluster.
    pub name: String,
    /// Roles of the token itself; bindings may add more.
    pub grants: Vec<RoleGrant>,
    /// User recorded as submitter of what is submitted with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The caller who created the token.
    pub created_by: String,
    /// Time when the token was created.
    pub created_at: Timestamp,
    /// Time when the token expires; `null` if never.
    pub expires_at: Option<Timestamp>,
    /// Whether the token has expired.
    pub expired: bool,
}

/// A newly created API token with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApiTokenCreated {
    /// The token without its secret.
    pub token: ApiTokenView,
    /// Value for `Authorization: Bearer`. Returned only here and not stored.
    pub secret: String,
}

/// Identity and rights of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "WhoAmI")
)]
pub struct WhoAmIView {
    /// The caller as events name it: `local`, `admin`, `token/NAME`, `certificate/USER` or `claims/NAME`.
    pub who: String,
    /// Name of the caller, if any.
    pub name: Option<String>,
    /// User recorded as submitter of the caller's steps, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether the caller may do everything.
    pub unbounded: bool,
    /// Roles granted to the caller by its token and by bindings, with the caller's names filled in.
    pub grants: Vec<RoleGrant>,
    /// Subjects of bindings that give the caller nothing, because it has no such name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfilled: Vec<MissingSubject>,
    /// The subject that the caller may submit for, if it is exactly one. The command line submits for it if neither a
    /// flag nor the context names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submits_for: Option<String>,
    /// Time when the caller's credential expires; `null` if never or unknown.
    pub expires_at: Option<Timestamp>,
}

/// A subject with a field of the caller in braces that cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingSubject {
    /// Roles that the caller does not get for it.
    pub roles: Vec<RoleName>,
    /// The subject as the binding has it.
    pub subject: BindingSubject,
    /// The reason, with the caller's name.
    pub why: String,
}

/// Whether the caller may perform an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "CanI")
)]
pub struct CanIView {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// Reason why the action is not allowed.
    pub why: Option<String>,
}

/// A role as the API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Role")
)]
pub struct RoleView {
    /// Role name, unique in the cluster.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Rules of the role. A rule that denies overrides every rule that allows.
    pub rules: Vec<AccessRule>,
    /// Whether the role is built in and cannot be changed.
    pub built_in: bool,
    /// Version of the role; 0 if built in.
    pub version: u64,
}

/// A binding: members and the roles given to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Binding")
)]
pub struct BindingView {
    /// Binding name, unique in the cluster.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Roles that the members get.
    pub roles: Vec<RoleName>,
    /// Limits the roles to these pools. Empty means every pool.
    pub pools: Vec<NamePattern>,
    /// Limits the roles to these subjects. Empty means every subject. `{user}` and `{CLAIM}` stand for names of each
    /// member.
    pub subjects: Vec<BindingSubject>,
    /// Members that get the roles.
    pub members: Vec<Member>,
    /// Version of the binding.
    pub version: u64,
}
