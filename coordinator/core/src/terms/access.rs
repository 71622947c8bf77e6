//! Changes of access. The core stores roles, bindings and tokens; the coordinator checks callers before it calls the
//! core.

use alloc::string::ToString;

use sluice_common::access::{ApiToken, is_reserved};
use sluice_common::id::{PoolName, RoleName, TokenName};

use crate::context::Context;
use crate::input::{Desired, TermsChange};
use crate::model::access::{Access, AccessChange};
use crate::output::{CurrentTerms, Refusal, Refused};
use crate::record::Record;
use crate::state::State;

/// Most API tokens: a bound on what callers can have stored.
const MAX_TOKENS: usize = 10_000;

fn has_role(state: &State, role: &RoleName) -> bool {
    let pool_exists = |pool: &str| {
        let pool = PoolName::new(pool);
        pool.is_ok_and(|pool| state.pool(&pool).is_some())
    };
    state.access().role(role, pool_exists).is_some()
}

fn missing_role<'a>(
    state: &State,
    mut roles: impl Iterator<Item = &'a RoleName>,
) -> Option<Refusal> {
    let role = roles.find(|role| !has_role(state, role))?.clone();
    Some(Refusal::UnknownRole { role })
}

/// The current terms of the object of a change, with the version.
pub(crate) fn access_terms(access: &Access, change: &AccessChange) -> Option<(CurrentTerms, u64)> {
    match change {
        AccessChange::RolePut { role, .. } | AccessChange::RoleDeleted { role } => {
            let it = access.roles.get(role)?;
            Some((CurrentTerms::Role(it.terms.clone()), it.version))
        }
        AccessChange::BindingPut { binding, .. } | AccessChange::BindingDeleted { binding } => {
            let it = access.bindings.get(binding)?;
            Some((CurrentTerms::Binding(it.terms.clone()), it.version))
        }
        AccessChange::ApiTokenCreated { .. } | AccessChange::ApiTokenRevoked { .. } => None,
    }
}

/// Makes a change, unless the object is so already.
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
            check_token(ctx, token, terms)?;
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

fn check_token(ctx: &Context, token: &TokenName, terms: &ApiToken) -> Result<(), Refusal> {
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
    missing_role(ctx.state(), roles).map_or(Ok(()), Err)
}

/// Checks that every role that a binding gives exists once all changes are made, and that no deleted role is in use.
pub(crate) fn check_access(ctx: &Context, changes: &[TermsChange]) -> Result<(), Refused> {
    for (at, change) in changes.iter().enumerate() {
        let Desired::Access { change } = &change.desired else {
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
        AccessChange::BindingPut { terms, .. } => missing_role(ctx.state(), terms.roles.iter()),
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
