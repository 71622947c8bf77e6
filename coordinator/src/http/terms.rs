//! Changes of pools, policies and other documents: several in one call, all or none, or one by its own path. `pools.rs`
//! reads them.
//!
//! A change can be previewed (`dry_run`), made only if the thing has not changed since (`version`, or `If-Match`), and
//! forced although steps use what it takes away (`force`).

pub(super) mod length;
mod outcome;
mod rights;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::spec::{self, platform_name, pool_name, subject_name, template_name};
use coordinator_core::{Applied, Core, Desired, Refused, TermsChange};
use serde::Deserialize;
use sluice_common::api::{ApplyRequest, ApplyView, DeleteDocument, PutDocument};
use sluice_common::id::PoolName;
use sluice_common::limit::MAX_BATCH_BODY_BYTES;
use sluice_common::pool::PoolSpec;
use sluice_common::request::FieldError;

use super::access::Caller;
use super::error::ApiError;
use super::etag::expected;
use super::params::{self, Params, Segment};
use super::pools::PolicyPath;
use super::put::PutRequest;
use super::{Api, body};
use crate::view;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeParams {
    dry_run: Option<String>,
    force: Option<String>,
}

/// Options of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangeMode {
    pub(super) dry_run: bool,
    force: bool,
}

impl ChangeParams {
    pub(super) fn read(&self) -> Result<ChangeMode, ApiError> {
        Ok(ChangeMode {
            dry_run: params::flag("dry_run", self.dry_run.as_deref())?,
            force: params::flag("force", self.force.as_deref())?,
        })
    }
}

/// Handles `POST /v1/apply`.
pub(super) async fn apply(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<ChangeParams>,
    request: Request,
) -> Result<Json<ApplyView>, ApiError> {
    let how = params.read()?;
    let json = body::read(request, MAX_BATCH_BODY_BYTES).await?;
    let ApplyRequest { put, delete } = body::parse(&json, "")?;
    let put = put.into_iter().enumerate();
    let put = put.map(|(at, document)| {
        desired(document).map_err(|error| within(error, &format!("put[{at}]")))
    });
    let delete = delete.into_iter().enumerate();
    let delete = delete.map(|(at, document)| {
        unwanted(document).map_err(|error| within(error, &format!("delete[{at}]")))
    });
    let changes: Vec<TermsChange> = put.chain(delete).collect::<Result<_, _>>()?;
    rights::permit(&api, &caller, &changes, how.dry_run).await?;
    let (view, _) = make(&api, changes, how, |_| ()).await?;
    Ok(Json(view))
}

/// Returns the error of one document, with the document's path before the field.
fn within(mut error: FieldError, place: &str) -> ApiError {
    error.field = format!("{place}.{}", error.field);
    ApiError::Field(error)
}

fn desired(document: PutDocument) -> Result<TermsChange, FieldError> {
    length::can_be_kept(&document)?;
    spec::change(document)
}

fn unwanted(document: DeleteDocument) -> Result<TermsChange, FieldError> {
    let desired = match document {
        DeleteDocument::Role { name } => rights::no_role(name)?,
        DeleteDocument::Binding { name } => rights::no_binding(name)?,
        DeleteDocument::Pool { name } => {
            let pool = pool_name("name", name)?;
            Desired::NoPool { pool }
        }
        DeleteDocument::Policy { pool, subject } => {
            let (pool, subject) = (pool_name("pool", pool)?, subject_name(subject)?);
            Desired::NoPolicy { pool, subject }
        }
        DeleteDocument::Validation { name } => Desired::NoValidation {
            validation: spec::validation_name(name)?,
        },
        DeleteDocument::Platform { pool, name } => {
            let platform = platform_name("name", name)?;
            let pool = pool_name("pool", pool)?;
            Desired::NoPlatform { pool, platform }
        }
        DeleteDocument::Template { name } => {
            let template = template_name("name", name)?;
            Desired::NoTemplate { template }
        }
    };
    let version = None;
    Ok(TermsChange { desired, version })
}

/// Makes or previews changes; `seen` reads the result.
pub(super) async fn make<R: Send + 'static>(
    api: &Api,
    changes: Vec<TermsChange>,
    how: ChangeMode,
    seen: impl FnOnce(&Core) -> R + Send + 'static,
) -> Result<(ApplyView, R), ApiError> {
    let desired: Vec<Desired> = changes
        .iter()
        .map(|change| change.desired.clone())
        .collect();
    let tell = move |core: &Core, applied: Result<Applied, Refused>| {
        applied.map(|applied| (outcome::view_of(how.dry_run, &desired, applied), seen(core)))
    };
    let engine = api.engine();
    let made = engine.apply(changes, how.force, how.dry_run, tell).await?;
    made.map_err(|Refused { at, refusal }| ApiError::TermsRefused { at, refusal })
}

/// Handles `PUT /v1/pools/{pool}`: creates or replaces it. Its policies stay.
pub(super) async fn put_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: PutRequest,
) -> Result<Response, ApiError> {
    let pool = pool_name("pool", segment).map_err(ApiError::Field)?;
    let spec: PoolSpec = put.body()?;
    length::of_platforms_can_be_kept(&spec).map_err(ApiError::Field)?;
    let terms = spec::pool(spec).map_err(ApiError::Field)?;
    let name = pool.clone();
    let terms = Box::new(terms);
    let desired = Desired::Pool { pool, terms };
    let seen = move |core: &Core| {
        let found = core.state().pool(&name);
        found.map(|pool| (pool.version, view::pool(core, pool)))
    };
    put.make(&api, desired, seen).await
}

/// Handles `PUT /v1/pools/{pool}/policies/{subject}`: creates or replaces it.
pub(super) async fn put_policy(
    State(api): State<Api>,
    PolicyPath { pool, subject }: PolicyPath,
    put: PutRequest,
) -> Result<Response, ApiError> {
    let policy = spec::policy(&subject, put.body()?).map_err(ApiError::Field)?;
    let (of, who) = (pool.clone(), subject.clone());
    let desired = Desired::Policy {
        pool,
        subject,
        policy,
    };
    let seen = move |core: &Core| view::policy(core, &of, &who).map(|it| (it.version, it));
    put.make(&api, desired, seen).await
}

/// Handles `DELETE /v1/pools/{pool}`: 204. Its policies are deleted too; it must have no nodes.
pub(super) async fn delete_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<ChangeParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Ok(pool) = PoolName::new(segment.as_str()) else {
        return Err(ApiError::UnknownPool {
            pool: segment.escape_debug().to_string(),
        });
    };
    delete(&api, Desired::NoPool { pool }, params.read()?, &headers).await
}

/// Handles `DELETE /v1/pools/{pool}/policies/{subject}`: 204. The subject's running steps run on.
pub(super) async fn delete_policy(
    State(api): State<Api>,
    PolicyPath { pool, subject }: PolicyPath,
    Params(params): Params<ChangeParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let desired = Desired::NoPolicy { pool, subject };
    delete(&api, desired, params.read()?, &headers).await
}

pub(super) async fn delete(
    api: &Api,
    desired: Desired,
    how: ChangeMode,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let version = expected(headers)?;
    let (applied, ()) = make(api, vec![TermsChange { desired, version }], how, |_| ()).await?;
    Ok(match how.dry_run {
        true => Json(applied).into_response(),
        false => StatusCode::NO_CONTENT.into_response(),
    })
}
