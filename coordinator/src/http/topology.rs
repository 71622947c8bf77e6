//! Reads and changes of the topology. `terms.rs` changes several documents at once.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use coordinator_core::{Core, spec};
use sluice_common::api::{DomainView, TopologyView};

use super::Api;
use super::error::ApiError;
use super::etag::tagged;
use super::params::NoParams;
use super::put::PutRequest;

fn view(core: &Core) -> TopologyView {
    let state = core.state();
    let topology = state.topology();
    let levels = &topology.terms.levels;
    let mut domains: BTreeMap<&[String], (u64, u64)> = BTreeMap::new();
    for node in state.nodes().values() {
        let path = state.domain_path(&node.name);
        for depth in 1..=path.len() {
            let (nodes, gpus) = domains.entry(&path[..depth]).or_default();
            *nodes += 1;
            *gpus += node.inventory.gpus.len() as u64;
        }
    }
    let domains = domains.into_iter().map(|(path, (nodes, gpus))| DomainView {
        level: levels[path.len() - 1].name.to_string(),
        path: path.join("/"),
        nodes,
        gpus,
    });
    TopologyView {
        levels: levels.clone(),
        domains: domains.collect(),
        version: topology.version,
    }
}

/// Handles `GET /v1/topology`.
pub(super) async fn get(State(api): State<Api>, _: NoParams) -> Result<Response, ApiError> {
    let found = api.engine().read(view).await?;
    Ok(tagged(found.version, Json(found)))
}

/// Handles `PUT /v1/topology`: replaces the topology.
pub(super) async fn put(State(api): State<Api>, put: PutRequest) -> Result<Response, ApiError> {
    let terms = put.body()?;
    let wanted = spec::topology(terms).map_err(ApiError::Field)?;
    let seen = |core: &Core| Some(view(core)).map(|it| (it.version, it));
    put.make(&api, wanted, seen).await
}
