//! Reads of queues and policies. `terms.rs` changes them.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::Response;
pub(super) use coordinator_core::spec::invalid;
use coordinator_core::{Core, Refusal, Step};
use serde::Deserialize;
use sluice_common::access::{Resource, Verb};
use sluice_common::api::{Page, PolicyView, StepView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PoolName, Subject};

use super::Api;
use super::access::Caller;
use super::error::ApiError;
use super::etag::tagged;
use super::page::NamePageParams;
use super::params::{self, NoParams, Params, Segment};
use crate::view;

/// A pool and a subject, from a path.
pub(super) struct PolicyPath {
    pub(super) pool: PoolName,
    pub(super) subject: Subject,
}

impl<S: Send + Sync> FromRequestParts<S> for PolicyPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<(String, String)>, _> = Path::from_request_parts(parts, state).await;
        let Ok(Path((pool, subject))) = path else {
            let path = parts.uri.path().to_owned();
            return Err(ApiError::UnknownRoute { path });
        };
        Ok(Self {
            pool: PoolName::new(pool)
                .map_err(|e| ApiError::Field(invalid("pool", ErrorCode::InvalidPool, &e)))?,
            subject: Subject::new(subject)
                .map_err(|e| ApiError::Field(invalid("subject", ErrorCode::InvalidSubject, &e)))?,
        })
    }
}

/// Handles `GET /v1/pools/{pool}/policies`, sorted by subject.
pub(super) async fn policies(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<PolicyView>>, ApiError> {
    let wanted = params.read()?;
    let unknown = ApiError::UnknownPool {
        pool: segment.escape_debug().to_string(),
    };
    let Ok(name) = PoolName::new(segment) else {
        return Err(unknown);
    };
    let look = move |core: &Core| {
        let policies = wanted.of(&core.state().pool(&name)?.policies);
        let policies = policies.filter(|(subject, _)| caller.may_list_policy(&name, subject));
        let views = policies.filter_map(|(subject, _)| view::policy(core, &name, subject));
        Some(wanted.page(views, |view| view.subject.clone()))
    };
    api.engine().read(look).await?.map(Json).ok_or(unknown)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueParams {
    limit: Option<String>,
}

/// Handles `GET /v1/pools/{pool}/queue`: the first `limit` waiting steps in queue order. Positions change with every
/// grant, so there is no cursor; `queued` of the pool has the total.
pub(super) async fn queue(
    State(api): State<Api>,
    caller: Caller,
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
        let lists = |step: &Step| {
            let subject = step.spec.subject.as_str();
            caller.may_step(Verb::List, Resource::Steps, subject, Some(name.as_str()))
        };
        let steps = known.map(|_| view::queue(core, &name, limit, lists))?;
        Some(steps.into_iter().map(|step| caller.seen(step)).collect())
    };
    let items = api.engine().read(look).await?.ok_or(unknown)?;
    Ok(Json(Page::of(items, None)))
}

/// Handles `GET /v1/pools/{pool}/policies/{subject}`.
pub(super) async fn policy(
    State(api): State<Api>,
    PolicyPath { pool, subject }: PolicyPath,
    _: NoParams,
) -> Result<Response, ApiError> {
    let unknown = Refusal::UnknownPolicy {
        pool: pool.clone(),
        subject: subject.clone(),
    };
    let look = move |core: &Core| view::policy(core, &pool, &subject);
    let found = api.engine().read(look).await?;
    let found = found.ok_or(ApiError::Refused(unknown))?;
    Ok(tagged(found.version, Json(found)))
}
