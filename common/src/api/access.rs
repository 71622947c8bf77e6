//! Who may call: tokens, and what somebody may ask of himself.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::{AccessRule, Member, NamePattern, RoleGrant};
use crate::id::RoleName;

/// A token to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApiTokenRequest {
    /// Unique in the cluster.
    pub name: String,
    /// The roles that it has.
    pub roles: Vec<String>,
    /// In these pools alone; patterns such as `train-*`. In any where it is empty.
    #[serde(default)]
    pub pools: Vec<String>,
    /// For these subjects alone; patterns such as `prod-*`. For any where it is empty, which a submitter's may not be.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// The user who submits what is submitted with it: a host may run those steps as its own user of that name. An admin
    /// may name anybody, and everybody else themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// After how long it is worth nothing any more, such as `30d`; never where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "ApiToken")
)]
pub struct ApiTokenView {
    /// Unique in the cluster.
    pub name: String,
    /// What it has by itself; bindings may give it more.
    pub grants: Vec<RoleGrant>,
    /// The user who submits what is submitted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Who had it made.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// From when on it is worth nothing; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// Whether that has come.
    pub expired: bool,
}

/// A token that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApiTokenCreated {
    /// What it is.
    pub token: ApiTokenView,
    /// What to show as `Authorization: Bearer`. It is told once, here, and kept nowhere.
    pub secret: String,
}

/// Who a caller is taken for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "WhoAmI")
)]
pub struct WhoAmIView {
    /// As events call him: `local`, `admin`, `token/NAME`, `certificate/USER` or `claims/NAME`.
    pub who: String,
    /// His name, where he has one.
    pub name: Option<String>,
    /// The user by whom his steps are submitted, if he is known as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether he may do everything.
    pub unbounded: bool,
    /// What was given to him, by his token and by bindings.
    pub grants: Vec<RoleGrant>,
    /// From when on what he shows is worth nothing; `None` is never, or not known.
    pub expires_at: Option<Timestamp>,
}

/// Whether a caller may do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "CanI")
)]
pub struct CanIView {
    /// Whether.
    pub allowed: bool,
    /// Why not.
    pub why: Option<String>,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Role")
)]
pub struct RoleView {
    /// Unique in the cluster.
    pub name: String,
    /// For people.
    pub description: String,
    /// Its rules. One that denies wins over all that allow.
    pub rules: Vec<AccessRule>,
    /// Whether it is always there, as it is.
    pub built_in: bool,
    /// What it is now; 0 of one that is built in.
    pub version: u64,
}

/// Who has which roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Binding")
)]
pub struct BindingView {
    /// Unique in the cluster.
    pub name: String,
    /// For people.
    pub description: String,
    /// The roles.
    pub roles: Vec<RoleName>,
    /// In these pools alone; in any where it is empty.
    pub pools: Vec<NamePattern>,
    /// For these subjects alone; for any where it is empty.
    pub subjects: Vec<NamePattern>,
    /// To whom they are given.
    pub members: Vec<Member>,
    /// What it is now.
    pub version: u64,
}
