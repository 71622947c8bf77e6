//! Reads of nodes and pools.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use coordinator_core::Core;
use serde::Deserialize;
use sluice_common::access::Resource;
use sluice_common::api::{NodeView, Page, PoolView};
use sluice_common::id::{NodeName, PoolName};
use sluice_common::state::NodeState;

use super::Api;
use super::access::Caller;
use super::error::ApiError;
use super::etag::tagged;
use super::page::{NamePage, NamePageParams};
use super::params::{self, NoParams, Params, Segment};
use crate::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeParams {
    cursor: Option<String>,
    limit: Option<String>,
    pool: Option<String>,
    state: Option<String>,
}

/// Handles `GET /v1/nodes`, sorted by name.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<NodeParams>,
) -> Result<Json<Page<NodeView>>, ApiError> {
    let asked = NamePage::read(params.cursor.as_deref(), params.limit.as_deref())?;
    let pool: Option<PoolName> = params::read("pool", params.pool.as_deref())?;
    let state = params.state.as_deref().map(node_state).transpose()?;
    let links = api.0.nodes.clone();
    let look = move |core: &Core| {
        let nodes = asked.of(core.state().nodes()).map(|(_, node)| node);
        let wanted = nodes.filter(|node| {
            pool.as_ref().is_none_or(|pool| node.pool == *pool)
                && state.is_none_or(|state| node.state == state)
                && caller.may_list_in(Resource::Nodes, &node.pool)
        });
        let views =
            wanted.map(|node| view::node(core, node, links.readings(&node.name).as_deref()));
        asked.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

fn node_state(word: &str) -> Result<NodeState, ApiError> {
    let known = NodeState::ALL;
    let found = known.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| {
        let all: Vec<_> = known.map(NodeState::as_str).into();
        let message = format!(
            "`{}` is not a state: write one of {}",
            word.escape_debug(),
            all.join(", ")
        );
        params::invalid("state", message)
    })
}

/// Handles `GET /v1/nodes/{node}`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<NodeView>, ApiError> {
    let unknown = || ApiError::UnknownNode {
        node: segment.escape_debug().to_string(),
    };
    let name = NodeName::new(segment.as_str()).map_err(|_| unknown())?;
    let readings = api.0.nodes.readings(&name);
    let look = move |core: &Core| {
        let node = core.state().node(&name)?;
        Some(view::node(core, node, readings.as_deref()))
    };
    api.engine().read(look).await?.map(Json).ok_or_else(unknown)
}

/// Handles `GET /v1/pools`, sorted by name.
pub(super) async fn list_pools(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<NamePageParams>,
) -> Result<Json<Page<PoolView>>, ApiError> {
    let wanted = params.read()?;
    let look = move |core: &Core| {
        let pools = wanted.of(core.state().pools());
        let pools = pools.filter(|(name, _)| caller.may_list_in(Resource::Pools, name));
        let views = pools.map(|(_, pool)| view::pool(core, pool));
        wanted.page(views, |view| view.name.clone())
    };
    Ok(Json(api.engine().read(look).await?))
}

/// Handles `GET /v1/pools/{pool}`.
pub(super) async fn get_pool(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Response, ApiError> {
    let unknown = || ApiError::UnknownPool {
        pool: segment.escape_debug().to_string(),
    };
    let name = PoolName::new(segment.as_str()).map_err(|_| unknown())?;
    let look = move |core: &Core| core.state().pool(&name).map(|pool| view::pool(core, pool));
    let view = api.engine().read(look).await?.ok_or_else(unknown)?;
    Ok(tagged(view.version, Json(view)))
}
