//! API tokens: create, list and revoke. The secret is shown once; only its hash is kept.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coordinator_core::{AccessChange, AccessSnapshot, Input, Refusal, StoredToken};
use sluice_common::access::{ApiToken, NamePattern, RoleGrant};
use sluice_common::api::{ApiTokenCreated, ApiTokenRequest, ApiTokenView, Page, timestamp};
use sluice_common::error_code::ErrorCode;
use sluice_common::hex;
use sluice_common::id::{RoleName, TokenName, UserName};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::request::FieldError;
use sluice_common::time::{Span, Time};

use super::access::Caller;
use super::auth::credentials::digest_of;
use super::error::ApiError;
use super::masked::API_TOKEN;
use super::page::NamePageParams;
use super::params::{NoParams, Params, Segment};
use super::pools::invalid;
use super::random::random_bytes;
use super::{Api, body};
use crate::clock::wall;

/// Random bytes of a token.
const SECRET_BYTES: usize = 32;
/// Most roles, pools or subjects of a token.
const MAX_ENTRIES: usize = 64;

/// Handles `GET /v1/api-tokens`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<ApiTokenView>>, ApiError> {
    let wanted = params.read()?;
    let snapshot = api.engine().access_snapshot();
    let tokens = wanted.of(&snapshot.access.tokens);
    let views = tokens.map(|(name, stored)| view(name, stored));
    Ok(Json(wanted.page(views, |view| view.name.clone())))
}

/// Handles `GET /v1/api-tokens/{token}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<ApiTokenView>, ApiError> {
    find(&api.engine().access_snapshot(), &segment).map(Json)
}

fn find(snapshot: &AccessSnapshot, segment: &str) -> Result<ApiTokenView, ApiError> {
    let name = TokenName::new(segment).ok();
    let found = name.and_then(|name| {
        let stored = snapshot.access.tokens.get(&name)?;
        Some(view(&name, stored))
    });
    found.ok_or_else(|| {
        let token = segment.escape_debug().to_string();
        ApiError::Refused(Refusal::UnknownApiToken { token })
    })
}

fn view(name: &TokenName, StoredToken { token, created_at }: &StoredToken) -> ApiTokenView {
    ApiTokenView {
        name: name.to_string(),
        grants: token.grants.clone(),
        user: token.user.as_ref().map(ToString::to_string),
        created_by: token.created_by.clone(),
        created_at: timestamp(*created_at),
        expires_at: token.expires_at.map(timestamp),
        expired: token.expires_at.is_some_and(|end| end <= wall()),
    }
}

/// Handles `POST /v1/api-tokens`: 201 with the secret, which is never shown again.
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    _: NoParams,
    request: Request,
) -> Result<Response, ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let wanted: ApiTokenRequest = body::parse(&json, "")?;
    let user = wanted.user.clone().map(UserName::new).transpose();
    let user = user.map_err(|e| wrong("user", &e))?;
    let (name, grants, expires_at) = understood(wanted)?;
    caller.check_grants(&grants)?;
    caller.check_token_user(user.as_ref())?;
    let secret = draw()?;
    let terms = ApiToken {
        digest: digest_of(secret.as_bytes()),
        grants,
        user,
        created_by: caller.who().to_string(),
        expires_at,
    };
    let token = name.clone();
    change(&api, AccessChange::ApiTokenCreated { token, terms }).await?;
    let token = find(&api.engine().access_snapshot(), name.as_str())?;
    Ok((StatusCode::CREATED, Json(ApiTokenCreated { token, secret })).into_response())
}

/// Handles `DELETE /v1/api-tokens/{token}`: 204. The token is void from then on.
pub(super) async fn revoke(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<StatusCode, ApiError> {
    let Ok(token) = TokenName::new(segment.as_str()) else {
        let token = segment.escape_debug().to_string();
        return Err(ApiError::Refused(Refusal::UnknownApiToken { token }));
    };
    change(&api, AccessChange::ApiTokenRevoked { token }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change(api: &Api, change: AccessChange) -> Result<(), ApiError> {
    let input = move |reply| Input::Access { reply, change };
    Ok(api.engine().change(input, |_, done| done).await??)
}

fn understood(
    wanted: ApiTokenRequest,
) -> Result<(TokenName, Vec<RoleGrant>, Option<Time>), FieldError> {
    let ApiTokenRequest {
        name,
        roles,
        pools,
        subjects,
        user: _,
        ttl,
    } = wanted;
    let name = TokenName::new(name).map_err(|e| wrong("name", &e))?;
    if roles.is_empty() {
        return Err(wrong("roles", &"name at least one role, such as `viewer`"));
    }
    let pools = patterns("pools", &pools)?;
    let subjects = patterns("subjects", &subjects)?;
    let submits = |role: &String| {
        let of_pool = role.strip_prefix("pool-");
        role == "submitter" || of_pool.is_some_and(|rest| rest.ends_with("-submitter"))
    };
    if roles.iter().any(submits) && subjects.is_empty() {
        let why = "name the subjects for which it submits; `*` is all of them";
        return Err(wrong("subjects", &why));
    }
    let roles = bounded("roles", roles)?.into_iter().map(|role| {
        Ok(RoleGrant {
            role: RoleName::new(role).map_err(|e| wrong("roles", &e))?,
            pools: pools.clone(),
            subjects: subjects.clone(),
        })
    });
    let ttl = ttl.map(|text| text.parse::<Span>()).transpose();
    let ttl = ttl.map_err(|e| invalid("ttl", ErrorCode::InvalidDuration, &e))?;
    if ttl == Some(Span::ZERO) {
        let why = "the token would expire at once";
        return Err(invalid("ttl", ErrorCode::InvalidDuration, &why));
    }
    let grants: Vec<RoleGrant> = roles.collect::<Result<_, _>>()?;
    Ok((name, grants, ttl.map(|ttl| wall() + ttl)))
}

fn patterns(field: &str, words: &[String]) -> Result<Vec<NamePattern>, FieldError> {
    let words = bounded(field, words.iter().collect())?.into_iter();
    let read = words.map(|word| word.parse().map_err(|e| wrong(field, &e)));
    read.collect()
}

fn bounded<T>(field: &str, entries: Vec<T>) -> Result<Vec<T>, FieldError> {
    match entries.len() {
        0..=MAX_ENTRIES => Ok(entries),
        n => Err(wrong(
            field,
            &format!("{n} are too many: write at most {MAX_ENTRIES}"),
        )),
    }
}

fn wrong(field: &str, why: &impl ToString) -> FieldError {
    invalid(field, ErrorCode::InvalidAccess, why)
}

fn draw() -> Result<String, ApiError> {
    let bytes = random_bytes::<SECRET_BYTES>("a token")?;
    Ok(format!("{API_TOKEN}{}", hex::encode(&bytes)))
}
