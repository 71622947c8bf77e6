//! `GET /v1/steps/{id}/explain`: the core's explanation of a step's state.

use axum::Json;
use axum::extract::State;
use sluice_common::api::ExplainView;

use super::Api;
use super::error::ApiError;
use super::params::{self, Segment};
use crate::view;

pub(super) async fn explain(
    State(api): State<Api>,
    Segment(segment): Segment,
) -> Result<Json<ExplainView>, ApiError> {
    let id = params::step_id(&segment)?;
    let read = move |core: &coordinator_core::Core| {
        view::explain(core, &id).ok_or_else(|| core.unknown_step(&id))
    };
    Ok(Json(api.engine().read(read).await??))
}
