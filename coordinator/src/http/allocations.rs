//! Reads, renewals and releases of allocations. An allocation is a step without a program: `submit.rs` makes them, and
//! `steps/list.rs` lists them.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::Method;
use coordinator_core::{Core, Refusal};
use serde::Deserialize;
use sluice_common::allocation::{RenewalRequest, check_lease};
use sluice_common::api::StepView;
use sluice_common::id::StepId;
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::time::Span;

use super::access::Caller;
use super::error::ApiError;
use super::params::{self, NoParams, Params, Segment};
use super::steps;
use super::verbs::ALLOCATIONS;
use super::{Api, body};
use crate::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseParams {
    grace_period: Option<String>,
}

/// Handles `GET /v1/allocations/{id}`.
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<Json<StepView>, ApiError> {
    let (id, _) = ALLOCATIONS.split(&segment, "GET")?;
    let view = steps::read(&api, params::step_id(id)?).await?;
    require_allocation(&view)?;
    Ok(Json(caller.seen(view)))
}

/// Handles `POST /v1/allocations/{id}:renew` and `:release`; only the first has a body, which may be empty.
pub(super) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    // Checked after the verb, because an unknown verb has no parameters.
    params: Result<Params<ReleaseParams>, ApiError>,
    request: Request,
) -> Result<Json<StepView>, ApiError> {
    let (id, verb) = ALLOCATIONS.split(&segment, "POST")?;
    let id = params::step_id(id)?;
    let Params(ReleaseParams { grace_period }) = params?;
    let view = match verb {
        Some("release") => release(&api, id, grace_period.as_deref()).await?,
        _ if grace_period.is_some() => {
            let belongs = "`grace_period` belongs to `/v1/allocations/ID:release`";
            return Err(params::invalid("grace_period", belongs));
        }
        _ => renew(&api, id, request).await?,
    };
    Ok(Json(caller.seen(view)))
}

/// Answers every other method.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    ALLOCATIONS.refuse(&segment, method.as_str())
}

async fn renew(api: &Api, id: StepId, request: Request) -> Result<StepView, ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let RenewalRequest { state, lease } = match json.is_empty() {
        true => RenewalRequest::default(),
        false => body::parse(&json, "")?,
    };
    let lease = lease.as_deref().map(check_lease).transpose()?;
    let renewed = api.engine().renew(id, lease, state, |core: &Core, result| {
        result.map(|id| (view::step_by_id(core, &id), id))
    });
    let (view, id) = renewed.await??;
    view.ok_or(ApiError::Refused(Refusal::UnknownStep { step: id }))
}

/// Ends an allocation: programs that its holder has left there are killed after the grace period, or at once.
async fn release(api: &Api, id: StepId, grace: Option<&str>) -> Result<StepView, ApiError> {
    let grace = steps::grace(grace)?.unwrap_or(Span::ZERO);
    require_allocation(&steps::read(api, id.clone()).await?)?;
    steps::cancel(api, id, Some(grace)).await
}

fn require_allocation(view: &StepView) -> Result<(), ApiError> {
    if view.allocation.is_some() {
        return Ok(());
    }
    let step = params::step_id(&view.id)?;
    Err(Refusal::NotAnAllocation { step }.into())
}
