//! Judges a call by its line of the table before its handler runs. What the path names is looked up, and what is not
//! there is judged as if it were anywhere: so whoever may not see it all is told the same of what is another's and of
//! what is not.

use axum::extract::{MatchedPath, RawPathParams, Request};
use coordinator_core::Core;
use sluice_common::access::{AccessQuery, Decision, Resource, Scope, Verb};
use sluice_common::id::{JoinTokenId, StepId};

use super::super::Api;
use super::super::error::ApiError;
use super::super::verbs::{NODES, STEPS};
use super::table::{self, Place, Row};
use super::{Caller, pool_of_node};
use crate::view;

/// Where something is, as owned words.
struct Found {
    pool: Option<String>,
    subject: Option<String>,
}

/// A call as it was routed.
pub(in super::super) struct Call {
    method: String,
    /// As the caller wrote it.
    said: String,
    /// As the router has it; `None` where no route takes it.
    route: Option<MatchedPath>,
}

impl Call {
    pub(in super::super) fn of(request: &Request) -> Self {
        Self {
            method: request.method().to_string(),
            said: request.uri().path().to_owned(),
            route: request.extensions().get::<MatchedPath>().cloned(),
        }
    }

    /// Its line of the table, if it has one.
    pub(in super::super) fn row(&self, params: &RawPathParams) -> Option<&'static Row> {
        let last = params.iter().last().map(|(_, value)| value);
        table::find(&self.method, self.route.as_ref()?.as_str(), last)
    }

    /// What it is called on.
    pub(in super::super) fn name(params: &RawPathParams) -> Option<String> {
        let names: Vec<&str> = params.iter().map(|(_, value)| bare(value)).collect();
        (!names.is_empty()).then(|| names.join("/"))
    }
}

/// Judges a call; where no route takes it, its fallback says so. Whatever changes something is noted.
pub(in super::super) async fn admit(
    api: &Api,
    caller: &Caller,
    call: &Call,
    params: &RawPathParams,
) -> Result<(), ApiError> {
    let Some(route) = &call.route else {
        return Ok(());
    };
    let names: Vec<&str> = params.iter().map(|(_, value)| value).collect();
    let last = names.last().copied();
    let Some(row) = table::find(&call.method, route.as_str(), last) else {
        return Err(no_call(&call.method, &call.said, route.as_str(), last));
    };
    let judged = judge(api, caller, row, &names).await;
    let name = Call::name(params);
    let noted = row.place != Place::Body && row.place != Place::Known && changes(row);
    match &judged {
        Ok(()) if noted => {
            let what = (row.verb, row.resource);
            caller.note(api, what, name.as_deref()).await?;
        }
        Ok(()) | Err(_) => {}
    }
    judged
}

fn changes(row: &Row) -> bool {
    row.method != "GET"
}

/// That a path is not called so.
fn no_call(method: &str, said: &str, path: &str, last: Option<&str>) -> ApiError {
    let verbs = [("/v1/steps/{step}", &STEPS), ("/v1/nodes/{node}", &NODES)];
    let of_thing = verbs.into_iter().find(|(thing, _)| *thing == path);
    if let (Some((_, verbs)), Some(last)) = (of_thing, last)
        && let Err(error) = verbs.split(last, method)
    {
        return error;
    }
    ApiError::MethodNotAllowed {
        method: method.to_owned(),
        path: said.to_owned(),
        allow: table::allowed(path, last),
    }
}

