//! Changes of the terms of pools and of subjects in them: several in one call, all of them or none, or one by its own
//! path. `pools.rs` shows what there is.
//!
//! Every change may be looked at first (`dry_run`), made only where the thing has not changed since (`version`, or
//! `If-Match`), and made though somebody uses what it takes away (`force`).

mod outcome;
mod rights;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::market::{Policy, Table};
use coordinator_core::{Applied, Change, Core, PoolWritten, Refused, Wanted};
use serde::Deserialize;
use sluice_common::access::{BindingTerms, RoleTerms};
use sluice_common::api::{
    ApplyRequest, ApplyView, DeleteDocument, PolicyRequest, PoolRequest, PutDocument, RulesWritten,
};
use sluice_common::cluster::ClusterTerms;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PoolName, Subject};
use sluice_common::inventory::Capability;
use sluice_common::limit::{MAX_AMOUNT, MAX_BATCH_BODY_BYTES};
use sluice_common::platform::terms::PlatformTerms;
use sluice_common::request::FieldError;
use sluice_common::time::Span;
use sluice_common::validation::ValidationTerms;

use super::access::Caller;
use super::error::ApiError;
use super::params::{self, Params, Segment};
use super::pools::{Binding, invalid};
use super::put::Put;
use super::{Api, body, platforms, rules, templates, validations};
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
    match document {
        PutDocument::Pool {
            name,
            description,
            capacity,
            min_runtime,
            require,
            maintenance,
            defaults,
            max,
            on_preempt_allowed,
            validations,
            default_platform,
            unmatched_platform,
            platforms,
            templates,
            version,
        } => {
            let request = PoolRequest {
                description,
                capacity,
                min_runtime,
                require,
                maintenance,
                defaults,
                max,
                on_preempt_allowed,
                validations,
                default_platform,
                unmatched_platform,
                platforms,
                templates,
            };
            let pool = pool_name("name", name)?;
            let terms = written(request)?;
            let terms = Box::new(terms);
            let wanted = Wanted::Pool { pool, terms };
            Ok(Change { wanted, version })
        }
        PutDocument::Template {
            name,
            template,
            version,
        } => {
            let wanted = templates::wanted(name, template)?;
            Ok(Change { wanted, version })
        }
        PutDocument::Cluster {
            default_pool,
            subjects,
            version,
        } => {
            let terms = ClusterTerms {
                default_pool,
                subjects,
            };
            let wanted = Wanted::Cluster { terms };
            Ok(Change { wanted, version })
        }
        PutDocument::Validation {
            name,
            description,
            assertions,
            version,
        } => {
            let terms = ValidationTerms {
                description,
                assertions,
            };
            let wanted = validations::wanted(name, terms)?;
            Ok(Change { wanted, version })
        }
        PutDocument::Platform {
            pool,
            name,
            description,
            selector,
            overrides,
            validations,
            version,
        } => {
            let terms = PlatformTerms {
                description,
                selector,
                overrides,
                validations,
            };
            let pool = pool_name("pool", pool)?;
            let platform = platforms::platform_name("name", name)?;
            let terms = Box::new(platforms::checked("", terms)?);
            let wanted = Wanted::Platform {
                pool,
                platform,
                terms,
            };
            Ok(Change { wanted, version })
        }
        PutDocument::Role {
            name,
            description,
            rules,
            version,
        } => {
            let terms = RoleTerms { description, rules };
            rights::put_role(name, terms, version)
        }
        PutDocument::Binding {
            name,
            description,
            roles,
            pools,
            subjects,
            members,
            version,
        } => {
            let terms = BindingTerms {
                description,
                roles,
                pools,
                subjects,
                members,
            };
            rights::put_binding(name, terms, version)
        }
        PutDocument::Policy {
            pool,
            subject,
            priority,
            reserved,
            limit,
            version,
        } => {
            let policy = bound(PolicyRequest {
                priority,
                reserved,
                limit,
            })?;
            let (pool, subject) = (pool_name("pool", pool)?, subject_name(subject)?);
            let wanted = Wanted::Policy {
                pool,
                subject,
                policy,
            };
            Ok(Change { wanted, version })
        }
    }
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
            validation: validations::named(name)?,
        },
        DeleteDocument::Platform { pool, name } => {
            let platform = platforms::platform_name("name", name)?;
            let pool = pool_name("pool", pool)?;
            Wanted::NoPlatform { pool, platform }
        }
        DeleteDocument::Template { name } => {
            let template = templates::template_name("name", name)?;
            Wanted::NoTemplate { template }
        }
    };
    let version = None;
    Ok(Change { wanted, version })
}

