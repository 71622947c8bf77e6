//! Rights for changes of documents, roles and bindings among them.

use coordinator_core::spec::access_name;
use coordinator_core::{AccessChange, Desired, TermsChange};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::DocumentKind;
use sluice_common::request::FieldError;

use super::super::Api;
use super::super::access::Caller;
use super::super::error::ApiError;

pub(super) fn no_role(name: String) -> Result<Desired, FieldError> {
    let role = access_name(name)?;
    let change = AccessChange::RoleDeleted { role };
    Ok(Desired::Access { change })
}

pub(super) fn no_binding(name: String) -> Result<Desired, FieldError> {
    let binding = access_name(name)?;
    let change = AccessChange::BindingDeleted { binding };
    Ok(Desired::Access { change })
}

/// Returns the name of a role or a binding.
pub(super) fn name(desired: &Desired) -> Option<String> {
    match desired {
        Desired::Access { change } => name_of(change),
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
fn ask_of(desired: &Desired) -> AccessQuery<'_> {
    let (verb, resource, pool, subject) = match desired {
        Desired::Pool { pool, .. } => (Verb::Update, Resource::Pools, Some(pool), None),
        Desired::NoPool { pool } => (Verb::Delete, Resource::Pools, Some(pool), None),
        Desired::Platform { pool, .. } => (Verb::Update, Resource::Platforms, Some(pool), None),
        Desired::NoPlatform { pool, .. } => (Verb::Delete, Resource::Platforms, Some(pool), None),
        Desired::Policy { pool, subject, .. } => {
            (Verb::Update, Resource::Policies, Some(pool), Some(subject))
        }
        Desired::NoPolicy { pool, subject } => {
            (Verb::Delete, Resource::Policies, Some(pool), Some(subject))
        }
        Desired::Cluster { .. } | Desired::Topology { .. } => {
            (Verb::Update, Resource::Cluster, None, None)
        }
        Desired::Validation { .. } => (Verb::Update, Resource::Validations, None, None),
        Desired::NoValidation { .. } => (Verb::Delete, Resource::Validations, None, None),
        Desired::Template { .. } => (Verb::Update, Resource::Templates, None, None),
        Desired::NoTemplate { .. } => (Verb::Delete, Resource::Templates, None, None),
        Desired::Access { change } => {
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
    changes: &[TermsChange],
    dry_run: bool,
) -> Result<(), ApiError> {
    for change in changes {
        let ask = ask_of(&change.desired);
        let named = terms_name(&change.desired);
        caller.require(&ask, named.as_deref())?;
        if let Desired::Access { .. } = change.desired {
            caller.require_admin(&ask, named.as_deref())?;
        }
    }
    for change in changes.iter().filter(|_| !dry_run) {
        let ask = ask_of(&change.desired);
        let named = terms_name(&change.desired);
        let what = (ask.verb, ask.resource);
        caller.note(api, what, named.as_deref()).await?;
    }
    Ok(())
}

fn terms_name(desired: &Desired) -> Option<String> {
    match desired {
        Desired::Pool { pool, .. } | Desired::NoPool { pool } => Some(pool.to_string()),
        Desired::Policy { pool, subject, .. } | Desired::NoPolicy { pool, subject } => {
            Some(format!("{pool}/{subject}"))
        }
        Desired::Validation { validation, .. } | Desired::NoValidation { validation } => {
            Some(validation.to_string())
        }
        Desired::Platform { pool, platform, .. } | Desired::NoPlatform { pool, platform } => {
            Some(format!("{pool}/{platform}"))
        }
        Desired::Template { template, .. } | Desired::NoTemplate { template } => {
            Some(template.to_string())
        }
        Desired::Access { change } => name_of(change),
        Desired::Cluster { .. } | Desired::Topology { .. } => None,
    }
}