pub(super) async fn judge(
    api: &Api,
    caller: &Caller,
    row: &Row,
    names: &[&str],
) -> Result<(), ApiError> {
    if caller.is_unbounded() || row.place == Place::Known {
        return Ok(());
    }
    let ask = |pool, subject| AccessQuery {
        verb: row.verb,
        resource: row.resource,
        pool,
        subject,
    };
    let first = names.first().copied().unwrap_or("");
    match (row.place, names) {
        (Place::Known, _) => Ok(()),
        (Place::Each | Place::Body, _) => caller.need(&ask(Scope::Any, Scope::Any), None),
        (Place::Cluster, _) => caller.need(&ask(Scope::Unscoped, Scope::Unscoped), None),
        (Place::Pool, _) => caller.need(&ask(Scope::One(first), Scope::Unscoped), Some(first)),
        (Place::EachInPool, _) => caller.need(&ask(Scope::One(first), Scope::Any), None),
        (Place::Policy, [pool, subject]) => {
            caller.need(&ask(Scope::One(pool), Scope::One(subject)), None)
        }
        (Place::Policy, _) => caller.need(&ask(Scope::Every, Scope::Every), None),
        (Place::Step, _) => {
            let name = bare(first);
            named(caller, &ask, step(api, name).await?, Scope::Every, name)
        }
        (Place::Node, _) => {
            let name = bare(first);
            named(caller, &ask, node(api, name).await?, Scope::Unscoped, name)
        }
        (Place::JoinToken, _) => {
            let found = join_token(api, first).await?;
            named(caller, &ask, found, Scope::Unscoped, first)
        }
    }
}

/// A name without the verb behind it.
fn bare(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(name, _)| name)
}

/// Judges what is there by where it is; the words are those for what could be anywhere.
fn named<'a>(
    caller: &Caller,
    ask: &impl Fn(Scope<'a>, Scope<'a>) -> AccessQuery<'a>,
    found: Option<Found>,
    without_subject: Scope<'a>,
    name: &str,
) -> Result<(), ApiError> {
    let anywhere = ask(Scope::Every, without_subject);
    let allowed = found.is_some_and(|found| {
        let place = ask(Scope::Every, without_subject);
        let here = AccessQuery {
            pool: found.pool.as_deref().map_or(place.pool, Scope::One),
            subject: found.subject.as_deref().map_or(place.subject, Scope::One),
            ..place
        };
        caller.judge(&here) == Decision::Allowed
    });
    if allowed {
        return Ok(());
    }
    match caller.judge(&anywhere) {
        // He may do so anywhere: that it is not there is for him to know. A rule that denies is never seen here, for it
        // would deny anywhere too.
        Decision::Allowed => Ok(()),
        verdict => Err(caller.refusal(&anywhere, Some(name), &verdict)),
    }
}

async fn step(api: &Api, name: &str) -> Result<Option<Found>, ApiError> {
    let Ok(id) = StepId::new(name) else {
        return Ok(None);
    };
    let look = move |core: &Core| {
        let step = core.state().step(&id)?;
        Some(Found {
            pool: view::pool_of(core, step).map(ToString::to_string),
            subject: Some(step.spec.subject.to_string()),
        })
    };
    Ok(api.engine().read(look).await?)
}

async fn node(api: &Api, name: &str) -> Result<Option<Found>, ApiError> {
    let name = name.to_owned();
    let look = move |core: &Core| {
        let pool = pool_of_node(core, &name)?;
        Some(Found {
            pool: Some(pool.to_string()),
            subject: None,
        })
    };
    Ok(api.engine().read(look).await?)
}

async fn join_token(api: &Api, name: &str) -> Result<Option<Found>, ApiError> {
    let Ok(id) = JoinTokenId::new(name) else {
        return Ok(None);
    };
    let look = move |core: &Core| {
        let token = core.state().admission().tokens().get(&id)?;
        Some(Found {
            pool: token.pool.as_ref().map(ToString::to_string),
            subject: None,
        })
    };
    Ok(api.engine().read(look).await?)
}

/// Whether a caller may let another host in as this node, which ends the access of the one that is there. Of a name that
/// nobody has he needs the right in every pool, since somebody may have it when the host comes.
pub(in super::super) async fn may_replace(
    api: &Api,
    caller: &Caller,
    name: &str,
) -> Result<(), ApiError> {
    let ask = |pool, subject| AccessQuery {
        verb: Verb::Revoke,
        resource: Resource::Nodes,
        pool,
        subject,
    };
    named(caller, &ask, node(api, name).await?, Scope::Unscoped, name)
}
