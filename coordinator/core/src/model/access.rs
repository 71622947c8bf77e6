//! Stored access: roles and bindings as an admin wrote them, and API tokens without their secrets.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::access::{ApiToken, BindingSpec, RoleGrant, RoleSpec, built_in_role};
use sluice_common::id::{BindingName, RoleName, TokenName};
use sluice_common::time::Time;

/// Roles, bindings and API tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Roles that a caller wrote, by name.
    pub roles: BTreeMap<RoleName, Versioned<RoleSpec>>,
    /// Bindings, by name.
    pub bindings: BTreeMap<BindingName, Versioned<BindingSpec>>,
    /// API tokens, by name; also expired ones, until a caller revokes them.
    pub tokens: BTreeMap<TokenName, StoredToken>,
}

/// A document with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// The document as it was written.
    pub terms: T,
    /// Number of the record that set it last.
    pub version: u64,
}

/// An API token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredToken {
    #[serde(flatten)]
    pub token: ApiToken,
    pub created_at: Time,
}

/// A change of roles, bindings or API tokens: both the request and the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum AccessChange {
    /// A role was set.
    RolePut { role: RoleName, terms: RoleSpec },
    /// A role was deleted.
    RoleDeleted { role: RoleName },
    /// A binding was set.
    BindingPut {
        binding: BindingName,
        terms: BindingSpec,
    },
    /// A binding was deleted.
    BindingDeleted { binding: BindingName },
    /// An API token was made.
    ApiTokenCreated { token: TokenName, terms: ApiToken },
    /// An API token was revoked.
    ApiTokenRevoked { token: TokenName },
}

impl AccessChange {
    /// The name of the changed object in messages.
    pub fn about(&self) -> String {
        match self {
            AccessChange::RolePut { role, .. } | AccessChange::RoleDeleted { role } => {
                format!("role `{role}`")
            }
            AccessChange::BindingPut { binding, .. } | AccessChange::BindingDeleted { binding } => {
                format!("binding `{binding}`")
            }
            AccessChange::ApiTokenCreated { token, .. }
            | AccessChange::ApiTokenRevoked { token } => format!("API token `{token}`"),
        }
    }
}

impl Access {
    /// Whether there are no roles, bindings and tokens.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The contents of a role: one that a caller wrote, or a built-in one.
    pub fn role(
        &self,
        role: &RoleName,
        pool_exists: impl FnOnce(&str) -> bool,
    ) -> Option<RoleSpec> {
        let written = self.roles.get(role).map(|it| it.terms.clone());
        written.or_else(|| built_in_role(role, pool_exists))
    }

    /// Applies a change; `false` if it does not fit.
    pub(crate) fn fold(&mut self, at: Time, seq: u64, change: &AccessChange) -> bool {
        let version = seq;
        match change.clone() {
            AccessChange::RolePut { role, terms } => {
                self.roles.insert(role, Versioned { terms, version });
                true
            }
            AccessChange::RoleDeleted { role } => self.roles.remove(&role).is_some(),
            AccessChange::BindingPut { binding, terms } => {
                self.bindings.insert(binding, Versioned { terms, version });
                true
            }
            AccessChange::BindingDeleted { binding } => self.bindings.remove(&binding).is_some(),
            AccessChange::ApiTokenCreated { token, terms } => {
                let stored = StoredToken {
                    token: terms,
                    created_at: at,
                };
                self.tokens.insert(token, stored).is_none()
            }
            AccessChange::ApiTokenRevoked { token } => self.tokens.remove(&token).is_some(),
        }
    }

    /// The first token or binding that gives the role to a caller.
    pub(crate) fn giver_of(&self, role: &RoleName) -> Option<String> {
        let names = |grants: &[RoleGrant]| grants.iter().any(|grant| grant.role == *role);
        let token = self.tokens.iter().find(|(_, it)| names(&it.token.grants));
        let binding = || {
            let mut all = self.bindings.iter();
            all.find(|(_, it)| it.terms.roles.contains(role))
        };
        let token = token.map(|(name, _)| format!("API token `{name}`"));
        token.or_else(|| binding().map(|(name, _)| format!("binding `{name}`")))
    }
}
