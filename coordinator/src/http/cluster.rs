//! Reads and changes of the cluster's settings. `terms.rs` changes several documents at once.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use coordinator_core::{Core, spec};
use sluice_common::api::ClusterView;

use super::Api;
use super::error::ApiError;
use super::etag::tagged;
use super::params::NoParams;
use super::put::PutRequest;

fn view(core: &Core) -> ClusterView {
    let cluster = core.state().cluster();
    ClusterView {
        default_pool: cluster.terms.default_pool.clone(),
        subjects: cluster.terms.subjects.clone(),
        version: cluster.version,
    }
}

/// Handles `GET /v1/cluster`.
pub(super) async fn get(State(api): State<Api>, _: NoParams) -> Result<Response, ApiError> {
    let found = api.engine().read(view).await?;
    Ok(tagged(found.version, Json(found)))
}

/// Handles `PUT /v1/cluster`: replaces the settings.
pub(super) async fn put(State(api): State<Api>, put: PutRequest) -> Result<Response, ApiError> {
    let terms = put.body()?;
    let wanted = spec::cluster(terms).map_err(ApiError::Field)?;
    let seen = |core: &Core| Some(view(core)).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}
