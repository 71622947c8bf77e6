//! Calls about the caller itself: its identity, and whether it has a right.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::{CanIView, WhoAmIView, timestamp};
use sluice_common::id::{PoolName, Subject};

use super::Api;
use super::access::{Caller, Identity};
use super::error::ApiError;
use super::params::{self, NoParams, Params};

/// Handles `GET /v1/whoami`.
pub(super) async fn whoami(_: State<Api>, caller: Caller, _: NoParams) -> Json<WhoAmIView> {
    let (name, expires_at) = match caller.who() {
        Identity::Token {
            name, expires_at, ..
        } => (Some(name.to_string()), *expires_at),
        Identity::Certificate(shown) => (Some(shown.user.clone()), Some(shown.expires_at)),
        Identity::Claims(found) => (Some(found.name.clone()), Some(found.expires_at)),
        Identity::Local | Identity::Admin(_) => (None, None),
    };
    Json(WhoAmIView {
        who: caller.who().to_string(),
        name,
        user: caller.who().user().map(String::from),
        unbounded: caller.is_unbounded(),
        grants: caller.grants().cloned().collect(),
        unfilled: caller.unfilled().to_vec(),
        submits_for: caller.submits_for().map(|it| it.to_string()),
        expires_at: expires_at.map(timestamp),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CanParams {
    verb: Option<String>,
    resource: Option<String>,
    pool: Option<String>,
    subject: Option<String>,
}

/// Handles `GET /v1/can-i`; without a pool or subject the right must hold for all of them, unless steps without a pool go to
/// the only pool of the caller.
pub(super) async fn can_i(
    _: State<Api>,
    caller: Caller,
    Params(params): Params<CanParams>,
) -> Result<Json<CanIView>, ApiError> {
    let needed = |name, text: &Option<String>| {
        let missing = || params::invalid(name, "it says what is asked, so it must be there");
        text.clone().ok_or_else(missing)
    };
    let verb = needed("verb", &params.verb)?;
    let verb: Verb = verb.parse().map_err(|e| params::invalid("verb", e))?;
    let resource = needed("resource", &params.resource)?;
    let resource: Resource = resource
        .parse()
        .map_err(|e| params::invalid("resource", e))?;
    let pool: Option<PoolName> = params::read("pool", params.pool.as_deref())?;
    let subject: Option<Subject> = params::read("subject", params.subject.as_deref())?;
    // As a submit that names no pool is judged.
    let submits = (verb, resource) == (Verb::Create, Resource::Steps);
    let pool = pool.or_else(|| {
        let subject = subject.clone().or_else(|| caller.submits_for());
        subject
            .filter(|_| submits)
            .and_then(|it| caller.submits_to(&it))
    });
    let ask = AccessQuery {
        verb,
        resource,
        pool: pool
            .as_ref()
            .map_or(Scope::Every, |it| Scope::One(it.as_str())),
        subject: subject
            .as_ref()
            .map_or(Scope::Every, |it| Scope::One(it.as_str())),
    };
    let (allowed, why) = match caller.require(&ask, None) {
        Ok(()) => (true, None),
        Err(refusal) => (false, Some(refusal.to_string())),
    };
    Ok(Json(CanIView { allowed, why }))
}
