//! Authorises a call by its rule in the table before its handler runs. The named thing is looked up; if it does not
//! exist, the call is judged as if it were in any pool, so a caller without rights everywhere gets the same answer for
//! hidden and for missing things.

use std::borrow::Cow;

use axum::extract::{MatchedPath, RawPathParams, Request};
use coordinator_core::Core;
use sluice_common::access::{AccessQuery, Decision, Resource, Scope, Verb};
use sluice_common::id::{JoinTokenId, ServiceName, StepId};

use super::super::Api;
use super::super::error::ApiError;
use super::super::verbs::{ALLOCATIONS, NODES, SERVICES, STEPS};
use super::table::{self, CallRule, ScopeKind};
use super::{Caller, pool_of_node};
use crate::view::pool_of;

/// Pool and subject of a thing.
struct OwnedScope {
    pool: Option<String>,
    subject: Option<String>,
}

/// A call as the router matched it.
pub(in super::super) struct RoutedCall {
    method: String,
    /// Path as the caller wrote it.
    path: String,
    /// Matched route; `None` if there is none.
    route: Option<MatchedPath>,
}

impl RoutedCall {
    pub(in super::super) fn of(request: &Request) -> Self {
        Self {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            route: request.extensions().get::<MatchedPath>().cloned(),
        }
    }

    /// Returns the call's rule, if it has one.
    pub(in super::super) fn row(&self, params: &RawPathParams) -> Option<&'static CallRule> {
        let last = params.iter().last().map(|(_, value)| value);
        table::find(&self.method, self.route.as_ref()?.as_str(), last)
    }

    /// Returns the name of the thing that is called.
    pub(in super::super) fn name(params: &RawPathParams) -> Option<String> {
        let names: Vec<&str> = params.iter().map(|(_, value)| bare(value)).collect();
        (!names.is_empty()).then(|| names.join("/"))
    }
}

/// Authorises a call; one without a route is left to the fallback handler. Calls that change something are recorded.
pub(in super::super) async fn admit(
    api: &Api,
    caller: &Caller,
    call: &RoutedCall,
    params: &RawPathParams,
) -> Result<(), ApiError> {
    let Some(route) = &call.route else {
        return Ok(());
    };
    let names: Vec<&str> = params.iter().map(|(_, value)| value).collect();
    let last = names.last().copied();
    let Some(row) = table::find(&call.method, route.as_str(), last) else {
        return Err(no_call(&call.method, &call.path, route.as_str(), last));
    };
    let judged = judge(api, caller, row, &names).await;
    let name = RoutedCall::name(params);
    let noted = row.scope != ScopeKind::Body && row.scope != ScopeKind::Known && changes(row);
    let noted = noted && !REPEATED.contains(&row.path);
    match &judged {
        Ok(()) if noted => {
            let what = (row.verb, row.resource);
            caller.note(api, what, name.as_deref()).await?;
        }
        Ok(()) | Err(_) => {}
    }
    judged
}

/// Calls that are made all the time, so that the audit does not have them. What follows from one is a record of its own.
const REPEATED: [&str; 2] = [
    "/v1/allocations/{step}:renew",
    "/v1/services/{service}:report",
];

/// Judges by the verb, because a WebSocket is a `GET` whatever it is for.
fn changes(row: &CallRule) -> bool {
    !matches!(row.verb, Verb::Get | Verb::List)
}

/// Returns the error for a wrong method or verb.
fn no_call(method: &str, path: &str, route: &str, last: Option<&str>) -> ApiError {
    let verbs = [
        ("/v1/steps/{step}", &STEPS),
        ("/v1/allocations/{step}", &ALLOCATIONS),
        ("/v1/services/{service}", &SERVICES),
        ("/v1/nodes/{node}", &NODES),
    ];
    let of_thing = verbs.into_iter().find(|(thing, _)| *thing == route);
    if let (Some((_, verbs)), Some(last)) = (of_thing, last)
        && let Err(error) = verbs.split(last, method)
    {
        return error;
    }
    ApiError::MethodNotAllowed {
        method: method.to_owned(),
        path: path.to_owned(),
        allow: table::allowed(route, last),
    }
}

