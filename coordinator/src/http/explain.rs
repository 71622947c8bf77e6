//! `GET /v1/steps/{id}/explain`: the core's explanation of a step's state.

use axum::Json;
use axum::extract::State;
use sluice_common::api::ExplainView;
use tokio::task::spawn_blocking;

use super::Api;
use super::access::Caller;
use super::error::ApiError;
use super::params::{self, Segment};
use crate::view;

pub(super) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
) -> Result<Json<ExplainView>, ApiError> {
    let id = params::step_id(&segment)?;
    let read = move |core: &coordinator_core::Core| {
        view::explain(core, &id).ok_or_else(|| core.unknown_step(&id))
    };
    // Before the engine makes a copy, so that there are no more copies than searches.
    let permit = api
        .0
        .remedy_searches
        .enter(&caller.who().to_string())
        .await?;
    let (mut explained, search) = api.engine().read(read).await??;
    let Some(search) = search else {
        return Ok(Json(explained));
    };
    let searched = spawn_blocking(move || {
        view::add_remedies(&mut explained, &search);
        // The search goes on if its caller hangs up, and counts until it ends.
        drop(permit);
        explained
    });
    let explained = searched.await.map_err(|error| ApiError::Internal {
        message: error.to_string(),
    })?;
    Ok(Json(explained))
}
