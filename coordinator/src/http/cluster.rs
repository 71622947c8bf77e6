//! The terms of the cluster as a whole: seen, and set by their own path. `terms.rs` sets them beside others.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use coordinator_core::{Core, written};
use sluice_common::api::ClusterView;

use super::Api;
use super::error::ApiError;
use super::params::NoParams;
use super::put::Put;
use super::tag::tagged;

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
pub(super) async fn put(State(api): State<Api>, put: Put) -> Result<Response, ApiError> {
    let terms = put.body()?;
    let wanted = written::cluster(terms).map_err(ApiError::Field)?;
    let seen = |core: &Core| Some(view(core)).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}
