//! Stored access: roles and bindings as an admin wrote them, and API tokens without their secrets.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::access::{ApiToken, BindingSpec, RoleGrant, RoleSpec, built_in_role};
use sluice_common::id::{BindingName, RoleName, TokenName};
use sluice_common::time::Time;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Roles that a caller wrote, by name.
    pub roles: BTreeMap<RoleName, Versioned<RoleSpec>>,
    /// Bindings, by name.
    pub bindings: BTreeMap<BindingName, Versioned<BindingSpec>>,
    /// API tokens, by name; those that have expired too, until a caller revokes them.
    pub tokens: BTreeMap<TokenName, StoredToken>,
}

/// A document, and since when it is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// As it was written.
    pub terms: T,
    /// The number of the record that set it last.
    pub version: u64,
}

/// An API token that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredToken {
    #[serde(flatten)]
    pub token: ApiToken,
    /// When it was made.
    pub created_at: Time,
}

/// What changes of who may do what: the wish and the fact are of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum AccessChange {
    /// A role is this and no other.
    RolePut { role: RoleName, terms: RoleSpec },
    /// There is no such role.
    RoleDeleted { role: RoleName },
    /// A binding is this and no other.
    BindingPut {
        binding: BindingName,
        terms: BindingSpec,
    },
    /// There is no such binding.
    BindingDeleted { binding: BindingName },
    /// A program may call by this token.
    ApiTokenCreated { token: TokenName, terms: ApiToken },
    /// Nobody may call by this token any more.
    ApiTokenRevoked { token: TokenName },
}

impl AccessChange {
    /// What it changes, as messages call it.
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
    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a role is: one that a caller wrote, or one that is always there.
    pub fn role(&self, role: &RoleName, there: impl FnOnce(&str) -> bool) -> Option<RoleSpec> {
        let written = self.roles.get(role).map(|it| it.terms.clone());
        written.or_else(|| built_in_role(role, there))
    }

    /// Makes a fact of a change; `false` where it does not fit.
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
                let kept = StoredToken {
                    token: terms,
                    created_at: at,
                };
                self.tokens.insert(token, kept).is_none()
            }
            AccessChange::ApiTokenRevoked { token } => self.tokens.remove(&token).is_some(),
        }
    }

    /// Who gives the role to a caller: the first token or binding that names it.
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
