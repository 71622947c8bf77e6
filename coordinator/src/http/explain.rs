//! `GET /v1/steps/{id}/explain`: the core's explanation of a step's state.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sluice_common::api::ExplainView;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::Api;
use super::error::ApiError;
use super::params::{self, Segment};
use crate::view;

/// Most searches for remedies at one time: each has a copy of all waiting requests and takes a processor.
const MAX_SEARCHES: usize = 2;

/// Limit of searches for remedies at one time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct RemedySearchLimit(Arc<Semaphore>);

impl Default for RemedySearchLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SEARCHES)))
    }
}

pub(super) async fn explain(
    State(api): State<Api>,
    Segment(segment): Segment,
) -> Result<Json<ExplainView>, ApiError> {
    let id = params::step_id(&segment)?;
    let read = move |core: &coordinator_core::Core| {
        view::explain(core, &id).ok_or_else(|| core.unknown_step(&id))
    };
    // Before the engine makes a copy, so that there are no more copies than searches.
    let permit = Arc::clone(&api.0.remedy_searches.0).acquire_owned().await;
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
