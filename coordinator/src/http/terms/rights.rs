//! Rights for changes of documents, roles and bindings among them.

use coordinator_core::written::access_name;
use coordinator_core::{AccessChange, Change, Wanted};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::DocumentKind;
use sluice_common::request::FieldError;

use super::super::Api;
use super::super::access::Caller;
use super::super::error::ApiError;

pub(super) fn no_role(name: String) -> Result<Wanted, FieldError> {
    let role = access_name(name)?;
    let change = AccessChange::RoleDeleted { role };
    Ok(Wanted::Access { change })
}

pub(super) fn no_binding(name: String) -> Result<Wanted, FieldError> {
    let binding = access_name(name)?;
    let change = AccessChange::BindingDeleted { binding };
    Ok(Wanted::Access { change })
}

/// Returns the name of a role or a binding.
pub(super) fn name(wanted: &Wanted) -> Option<String> {
    match wanted {
        Wanted::Access { change } => name_of(change),
        _ => None,
    }
}

pub(super) fn kind(change: &AccessChange) -> DocumentKind {
    match change {
        AccessChange::RolePut { .. } | AccessChange::RoleDeleted { .. } => DocumentKind::Role,
        _ => DocumentKind::Binding,
    }
}

fn name_of(change: &AccessChange) -> Option<String> {
    match change {
        AccessChange::RolePut { role, .. } | AccessChange::RoleDeleted { role } => {
            Some(role.to_string())
        }
        AccessChange::BindingPut { binding, .. } | AccessChange::BindingDeleted { binding } => {
            Some(binding.to_string())
        }
        _ => None,
    }
}

/// Returns the right that a change needs.
fn ask_of(wanted: &Wanted) -> AccessQuery<'_> {
    let (verb, resource, pool, subject) = match wanted {
        Wanted::Pool { pool, .. } => (Verb::Update, Resource::Pools, Some(pool), None),
        Wanted::NoPool { pool } => (Verb::Delete, Resource::Pools, Some(pool), None),
        Wanted::Platform { pool, .. } => (Verb::Update, Resource::Platforms, Some(pool), None),
        Wanted::NoPlatform { pool, .. } => (Verb::Delete, Resource::Platforms, Some(pool), None),
        Wanted::Policy { pool, subject, .. } => {
            (Verb::Update, Resource::Policies, Some(pool), Some(subject))
        }
        Wanted::NoPolicy { pool, subject } => {
            (Verb::Delete, Resource::Policies, Some(pool), Some(subject))
        }
        Wanted::Cluster { .. } => (Verb::Update, Resource::Cluster, None, None),
        Wanted::Validation { .. } => (Verb::Update, Resource::Validations, None, None),
        Wanted::NoValidation { .. } => (Verb::Delete, Resource::Validations, None, None),
        Wanted::Template { .. } => (Verb::Update, Resource::Templates, None, None),
        Wanted::NoTemplate { .. } => (Verb::Delete, Resource::Templates, None, None),
        Wanted::Access { change } => {
            let resource = match kind(change) {
                DocumentKind::Role => Resource::Roles,
                _ => Resource::Bindings,
            };
            (Verb::Update, resource, None, None)
        }
    };
    AccessQuery {
        verb,
        resource,
        pool: pool.map_or(Scope::Unscoped, |pool| Scope::One(pool.as_str())),
        subject: subject.map_or(Scope::Unscoped, |subject| Scope::One(subject.as_str())),
    }
}

/// Fails if the caller may not make one of the changes; otherwise records each. Only an admin may write roles, because
/// a role's writer could make himself an admin.
pub(super) async fn permit(
    api: &Api,
    caller: &Caller,
    changes: &[Change],
    dry_run: bool,
) -> Result<(), ApiError> {
    for change in changes {
        let ask = ask_of(&change.wanted);
        let named = terms_name(&change.wanted);
        caller.require(&ask, named.as_deref())?;
        if let Wanted::Access { .. } = change.wanted {
            caller.require_admin(&ask, named.as_deref())?;
        }
    }
    for change in changes.iter().filter(|_| !dry_run) {
        let ask = ask_of(&change.wanted);
        let named = terms_name(&change.wanted);
        let what = (ask.verb, ask.resource);
        caller.note(api, what, named.as_deref()).await?;
    }
    Ok(())
}

fn terms_name(wanted: &Wanted) -> Option<String> {
    match wanted {
        Wanted::Pool { pool, .. } | Wanted::NoPool { pool } => Some(pool.to_string()),
        Wanted::Policy { pool, subject, .. } | Wanted::NoPolicy { pool, subject } => {
            Some(format!("{pool}/{subject}"))
        }
        Wanted::Validation { validation, .. } | Wanted::NoValidation { validation } => {
            Some(validation.to_string())
        }
        Wanted::Platform { pool, platform, .. } | Wanted::NoPlatform { pool, platform } => {
            Some(format!("{pool}/{platform}"))
        }
        Wanted::Template { template, .. } | Wanted::NoTemplate { template } => {
            Some(template.to_string())
        }
        Wanted::Access { change } => name_of(change),
        Wanted::Cluster { .. } => None,
    }
}
