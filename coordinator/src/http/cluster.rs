//! The terms of the cluster as a whole: seen, and set by their own path. `terms.rs` sets them beside others.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use coordinator_core::{Change, Core, Wanted};
use sluice_common::api::ClusterView;
use sluice_common::limit::MAX_BODY_BYTES;

use super::error::ApiError;
use super::params::{NoParams, Params};
use super::terms::{HowParams, expected, make, tagged};
use super::{Api, body};

fn view(core: &Core) -> ClusterView {
    let cluster = core.state().cluster();
    ClusterView {
        default_pool: cluster.terms.default_pool.clone(),
        subjects: cluster.terms.subjects.clone(),
        version: cluster.version,
    }
}

/// `GET /v1/cluster`.
pub(super) async fn get(State(api): State<Api>, _: NoParams) -> Result<Response, ApiError> {
    let found = api.engine().read(view).await?;
    Ok(tagged(found.version, Json(found)))
}

/// `PUT /v1/cluster`: gives it these terms and no others.
pub(super) async fn put(
    State(api): State<Api>,
    Params(params): Params<HowParams>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let how = params.read()?;
    let version = expected(&headers)?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let terms = body::parse(&json, "")?;
    let wanted = Wanted::Cluster { terms };
    let (applied, view) = make(&api, vec![Change { wanted, version }], how, view).await?;
    Ok(match how.dry_run {
        true => Json(applied).into_response(),
        false => tagged(view.version, Json(view)),
    })
}