fn pool_name(field: &str, name: String) -> Result<PoolName, FieldError> {
    PoolName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidPool, &e))
}

fn subject_name(name: String) -> Result<Subject, FieldError> {
    Subject::new(name).map_err(|e| invalid("subject", ErrorCode::InvalidSubject, &e))
}

fn amounts(field: &str, table: Table) -> Result<Table, FieldError> {
    for (key, n) in &table {
        amount(&format!("{field}.{key}"), *n)?;
    }
    Ok(table)
}

fn amount(field: &str, n: u64) -> Result<u64, FieldError> {
    match n {
        0..=MAX_AMOUNT => Ok(n),
        _ => {
            let why = format!("{n} is too large: write at most {MAX_AMOUNT}");
            Err(invalid(field, ErrorCode::InvalidAmount, &why))
        }
    }
}

fn bound(request: PolicyRequest) -> Result<Policy, FieldError> {
    Ok(Policy {
        priority: amount("priority", request.priority)?,
        reserved: amounts("reserved", request.reserved)?,
        limit: amounts("limit", request.limit)?,
    })
}

fn written(request: PoolRequest) -> Result<PoolWritten, FieldError> {
    let PoolRequest {
        description,
        capacity,
        min_runtime,
        require,
        maintenance,
        defaults,
        max,
        on_preempt_allowed,
        validations,
        default_platform,
        unmatched_platform,
        platforms,
        templates,
    } = request;
    let min_runtime: Option<Result<Span, _>> = min_runtime.as_deref().map(str::parse);
    let min_runtime = min_runtime.transpose();
    let min_runtime =
        min_runtime.map_err(|e| invalid("min_runtime", ErrorCode::InvalidDuration, &e))?;
    rules::able_to_pin(PoolWritten {
        description,
        capacity: amounts("capacity", capacity)?,
        min_runtime: min_runtime.unwrap_or(Span::ZERO),
        require: capabilities(&require)?,
        rules: rules::checked(RulesWritten {
            maintenance,
            defaults,
            max,
            on_preempt_allowed,
            validations,
            default_platform,
            unmatched_platform,
            templates,
        })?,
        platforms: platforms::listed(platforms)?,
    })
}

fn capabilities(words: &[String]) -> Result<BTreeSet<Capability>, FieldError> {
    let named = words.iter().enumerate().map(|(at, word)| {
        let field = format!("require[{at}]");
        word.parse()
            .map_err(|e| invalid(&field, ErrorCode::InvalidCapability, &e))
    });
    named.collect()
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

/// The version that a caller expects: `If-Match: "7"`, or `If-None-Match: *` for what must not be there.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let text = |name: HeaderName| {
        let value = headers.get(name)?;
        Some(value.to_str().unwrap_or("").trim())
    };
    if let Some(text) = text(IF_NONE_MATCH) {
        return match text {
            "*" => Ok(Some(0)),
            _ => Err(params::invalid(
                "If-None-Match",
                "write `*`, for what must not be there",
            )),
        };
    }
    let Some(text) = text(IF_MATCH).filter(|text| *text != "*") else {
        return Ok(None);
    };
    let number = text.trim_matches('"').parse();
    number.map(Some).map_err(|_| {
        params::invalid(
            "If-Match",
            format!(
                "`{}` is no version: write it as the `ETag` has it",
                text.escape_debug()
            ),
        )
    })
}

/// A thing with its version, by which a later change can say what it was made for.
pub(super) fn tagged(version: u64, body: impl IntoResponse) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{version}\""));
    let tag = tag.expect("digits between quotes are a header's value");
    ([(ETAG, tag)], body).into_response()
}

/// `PUT /v1/pools/{pool}`: makes it, or gives it these terms and no others. Its policies stay.
pub(super) async fn put_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    put: Put,
) -> Result<Response, ApiError> {
    let pool = pool_name("pool", segment).map_err(ApiError::Field)?;
    let terms = written(put.body()?).map_err(ApiError::Field)?;
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
    let policy = bound(put.body()?).map_err(ApiError::Field)?;
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
