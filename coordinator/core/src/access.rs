//! Who may do what, as it is kept: roles and bindings as somebody wrote them, API tokens without their secrets. The
//! core keeps them in order and judges nothing by them: whoever calls is judged by the edge, before it asks the core.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::access::{ApiToken, AuditEntry, BindingTerms, Grant, RoleTerms};
use sluice_common::access::{built_in, is_reserved};
use sluice_common::id::{BindingName, PoolName, RoleName, TokenName};
use sluice_common::time::Time;

use crate::context::Context;
use crate::input::{Change, ReplyId, Wanted};
use crate::output::{Answer, Refusal, Refused, Terms};
use crate::record::Record;
use crate::state::State;

/// API tokens that there may be: a bound on what a caller can have kept.
const MAX_TOKENS: usize = 10_000;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Roles that somebody wrote, by name.
    pub roles: BTreeMap<RoleName, Written<RoleTerms>>,
    /// Bindings, by name.
    pub bindings: BTreeMap<BindingName, Written<BindingTerms>>,
    /// API tokens, by name; those that have expired too, until somebody revokes them.
    pub tokens: BTreeMap<TokenName, KeptToken>,
}

/// A document, and since when it is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written<T> {
    /// As it was written.
    pub terms: T,
    /// The number of the record that set it last.
    pub version: u64,
}

/// An API token that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptToken {
    /// The token.
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
    RolePut {
        /// Its name.
        role: RoleName,
        /// What it is.
        terms: RoleTerms,
    },
    /// There is no such role.
    RoleDeleted {
        /// Its name.
        role: RoleName,
    },
    /// A binding is this and no other.
    BindingPut {
        /// Its name.
        binding: BindingName,
        /// What it is.
        terms: BindingTerms,
    },
    /// There is no such binding.
    BindingDeleted {
        /// Its name.
        binding: BindingName,
    },
    /// A program may call by this token.
    ApiTokenCreated {
        /// Its name.
        token: TokenName,
        /// What it is.
        terms: ApiToken,
    },
    /// Nobody may call by this token any more.
    ApiTokenRevoked {
        /// Its name.
        token: TokenName,
    },
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

    /// What a role is: one that somebody wrote, or one that is always there.
    pub fn role(&self, role: &RoleName, there: impl FnOnce(&str) -> bool) -> Option<RoleTerms> {
        let written = self.roles.get(role).map(|it| it.terms.clone());
        written.or_else(|| built_in(role, there))
    }

    /// What is written now of what a change is about, with its version.
    pub(crate) fn terms_of(&self, change: &AccessChange) -> Option<(Terms, u64)> {
        match change {
            AccessChange::RolePut { role, .. } | AccessChange::RoleDeleted { role } => {
                let it = self.roles.get(role)?;
                Some((Terms::Role(it.terms.clone()), it.version))
            }
            AccessChange::BindingPut { binding, .. } | AccessChange::BindingDeleted { binding } => {
                let it = self.bindings.get(binding)?;
                Some((Terms::Binding(it.terms.clone()), it.version))
            }
            AccessChange::ApiTokenCreated { .. } | AccessChange::ApiTokenRevoked { .. } => None,
        }
    }

    /// Makes a fact of a change; `false` where it does not fit.
    pub(crate) fn fold(&mut self, at: Time, seq: u64, change: &AccessChange) -> bool {
        let version = seq;
        match change.clone() {
            AccessChange::RolePut { role, terms } => {
                self.roles.insert(role, Written { terms, version });
                true
            }
            AccessChange::RoleDeleted { role } => self.roles.remove(&role).is_some(),
            AccessChange::BindingPut { binding, terms } => {
                self.bindings.insert(binding, Written { terms, version });
                true
            }
            AccessChange::BindingDeleted { binding } => self.bindings.remove(&binding).is_some(),
            AccessChange::ApiTokenCreated { token, terms } => {
                let kept = KeptToken {
                    token: terms,
                    created_at: at,
                };
                self.tokens.insert(token, kept).is_none()
            }
            AccessChange::ApiTokenRevoked { token } => self.tokens.remove(&token).is_some(),
        }
    }

    /// Who gives the role to somebody: the first token or binding that names it.
    fn giver_of(&self, role: &RoleName) -> Option<String> {
        let names = |grants: &[Grant]| grants.iter().any(|grant| grant.role == *role);
        let token = self.tokens.iter().find(|(_, it)| names(&it.token.grants));
        let binding = || {
            let mut all = self.bindings.iter();
            all.find(|(_, it)| it.terms.roles.contains(role))
        };
        let token = token.map(|(name, _)| format!("API token `{name}`"));
        token.or_else(|| binding().map(|(name, _)| format!("binding `{name}`")))
    }
}

impl State {
    fn has_role(&self, role: &RoleName) -> bool {
        let there = |pool: &str| {
            let pool = PoolName::new(pool);
            pool.is_ok_and(|pool| self.pool(&pool).is_some())
        };
        self.access().role(role, there).is_some()
    }

