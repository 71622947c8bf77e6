//! Terms of pools, and policies: who may use a pool, and how.

use axum::Json;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use coordinator_core::market::Policy;
use coordinator_core::{Core, Input, Refusal};
use serde::Deserialize;
use sluice_common::api::{Page, PolicyRequest, PolicyView, PoolRequest, PoolView, StepView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PoolName, Subject};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::request::FieldError;
use sluice_common::time::Span;

use super::error::ApiError;
use super::params::{self, Params, Segment};
use super::{Api, body};
use crate::view;

/// A pool and a subject, from a path.
pub(super) struct Binding {
    pool: PoolName,
    subject: Subject,
}

impl<S: Send + Sync> FromRequestParts<S> for Binding {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<(String, String)>, _> = Path::from_request_parts(parts, state).await;
        let Ok(Path((pool, subject))) = path else {
            let path = parts.uri.path().to_owned();
            return Err(ApiError::UnknownRoute { path });
        };
        Ok(Self {
            pool: PoolName::new(pool).map_err(|e| invalid("pool", &e))?,
            subject: Subject::new(subject).map_err(|e| invalid("subject", &e))?,
        })
    }
}

fn invalid(field: &str, error: &impl ToString) -> ApiError {
    ApiError::Field(FieldError {
        code: if field == "pool" {
            ErrorCode::InvalidPool
        } else {
            ErrorCode::InvalidSubject
        },
        field: field.to_owned(),
        message: error.to_string(),
    })
}

/// `PUT /v1/pools/{pool}`: makes it, or gives it these terms and no others. Its policies stay.
pub(super) async fn put(
    State(api): State<Api>,
    Segment(segment): Segment,
    request: Request,
) -> Result<Json<PoolView>, ApiError> {
    let pool = PoolName::new(segment).map_err(|e| invalid("pool", &e))?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let PoolRequest {
        description,
        capacity,
        min_runtime,
    } = body::parse(&json, "")?;
    let min_runtime = span("min_runtime", min_runtime.as_deref())?;
    let name = pool.clone();
    let input = move |reply| Input::PutPool {
        reply,
        pool,
        description,
        capacity,
        min_runtime,
    };
    let seen = move |core: &Core, result: Result<(), Refusal>| {
        let found = core.state().pool(&name);
        result.map(|()| found.map(|pool| view::pool(core, pool)))
    };
    let view = api.engine().change(input, seen).await??;
    Ok(Json(view.expect("a pool that was put is there")))
}

fn span(field: &'static str, text: Option<&str>) -> Result<Span, ApiError> {
    let Some(text) = text else {
        return Ok(Span::ZERO);
    };
    text.parse().map_err(|error| {
        ApiError::Field(FieldError {
            code: ErrorCode::InvalidDuration,
            field: field.to_owned(),
            message: format!("{error}"),
        })
    })
}

/// `GET /v1/pools/{pool}/policies`: by subject.
pub(super) async fn policies(
    State(api): State<Api>,
    Segment(segment): Segment,
) -> Result<Json<Page<PolicyView>>, ApiError> {
    let unknown = ApiError::UnknownPool {
        pool: segment.escape_debug().to_string(),
    };
    let Ok(name) = PoolName::new(segment) else {
        return Err(unknown);
    };
    let look = move |core: &Core| {
        let pool = core.state().pool(&name)?;
        let subjects = pool.policies.keys();
        Some(
            subjects
                .filter_map(|subject| view::policy(core, &name, subject))
                .collect(),
        )
    };
    let items = api.engine().read(look).await?.ok_or(unknown)?;
    let next_cursor = None;
    Ok(Json(Page { items, next_cursor }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueParams {
    limit: Option<String>,
}

/// `GET /v1/pools/{pool}/queue`: the first `limit` steps that wait, those first that go first. Places change with every
/// grant, so there is no cursor: `queued` of the pool tells how many there are.
pub(super) async fn queue(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<QueueParams>,
) -> Result<Json<Page<StepView>>, ApiError> {
    let limit = params::limit(params.limit.as_deref())?;
    let unknown = ApiError::UnknownPool {
        pool: segment.escape_debug().to_string(),
    };
    let Ok(name) = PoolName::new(segment) else {
        return Err(unknown);
    };
    let look = move |core: &Core| {
        let known = core.state().pool(&name);
        known.map(|_| view::queue(core, &name, limit))
    };
    let items = api.engine().read(look).await?.ok_or(unknown)?;
    let next_cursor = None;
    Ok(Json(Page { items, next_cursor }))
}

/// `GET /v1/pools/{pool}/policies/{subject}`.
pub(super) async fn policy(
    State(api): State<Api>,
    Binding { pool, subject }: Binding,
) -> Result<Json<PolicyView>, ApiError> {
    let unknown = Refusal::UnknownPolicy {
        pool: pool.clone(),
        subject: subject.clone(),
    };
    let look = move |core: &Core| view::policy(core, &pool, &subject);
    let found = api.engine().read(look).await?;
    found.map(Json).ok_or(ApiError::Refused(unknown))
}

/// `PUT /v1/pools/{pool}/policies/{subject}`: binds the subject on these terms and no others.
pub(super) async fn put_policy(
    State(api): State<Api>,
    Binding { pool, subject }: Binding,
    request: Request,
) -> Result<Json<PolicyView>, ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let PolicyRequest {
        priority,
        reserved,
        limit,
    } = body::parse(&json, "")?;
    let policy = Policy {
        priority,
        reserved,
        limit,
    };
    let (of, who) = (pool.clone(), subject.clone());
    let input = move |reply| Input::PutPolicy {
        reply,
        pool,
        subject,
        policy,
    };
    let seen = move |core: &Core, result: Result<(), Refusal>| {
        result.map(|()| view::policy(core, &of, &who))
    };
    let view = api.engine().change(input, seen).await??;
    Ok(Json(view.expect("a policy that was put is there")))
}

/// `DELETE /v1/pools/{pool}/policies/{subject}`: 204. What the subject runs there goes on.
pub(super) async fn delete_policy(
    State(api): State<Api>,
    Binding { pool, subject }: Binding,
) -> Result<StatusCode, ApiError> {
    let input = move |reply| Input::DeletePolicy {
        reply,
        pool,
        subject,
    };
    api.engine().change(input, |_, result| result).await??;
    Ok(StatusCode::NO_CONTENT)
}
