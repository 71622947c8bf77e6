//! `GET /v1/steps/{id}/explain`: the core's explanation of a step's state.

use axum::Json;
use axum::extract::State;
use coordinator_core::Refusal;
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
    let wanted = id.clone();
    let read = move |core: &coordinator_core::Core| view::explain(core, &wanted);
    let found = api.engine().read(read).await?;
    found
        .map(Json)
        .ok_or(ApiError::Refused(Refusal::UnknownStep { step: id }))
}