pub(super) async fn judge(
    api: &Api,
    caller: &Caller,
    row: &CallRule,
    names: &[&str],
) -> Result<(), ApiError> {
    if caller.is_unbounded() || row.scope == ScopeKind::Known {
        return Ok(());
    }
    let query = |pool, subject| AccessQuery {
        verb: row.verb,
        resource: row.resource,
        pool,
        subject,
    };
    let first = names.first().copied().unwrap_or("");
    match (row.scope, names) {
        (ScopeKind::Known, _) => Ok(()),
        (ScopeKind::Each | ScopeKind::Body, _) => {
            caller.require(&query(Scope::Any, Scope::Any), None)
        }
        (ScopeKind::Cluster, _) => caller.require(&query(Scope::Unscoped, Scope::Unscoped), None),
        (ScopeKind::Pool, _) => {
            caller.require(&query(Scope::One(first), Scope::Unscoped), Some(first))
        }
        (ScopeKind::EachInPool, _) => caller.require(&query(Scope::One(first), Scope::Any), None),
        (ScopeKind::Policy, [pool, subject]) => {
            caller.require(&query(Scope::One(pool), Scope::One(subject)), None)
        }
        (ScopeKind::Policy, _) => caller.require(&query(Scope::Every, Scope::Every), None),
        (ScopeKind::Step, _) => {
            let name = bare(first);
            named(caller, &query, step(api, name).await?, Scope::Every, name)
        }
        (ScopeKind::Service, _) => {
            let name = bare(first);
            named(
                caller,
                &query,
                service(api, name).await?,
                Scope::Every,
                name,
            )
        }
        (ScopeKind::Node, _) => {
            let name = bare(first);
            named(
                caller,
                &query,
                node(api, name).await?,
                Scope::Unscoped,
                name,
            )
        }
        (ScopeKind::JoinToken, _) => {
            let found = join_token(api, first).await?;
            named(caller, &query, found, Scope::Unscoped, first)
        }
    }
}

/// Removes the verb after a name.
fn bare(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(name, _)| name)
}

/// Judges an existing thing by its pool and subject; the error names only what could be anywhere.
fn named<'a>(
    caller: &Caller,
    query: &impl Fn(Scope<'a>, Scope<'a>) -> AccessQuery<'a>,
    found: Option<OwnedScope>,
    without_subject: Scope<'a>,
    name: &str,
) -> Result<(), ApiError> {
    let anywhere = query(Scope::Every, without_subject);
    let allowed = found.is_some_and(|found| {
        let anywhere = query(Scope::Every, without_subject);
        let here = AccessQuery {
            pool: found.pool.as_deref().map_or(anywhere.pool, Scope::One),
            subject: found
                .subject
                .as_deref()
                .map_or(anywhere.subject, Scope::One),
            ..anywhere
        };
        caller.judge(&here) == Decision::Allowed
    });
    if allowed {
        return Ok(());
    }
    match caller.judge(&anywhere) {
        // A caller with rights everywhere may learn that the thing does not exist. A denying rule cannot matter here,
        // because it would deny everywhere too.
        Decision::Allowed => Ok(()),
        verdict => Err(caller.refusal(&anywhere, Some(name), &verdict)),
    }
}

async fn step(api: &Api, name: &str) -> Result<Option<OwnedScope>, ApiError> {
    let Ok(id) = StepId::new(name) else {
        return Ok(None);
    };
    let look = move |core: &Core| {
        // Who may see an array may learn which parts it has.
        let array = || Some(Cow::Borrowed(core.state().array_of(&id)?.0));
        let step = &*core.state().find(&id).or_else(array)?;
        Some(OwnedScope {
            pool: core.state().pool_of(step).map(ToString::to_string),
            subject: Some(step.spec.subject.to_string()),
        })
    };
    Ok(api.engine().read(look).await?)
}

async fn service(api: &Api, name: &str) -> Result<Option<OwnedScope>, ApiError> {
    let Ok(name) = ServiceName::new(name) else {
        return Ok(None);
    };
    let look = move |core: &Core| {
        let known = core.state().services().get(&name)?;
        Some(OwnedScope {
            pool: pool_of(known).map(ToString::to_string),
            subject: known.subject().map(ToString::to_string),
        })
    };
    Ok(api.engine().read(look).await?)
}

async fn node(api: &Api, name: &str) -> Result<Option<OwnedScope>, ApiError> {
    let name = name.to_owned();
    let look = move |core: &Core| {
        let pool = pool_of_node(core, &name)?;
        Some(OwnedScope {
            pool: Some(pool.to_string()),
            subject: None,
        })
    };
    Ok(api.engine().read(look).await?)
}

async fn join_token(api: &Api, name: &str) -> Result<Option<OwnedScope>, ApiError> {
    let Ok(id) = JoinTokenId::new(name) else {
        return Ok(None);
    };
    let look = move |core: &Core| {
        let token = core.state().admission().tokens().get(&id)?;
        Some(OwnedScope {
            pool: token.pool.as_ref().map(ToString::to_string),
            subject: None,
        })
    };
    Ok(api.engine().read(look).await?)
}

/// Fails unless the caller may let another host join as this node, which ends the access of the present one. An unknown
/// name needs the right in every pool, because somebody may have it when the host joins.
pub(in super::super) async fn may_replace(
    api: &Api,
    caller: &Caller,
    name: &str,
) -> Result<(), ApiError> {
    let query = |pool, subject| AccessQuery {
        verb: Verb::Revoke,
        resource: Resource::Nodes,
        pool,
        subject,
    };
    named(
        caller,
        &query,
        node(api, name).await?,
        Scope::Unscoped,
        name,
    )
}
