//! Reads of roles, built-in ones included, and of bindings. `apply` changes them.

use axum::Json;
use axum::extract::State;
use coordinator_core::{AccessSnapshot, Refusal};
use sluice_common::access::{BUILT_IN_ROLES, BindingSpec, RoleSpec, pool_roles};
use sluice_common::api::{BindingView, Page, RoleView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{BindingName, RoleName};

use super::Api;
use super::error::ApiError;
use super::page::NamePageParams;
use super::params::{NoParams, Params, Segment};
use super::pools::invalid;

/// Handles `GET /v1/roles`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<RoleView>>, ApiError> {
    let wanted = params.read()?;
    let snapshot = api.engine().access_snapshot();
    let names = names(&snapshot)
        .into_iter()
        .filter(|name| wanted.reaches(name));
    let views = names.filter_map(|name| role(&snapshot, &name));
    Ok(Json(wanted.page(views, |view| view.name.clone())))
}

/// Lists the names of every role, in order.
fn names(snapshot: &AccessSnapshot) -> Vec<RoleName> {
    let pools = snapshot.pools.iter();
    let of_pools = pools.flat_map(|pool| pool_roles(pool.as_str()).collect::<Vec<_>>());
    let built_in = BUILT_IN_ROLES
        .into_iter()
        .map(str::to_owned)
        .chain(of_pools);
    let built_in = built_in.filter_map(|name| RoleName::new(name).ok());
    let mut all: Vec<RoleName> = built_in
        .chain(snapshot.access.roles.keys().cloned())
        .collect();
    all.sort();
    all
}

fn role(snapshot: &AccessSnapshot, name: &RoleName) -> Option<RoleView> {
    let version = snapshot.access.roles.get(name).map(|it| it.version);
    let RoleSpec { description, rules } = snapshot.role(name)?;
    Some(RoleView {
        name: name.to_string(),
        description,
        rules,
        built_in: version.is_none(),
        version: version.unwrap_or(0),
    })
}

/// Handles `GET /v1/roles/{role}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<RoleView>, ApiError> {
    let name = RoleName::new(segment);
    let name = name.map_err(|e| invalid("role", ErrorCode::InvalidAccess, &e))?;
    let found = role(&api.engine().access_snapshot(), &name);
    let unknown = Refusal::UnknownRole { role: name };
    found.map(Json).ok_or(ApiError::Refused(unknown))
}

/// Handles `GET /v1/bindings`, sorted by name.
pub(super) async fn list_bindings(
    State(api): State<Api>,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<BindingView>>, ApiError> {
    let wanted = params.read()?;
    let snapshot = api.engine().access_snapshot();
    let bindings = wanted.of(&snapshot.access.bindings);
    let views = bindings.filter_map(|(name, _)| binding(&snapshot, name));
    Ok(Json(wanted.page(views, |view| view.name.clone())))
}

fn binding(snapshot: &AccessSnapshot, name: &BindingName) -> Option<BindingView> {
    let written = snapshot.access.bindings.get(name)?.clone();
    let BindingSpec {
        description,
        roles,
        pools,
        subjects,
        members,
    } = written.terms;
    Some(BindingView {
        name: name.to_string(),
        description,
        roles,
        pools,
        subjects,
        members,
        version: written.version,
    })
}

/// Handles `GET /v1/bindings/{binding}`.
pub(super) async fn get_binding(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<BindingView>, ApiError> {
    let name = BindingName::new(segment);
    let name = name.map_err(|e| invalid("binding", ErrorCode::InvalidAccess, &e))?;
    let found = binding(&api.engine().access_snapshot(), &name);
    let unknown = Refusal::UnknownBinding { binding: name };
    found.map(Json).ok_or(ApiError::Refused(unknown))
}
