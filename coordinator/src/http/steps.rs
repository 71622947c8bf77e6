//! Reads of one step, and waiting for, cancelling, suspending, resuming, requeueing, moving and deleting it. `steps/list.rs` has the
//! lists, `steps/many.rs` the calls on many steps.

mod fields;
mod filter;
mod list;
mod many;
mod order;
mod step_scan;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Core, PartPhase, Refusal, Step, StepAction};
use serde::Deserialize;
use sluice_common::api::StepView;
use sluice_common::id::StepId;
use sluice_common::limit::MAX_GRACE;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use tokio::time::timeout;

use super::access::Caller;
use super::error::ApiError;
use super::params::{self, NoParams, Params, Segment};
use super::verbs::STEPS;
use super::{Api, step_move};
use crate::view;

pub(super) use list::{list, list_allocations};
pub(super) use many::{act_on_many, cancel_many};

/// Default and longest time of `:wait`, below the timeouts of proxies and clients.
const DEFAULT_WAIT: Span = Span::from_secs(30);
const MAX_WAIT: Span = Span::from_secs(300);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    #[serde(rename = "for")]
    state: Option<String>,
    timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionParams {
    grace_period: Option<String>,
    dry_run: Option<String>,
}

/// Handles `GET /v1/steps/{id}` and `GET /v1/steps/{id}:wait`.
pub(super) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    // Checked after the verb, because an unknown verb has no parameters.
    params: Result<Params<WaitParams>, ApiError>,
) -> Result<Json<StepView>, ApiError> {
    let (id, verb) = STEPS.split(&segment, "GET")?;
    let Params(params) = params?;
    match verb {
        None if params.state.is_some() || params.timeout.is_some() => Err(params::invalid(
            "for",
            "`for` and `timeout` belong to `/v1/steps/ID:wait`",
        )),
        None => read(&api, params::step_id(id)?).await,
        Some(_) => wait(&api, params::step_id(id)?, &params).await,
    }
    .map(|view| Json(caller.seen(view)))
}

/// Handles `POST /v1/steps/{id}:cancel`, `:suspend`, `:resume`, `:requeue` and `:move`; only the last needs a body.
pub(super) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Segment(segment): Segment,
    // Checked after the verb, as above.
    params: Result<Params<ActionParams>, ApiError>,
    request: Request,
) -> Result<Response, ApiError> {
    let (id, verb) = STEPS.split(&segment, "POST")?;
    let id = params::step_id(id)?;
    let ActionParams {
        grace_period,
        dry_run,
    } = params?.0;
    if dry_run.is_some() && verb != Some("move") {
        let belongs = "`dry_run` belongs to `/v1/steps/ID:move`";
        return Err(params::invalid("dry_run", belongs));
    }
    let dry_run = params::flag("dry_run", dry_run.as_deref())?;
    let grace = grace(grace_period.as_deref())?;
    if grace.is_some() && verb != Some("cancel") {
        let belongs = "`grace_period` belongs to `/v1/steps/ID:cancel`";
        return Err(params::invalid("grace_period", belongs));
    }
    match verb {
        Some("move") => return step_move::act(&api, &caller, id, dry_run, request).await,
        Some("suspend") => act_on_step(&api, id, StepAction::Suspend).await,
        Some("resume") => act_on_step(&api, id, StepAction::Resume).await,
        Some("requeue") => act_on_step(&api, id, StepAction::Requeue).await,
        _ => cancel(&api, id, grace).await,
    }
    .map(|view| Json(caller.seen(view)).into_response())
}

/// Handles `DELETE /v1/steps/{id}`: 204 if it is forgotten.
pub(super) async fn delete(
    State(api): State<Api>,
    Segment(segment): Segment,
    _: NoParams,
) -> Result<StatusCode, ApiError> {
    let (id, _) = STEPS.split(&segment, "DELETE")?;
    let id = params::step_id(id)?;
    let forgotten = (api.engine()).act_on_step(id, StepAction::Delete, |_, result| result);
    forgotten.await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers every other method.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    STEPS.refuse(&segment, method.as_str())
}

fn known(id: StepId, view: Option<StepView>) -> Result<StepView, ApiError> {
    view.ok_or(ApiError::Refused(Refusal::UnknownStep { step: id }))
}

pub(super) async fn read(api: &Api, wanted: StepId) -> Result<StepView, ApiError> {
    let view = api
        .engine()
        .read(move |core| view::step_by_id(core, &wanted).ok_or_else(|| core.unknown_step(&wanted)))
        .await?;
    Ok(view?)
}

pub(super) fn grace(text: Option<&str>) -> Result<Option<Span>, ApiError> {
    let grace: Option<Span> = params::read("grace_period", text)?;
    match grace {
        Some(long) if long > MAX_GRACE => {
            let why = format!("{long} is longer than {MAX_GRACE}");
            Err(params::invalid("grace_period", why))
        }
        grace => Ok(grace),
    }
}

pub(super) async fn cancel(
    api: &Api,
    id: StepId,
    grace: Option<Span>,
) -> Result<StepView, ApiError> {
    let asked = id.clone();
    let cancelled = api.engine().cancel(id, grace, move |core, result| {
        result
            .map(|_| view::step_by_id(core, &asked))
            .map(|view| (asked, view))
    });
    let (id, view) = cancelled.await??;
    known(id, view)
}

async fn act_on_step(api: &Api, id: StepId, action: StepAction) -> Result<StepView, ApiError> {
    let asked = id.clone();
    let changed = api.engine().act_on_step(id, action, move |core, result| {
        result
            .map(|_| view::step_by_id(core, &asked))
            .map(|view| (asked, view))
    });
    let (id, view) = changed.await??;
    known(id, view)
}

/// Answers when the step has reached the state or its end, or after the timeout.
async fn wait(api: &Api, id: StepId, params: &WaitParams) -> Result<StepView, ApiError> {
    let target = params
        .state
        .as_deref()
        .map(|word| params::state("for", word))
        .transpose()?;
    let limit = params::time("timeout", params.timeout.as_deref(), DEFAULT_WAIT, MAX_WAIT)?;
    // Subscribed before the first read, so that no change is missed.
    let mut interest = api.engine().watch_step(id.clone());
    let there = async {
        loop {
            let wanted = id.clone();
            let look = move |core: &Core| {
                core.state()
                    .find(&wanted)
                    .is_none_or(|s| arrived(&s, target))
            };
            if api.engine().read(look).await? {
                return Ok::<(), ApiError>(());
            }
            interest.changed().await;
        }
    };
    tokio::select! {
        outcome = timeout(limit, there) => outcome.unwrap_or(Ok(()))?,
        () = api.stopped() => {}
    }
    read(api, id).await
}

/// Whether the step has reached `target`, which it may have passed between two reads, or can never reach it.
fn arrived(step: &Step, target: Option<StepState>) -> bool {
    if step.state.is_terminal() || target == Some(step.state) {
        return true;
    }
    let phase = match target {
        Some(StepState::Allocated) => PartPhase::Allocated,
        Some(StepState::Starting) => PartPhase::Starting,
        Some(StepState::Running) => PartPhase::Running,
        _ => return false,
    };
    let live = step.live();
    live.is_some_and(|attempt| attempt.parts.iter().all(|part| part.phase >= phase))
}
