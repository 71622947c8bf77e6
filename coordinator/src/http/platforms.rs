//! Reads and changes of a pool's platforms. `terms.rs` makes the changes.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use coordinator_core::spec::{self, invalid, platform_name};
use coordinator_core::{Core, Desired, Refusal};
use sluice_common::api::{Page, PlatformView};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PlatformName, PoolName};
use sluice_common::platform::spec::PlatformSpec;

use super::Api;
use super::error::ApiError;
use super::etag::tagged;
use super::params::{NoParams, Params, Segment};
use super::put::PutRequest;
use super::terms::length::override_is_short;
use super::terms::{ChangeParams, delete};
use crate::view;

/// A platform of a pool, from a path.
pub(super) struct PlatformPath {
    pool: PoolName,
    platform: PlatformName,
}

impl<S: Send + Sync> FromRequestParts<S> for PlatformPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<(String, String)>, _> = Path::from_request_parts(parts, state).await;
        let Ok(Path((pool, platform))) = path else {
            let path = parts.uri.path().to_owned();
            return Err(ApiError::UnknownRoute { path });
        };
        Ok(Self {
            pool: PoolName::new(pool)
                .map_err(|e| ApiError::Field(invalid("pool", ErrorCode::InvalidPool, &e)))?,
            platform: platform_name("platform", platform).map_err(ApiError::Field)?,
        })
    }
}

/// Handles `GET /v1/pools/{pool}/platforms`: all of them, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<Page<PlatformView>>, ApiError> {
    let unknown = ApiError::UnknownPool {
        pool: segment.escape_debug().to_string(),
    };
    let Ok(name) = PoolName::new(segment) else {
        return Err(unknown);
    };
    let look = move |core: &Core| Some(view::platform::all(core, core.state().pool(&name)?));
    let items = api.engine().read(look).await?.ok_or(unknown)?;
    Ok(Json(Page::of(items, None)))
}

/// Handles `GET /v1/pools/{pool}/platforms/{platform}`.
pub(super) async fn get(
    State(api): State<Api>,
    PlatformPath { pool, platform }: PlatformPath,
    _: NoParams,
) -> Result<Response, ApiError> {
    let look = move |core: &Core| {
        let found = view::platform::one(core, &pool, &platform);
        found.ok_or_else(|| {
            let known = core.state().pool(&pool).into_iter();
            let known = known.flat_map(|it| view::platform::all(core, it));
            let known = known.filter_map(|it| PlatformName::new(it.name).ok());
            Refusal::UnknownPlatform {
                known: known.collect(),
                pool,
                platform,
                named: false,
            }
        })
    };
    let found = api.engine().read(look).await?.map_err(ApiError::Refused)?;
    Ok(tagged(found.version, Json(found)))
}

/// Handles `PUT /v1/pools/{pool}/platforms/{platform}`: creates or replaces it.
pub(super) async fn put(
    State(api): State<Api>,
    PlatformPath { pool, platform }: PlatformPath,
    put: PutRequest,
) -> Result<Response, ApiError> {
    let terms: PlatformSpec = put.body()?;
    override_is_short("override", &terms.overrides)?;
    let terms = spec::platform_terms(terms)?;
    let (of, name) = (pool.clone(), platform.clone());
    let wanted = Desired::Platform {
        pool,
        platform,
        terms: terms.into(),
    };
    let seen = move |core: &Core| view::platform::one(core, &of, &name).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}

/// Handles `DELETE /v1/pools/{pool}/platforms/{platform}`: 204. Steps on its GPUs run on.
pub(super) async fn remove(
    State(api): State<Api>,
    PlatformPath { pool, platform }: PlatformPath,
    Params(params): Params<ChangeParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wanted = Desired::NoPlatform { pool, platform };
    delete(&api, wanted, params.read()?, &headers).await
}
