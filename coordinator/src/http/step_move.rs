//! Moves of queued steps to other pools. The core decides; this call checks the right to submit to the target, and
//! returns the step afterwards.

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use coordinator_core::spec::pool_name;
use coordinator_core::{Core, MoveTarget, Refusal};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::api::{MoveStepRequest, MovedStepView};
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::limit::MAX_BODY_BYTES;

use super::access::Caller;
use super::error::ApiError;
use super::{Api, body};
use crate::view;

/// Handles `POST /v1/steps/{step}:move`; with `dry_run`, 200 with the preview.
pub(super) async fn act(
    api: &Api,
    caller: &Caller,
    id: StepId,
    dry_run: bool,
    request: Request,
) -> Result<Response, ApiError> {
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let MoveStepRequest { pool } = body::parse(&json, "")?;
    let pool = pool_name("pool", pool)?;
    let asked = id.clone();
    let look = move |core: &Core| {
        let step = core.state().find(&asked);
        step.map(|step| step.spec.subject.clone())
            .ok_or_else(|| core.unknown_step(&asked))
    };
    let subject = api.engine().read(look).await??;
    let target = permit(caller, pool, &subject)?;
    if dry_run {
        let preview = |core: &Core, result: Result<_, Refusal>| {
            result.map(|preview| view::preview(core, preview))
        };
        let mut preview = api.engine().preview_move(id, target, preview).await??;
        preview.step = preview.step.map(|step| caller.seen(step));
        return Ok(Json(preview).into_response());
    }
    let asked = id.clone();
    let moved = api.engine().move_step(id, target, move |core, result| {
        let moved = result?;
        let step = view::step_by_id(core, &asked);
        let step = step.ok_or(Refusal::UnknownStep { step: asked })?;
        Ok::<_, Refusal>(MovedStepView { moved, step })
    });
    let MovedStepView { moved, step } = moved.await??;
    let step = caller.seen(step);
    Ok(Json(MovedStepView { moved, step }).into_response())
}

/// Fails if the caller may not submit the step to the target. The right to the step was checked before.
fn permit(caller: &Caller, pool: PoolName, subject: &Subject) -> Result<MoveTarget, ApiError> {
    let there = Scope::One(pool.as_str());
    let ask = AccessQuery {
        verb: Verb::Create,
        resource: Resource::Steps,
        pool: there,
        subject: Scope::One(subject.as_str()),
    };
    caller.require(&ask, None)?;
    let past_maintenance = caller.may(Verb::Update, Resource::Pools, there, Scope::Unscoped);
    Ok(MoveTarget {
        pool,
        past_maintenance,
    })
}