    fn missing_role<'a>(&self, mut roles: impl Iterator<Item = &'a RoleName>) -> Option<Refusal> {
        let role = roles.find(|role| !self.has_role(role))?.clone();
        Some(Refusal::UnknownRole { role })
    }
}

/// Makes or takes back a token.
pub(crate) fn on_access(ctx: &mut Context, reply: ReplyId, change: AccessChange) {
    let done = change_access(ctx, &change);
    ctx.reply(reply, Answer::Changed(done));
}

/// Notes who did what.
pub(crate) fn on_audit(ctx: &mut Context, entry: AuditEntry) {
    ctx.record(Record::Audited { entry });
}

/// Makes a change that is not so already.
pub(crate) fn change_access(ctx: &mut Context, change: &AccessChange) -> Result<(), Refusal> {
    let access = ctx.state().access();
    let same = match change {
        AccessChange::RolePut { role, terms } => {
            if is_reserved(role) {
                return Err(Refusal::ReservedRole { role: role.clone() });
            }
            access.roles.get(role).is_some_and(|it| it.terms == *terms)
        }
        AccessChange::RoleDeleted { role } => {
            if is_reserved(role) {
                return Err(Refusal::ReservedRole { role: role.clone() });
            }
            if !access.roles.contains_key(role) {
                return Err(Refusal::UnknownRole { role: role.clone() });
            }
            false
        }
        AccessChange::BindingPut { binding, terms } => {
            let it = access.bindings.get(binding);
            it.is_some_and(|it| it.terms == *terms)
        }
        AccessChange::BindingDeleted { binding } => {
            if !access.bindings.contains_key(binding) {
                let binding = binding.clone();
                return Err(Refusal::UnknownBinding { binding });
            }
            false
        }
        AccessChange::ApiTokenCreated { token, terms } => {
            vet_token(ctx, token, terms)?;
            false
        }
        AccessChange::ApiTokenRevoked { token } => {
            if !access.tokens.contains_key(token) {
                let token = token.to_string();
                return Err(Refusal::UnknownApiToken { token });
            }
            false
        }
    };
    if !same {
        let change = change.clone();
        ctx.record(Record::AccessChanged { change });
    }
    Ok(())
}

fn vet_token(ctx: &Context, token: &TokenName, terms: &ApiToken) -> Result<(), Refusal> {
    let tokens = &ctx.state().access().tokens;
    if tokens.contains_key(token) {
        let token = token.clone();
        return Err(Refusal::ApiTokenExists { token });
    }
    if tokens.len() >= MAX_TOKENS {
        let limit = MAX_TOKENS;
        return Err(Refusal::TooManyApiTokens { limit });
    }
    let roles = terms.grants.iter().map(|grant| &grant.role);
    ctx.state().missing_role(roles).map_or(Ok(()), Err)
}

/// Whether every role is there that a binding gives, once all changes are made, and none is gone that somebody has.
pub(crate) fn vet_access(ctx: &Context, changes: &[Change]) -> Result<(), Refused> {
    for (at, change) in changes.iter().enumerate() {
        let Wanted::Access { change } = &change.wanted else {
            continue;
        };
        if let Some(refusal) = misfit(ctx, change) {
            let at = Some(at);
            return Err(Refused { at, refusal });
        }
    }
    Ok(())
}

fn misfit(ctx: &Context, change: &AccessChange) -> Option<Refusal> {
    match change {
        AccessChange::BindingPut { terms, .. } => ctx.state().missing_role(terms.roles.iter()),
        AccessChange::RoleDeleted { role } => {
            let by = ctx.state().access().giver_of(role)?;
            let role = role.clone();
            Some(Refusal::RoleInUse { role, by })
        }
        AccessChange::RolePut { .. }
        | AccessChange::BindingDeleted { .. }
        | AccessChange::ApiTokenCreated { .. }
        | AccessChange::ApiTokenRevoked { .. } => None,
    }
}

/// Everything by which callers are judged, as it stood after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Roles, bindings and tokens.
    pub access: Access,
    /// The pools that there are: each has roles of its own.
    pub pools: Vec<PoolName>,
}

impl Book {
    /// As a state has it.
    pub fn of(state: &State) -> Self {
        Self {
            access: state.access().clone(),
            pools: state.pools().keys().cloned().collect(),
        }
    }

    /// Whether it is another after this record.
    pub fn is_changed_by(record: &Record) -> bool {
        // A list, not a match: what is forgotten here is found by the test that rebuilds the book.
        matches!(
            record,
            Record::AccessChanged { .. } | Record::PoolPut { .. } | Record::PoolDeleted { .. }
        )
    }

    /// What a role is.
    pub fn role(&self, role: &RoleName) -> Option<RoleTerms> {
        let there = |pool: &str| self.pools.iter().any(|known| known.as_str() == pool);
        self.access.role(role, there)
    }
}
