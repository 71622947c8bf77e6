//! Changes of the terms of pools and of subjects in them: several in one call, all of them or none, or one by its own
//! path. `pools.rs` shows what there is.
//!
//! Every change may be looked at first (`dry_run`), made only where the thing has not changed since (`version`, or
//! `If-Match`), and made though somebody uses what it takes away (`force`).

pub(super) mod length;
mod outcome;
mod rights;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::written::{self, platform_name, pool_name, subject_name, template_name};
use coordinator_core::{Applied, Change, Core, Refused, Wanted};
use serde::Deserialize;
use sluice_common::api::{ApplyRequest, ApplyView, DeleteDocument, PutDocument};
use sluice_common::id::PoolName;
use sluice_common::limit::MAX_BATCH_BODY_BYTES;
use sluice_common::pool::PoolSpec;
use sluice_common::request::FieldError;

use super::access::Caller;
use super::error::ApiError;
use super::params::{self, Params, Segment};
use super::pools::Binding;
use super::put::Put;
use super::tag::expected;
use super::{Api, body};
use crate::view;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HowParams {
    dry_run: Option<String>,
    force: Option<String>,
}

/// How changes are to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) dry_run: bool,
    force: bool,
}

impl HowParams {
    pub(super) fn read(&self) -> Result<How, ApiError> {
        Ok(How {
            dry_run: params::flag("dry_run", self.dry_run.as_deref())?,
            force: params::flag("force", self.force.as_deref())?,
        })
    }
}

/// `POST /v1/apply`.
pub(super) async fn apply(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<HowParams>,
    request: Request,
) -> Result<Json<ApplyView>, ApiError> {
    let how = params.read()?;
    let json = body::read(request, MAX_BATCH_BODY_BYTES).await?;
    let ApplyRequest { put, delete } = body::parse(&json, "")?;
    let put = put.into_iter().enumerate();
    let put = put.map(|(at, document)| {
        wanted(document).map_err(|error| within(error, &format!("put[{at}]")))
    });
    let delete = delete.into_iter().enumerate();
    let delete = delete.map(|(at, document)| {
        unwanted(document).map_err(|error| within(error, &format!("delete[{at}]")))
    });
    let changes: Vec<Change> = put.chain(delete).collect::<Result<_, _>>()?;
    rights::permit(&api, &caller, &changes, how.dry_run).await?;
    let (view, _) = make(&api, changes, how, |_| ()).await?;
    Ok(Json(view))
}

/// The error of one document, with its place before the field.
fn within(mut error: FieldError, place: &str) -> ApiError {
    error.field = format!("{place}.{}", error.field);
    ApiError::Field(error)
}

fn wanted(document: PutDocument) -> Result<Change, FieldError> {
    length::can_be_kept(&document)?;
    written::change(document)
}

fn unwanted(document: DeleteDocument) -> Result<Change, FieldError> {
    let wanted = match document {
        DeleteDocument::Role { name } => rights::no_role(name)?,
        DeleteDocument::Binding { name } => rights::no_binding(name)?,
        DeleteDocument::Pool { name } => {
            let pool = pool_name("name", name)?;
            Wanted::NoPool { pool }
        }
        DeleteDocument::Policy { pool, subject } => {
            let (pool, subject) = (pool_name("pool", pool)?, subject_name(subject)?);
            Wanted::NoPolicy { pool, subject }
        }
        DeleteDocument::Validation { name } => Wanted::NoValidation {
            validation: written::validation_name(name)?,
        },
        DeleteDocument::Platform { pool, name } => {
            let platform = platform_name("name", name)?;
            let pool = pool_name("pool", pool)?;
            Wanted::NoPlatform { pool, platform }
        }
        DeleteDocument::Template { name } => {
            let template = template_name("name", name)?;
            Wanted::NoTemplate { template }
        }
    };
    let version = None;
    Ok(Change { wanted, version })
}

/// Makes changes, or looks at what they would mean; `seen` looks at what is there afterwards.
pub(super) async fn make<R: Send + 'static>(
    api: &Api,
    changes: Vec<Change>,
    how: How,
    seen: impl FnOnce(&Core) -> R + Send + 'static,
) -> Result<(ApplyView, R), ApiError> {
    let wanted: Vec<Wanted> = changes.iter().map(|change| change.wanted.clone()).collect();
    let tell = move |core: &Core, applied: Result<Applied, Refused>| {
        applied.map(|applied| (outcome::view_of(how.dry_run, &wanted, applied), seen(core)))
    };
    let engine = api.engine();
    let made = engine.apply(changes, how.force, how.dry_run, tell).await?;
    made.map_err(|Refused { at, refusal }| ApiError::TermsRefused { at, refusal })
}

/// `PUT /v1/pools/{pool}`: makes it, or gives it these terms and no others. Its policies stay.
pub(super) async fn put_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: Put,
) -> Result<Response, ApiError> {
    let pool = pool_name("pool", segment).map_err(ApiError::Field)?;
    let spec: PoolSpec = put.body()?;
    length::of_platforms_can_be_kept(&spec).map_err(ApiError::Field)?;
    let terms = written::pool(spec).map_err(ApiError::Field)?;
    let name = pool.clone();
    let terms = Box::new(terms);
    let wanted = Wanted::Pool { pool, terms };
    let seen = move |core: &Core| {
        let found = core.state().pool(&name);
        found.map(|pool| (pool.version, view::pool(core, pool)))
    };
    put.make(&api, wanted, seen).await
}

/// `PUT /v1/pools/{pool}/policies/{subject}`: binds the subject on these terms and no others.
pub(super) async fn put_policy(
    State(api): State<Api>,
    Binding { pool, subject }: Binding,
    put: Put,
) -> Result<Response, ApiError> {
    let policy = written::policy(&subject, put.body()?).map_err(ApiError::Field)?;
    let (of, who) = (pool.clone(), subject.clone());
    let wanted = Wanted::Policy {
        pool,
        subject,
        policy,
    };
    let seen = move |core: &Core| view::policy(core, &of, &who).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}

/// `DELETE /v1/pools/{pool}`: 204. Its policies go with it; it must have no nodes.
pub(super) async fn delete_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    Params(params): Params<HowParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Ok(pool) = PoolName::new(segment.as_str()) else {
        return Err(ApiError::UnknownPool {
            pool: segment.escape_debug().to_string(),
        });
    };
    delete(&api, Wanted::NoPool { pool }, params.read()?, &headers).await
}

/// `DELETE /v1/pools/{pool}/policies/{subject}`: 204. What the subject runs there goes on.
pub(super) async fn delete_policy(
    State(api): State<Api>,
    Binding { pool, subject }: Binding,
    Params(params): Params<HowParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wanted = Wanted::NoPolicy { pool, subject };
    delete(&api, wanted, params.read()?, &headers).await
}

pub(super) async fn delete(
    api: &Api,
    wanted: Wanted,
    how: How,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let version = expected(headers)?;
    let (applied, ()) = make(api, vec![Change { wanted, version }], how, |_| ()).await?;
    Ok(match how.dry_run {
        true => Json(applied).into_response(),
        false => StatusCode::NO_CONTENT.into_response(),
    })
}
