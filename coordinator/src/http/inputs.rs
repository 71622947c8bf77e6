//! Uploads of steps' inputs: `PUT` of a file by its hash, and `GET` to learn whether it is here. Each caller sees his own
//! alone.

use axum::Json;
use axum::extract::{Request, State};
use coordinator_core::NewStep;
use ring::digest::{SHA256, digest};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::InputView;
use sluice_common::inputs::{InputHash, MAX_INPUT_BYTES};
use tokio::task::spawn_blocking;

use super::access::Caller;
use super::error::ApiError;
use super::params::{NoParams, Segment, invalid};
use super::{Api, body};
use crate::inputs::InputKey;

/// Handles `GET /v1/inputs/{sha256}`: 200 if the caller has uploaded it, and it is then kept for an hour.
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<InputView>, ApiError> {
    let key = key(&caller, &segment)?;
    let size = api.0.inputs.want(&key);
    let sha256 = key.1;
    match size {
        Some(size) => Ok(Json(InputView { sha256, size })),
        None => Err(ApiError::UnknownInput { sha256 }),
    }
}

/// Handles `PUT /v1/inputs/{sha256}`: 200 once the file is durable. A repeat is harmless.
pub(super) async fn put(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    _: NoParams,
    request: Request,
) -> Result<Json<InputView>, ApiError> {
    let key = key(&caller, &segment)?;
    api.disk_space().check()?;
    let limit = usize::try_from(MAX_INPUT_BYTES).unwrap_or(usize::MAX);
    let mut part = api.0.inputs.begin(&key.0)?;
    body::read_into(request, limit, |bytes| Ok(part.write(bytes)?)).await?;
    caller
        .note(&api, (Verb::Create, Resource::Steps), Some("an input"))
        .await?;
    let (inputs, sha256) = (api.0.inputs.clone(), key.1.clone());
    let stored = spawn_blocking(move || inputs.complete(part, key)).await;
    let size = stored.map_err(|error| ApiError::Internal {
        message: error.to_string(),
    })??;
    Ok(Json(InputView { sha256, size }))
}

/// The key of a caller's file, if he may submit steps at all.
fn key(caller: &Caller, segment: &str) -> Result<InputKey, ApiError> {
    let ask = AccessQuery {
        verb: Verb::Create,
        resource: Resource::Steps,
        pool: Scope::Any,
        subject: Scope::Any,
    };
    caller.require(&ask, None)?;
    let hash = segment.parse();
    let hash = hash.map_err(|e| invalid("sha256", format!("`{}`: {e}", segment.escape_debug())))?;
    Ok((uploader(caller), hash))
}

/// The caller as files are stored for him.
fn uploader(caller: &Caller) -> InputHash {
    let hash = digest(&SHA256, caller.binding().as_bytes());
    InputHash::of_digest(hash.as_ref())
}

/// Notes who uploaded the inputs of a step, and fails if one is not here.
pub(super) fn find(api: &Api, caller: &Caller, step: &mut NewStep) -> Result<(), ApiError> {
    if step.spec.inputs.is_empty() {
        return Ok(());
    }
    let by = uploader(caller);
    for input in &step.spec.inputs {
        let size = api.0.inputs.want(&(by.clone(), input.sha256.clone()));
        if size != Some(input.size) {
            return Err(ApiError::MissingInput {
                name: input.name.clone(),
                found: size,
            });
        }
    }
    step.spec.inputs_by = Some(by);
    Ok(())
}
