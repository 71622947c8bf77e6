//! Submits: one step, or a batch in one durable commit.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use coordinator_core::{Core, Enforcement, NewStep, Refusal, Submitted};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::allocation::DEFAULT_LEASE;
use sluice_common::api::{BatchItem, BatchView, StepView};
use sluice_common::id::StepId;
use sluice_common::limit::{MAX_BATCH_BODY_BYTES, MAX_BATCH_STEPS, MAX_BODY_BYTES};
use sluice_common::request::StepRequest;
use sluice_common::time::Span;

use super::access::Caller;
use super::error::ApiError;
use super::ids::IdempotencyKey;
use super::inside::{Allocation, refuse_preview};
use super::params::{self, NoParams, Params};
use super::{Api, body, ids, inputs};
use crate::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitParams {
    dry_run: Option<String>,
}

/// Handles `POST /v1/steps`: 201 with the step, or 200 if it existed already; with `dry_run`, 200 with the preview.
pub(super) async fn one(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    submit_one(api, caller, params, headers, request, None).await
}

/// Handles `POST /v1/allocations`: the same for a step without a program, which gets a lease if it names none.
pub(super) async fn allocate(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let lease = Some(DEFAULT_LEASE);
    submit_one(api, caller, params, headers, request, lease).await
}

async fn submit_one(
    api: Api,
    caller: Caller,
    params: SubmitParams,
    headers: HeaderMap,
    request: Request,
    lease: Option<Span>,
) -> Result<Response, ApiError> {
    let dry_run = params::flag("dry_run", params.dry_run.as_deref())?;
    let key = own_key(&caller, &headers)?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let mut wanted: StepRequest = body::parse(&json, "")?;
    let own = wanted.lease.take();
    wanted.lease = own.or_else(|| lease.map(|lease| lease.to_string()));
    if dry_run {
        return preview(&api, &caller, wanted).await;
    }
    api.disk_space().check()?;
    let mut step = enter(&api, &caller, wanted, key.as_ref(), 0).await?;
    inputs::find(&api, &caller, &mut step)?;
    let step = hide_dependency(&api, &caller, step).await?;
    let id = Some(step.id.as_str());
    let what = (Verb::Create, Resource::Steps);
    caller.note(&api, what, id).await?;
    let who = caller.clone();
    let submitted = api.engine().submit(vec![step], move |core, results| {
        let result = results.into_iter().next();
        result
            .expect("one result for one step")
            .and_then(|step| seen(core, step))
            .map_err(|refusal| who.masked_refusal(core, refusal))
    });
    let (created, view) = submitted.await??;
    let view = caller.seen(view);
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(view)).into_response())
}

/// Previews a step under an unused id, because a taken id would hide everything else.
async fn preview(api: &Api, caller: &Caller, request: StepRequest) -> Result<Response, ApiError> {
    request.chosen_id()?;
    refuse_preview(&request)?;
    let mut step = NewStep::new(ids::draw()?, request.check()?);
    permit(caller, &mut step)?;
    let step = hide_dependency(api, caller, step).await?;
    let mut preview = api.engine().preview(step, view::preview).await?;
    preview.step = preview.step.map(|step| caller.seen(step));
    Ok(Json(preview).into_response())
}

/// The body of a batch, with each step still as text: a malformed one fails alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow)]
    steps: Vec<&'a RawValue>,
    /// Defaults of all steps.
    #[serde(default)]
    defaults: Option<Box<StepRequest>>,
}

/// Handles `POST /v1/steps:batch`: 200 with one result for each step, in order.
pub(super) async fn batch(
    State(api): State<Api>,
    caller: Caller,
    _: NoParams,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<BatchView>, ApiError> {
    let key = own_key(&caller, &headers)?;
    let json = body::read(request, MAX_BATCH_BODY_BYTES).await?;
    api.disk_space().check()?;
    let mut understood = Vec::new();
    for (place, request) in read_batch(&json)?.into_iter().enumerate() {
        let step = match request {
            Ok(request) => enter(&api, &caller, request, key.as_ref(), place).await,
            Err(error) => Err(error),
        };
        understood.push(step.and_then(|mut step| {
            inputs::find(&api, &caller, &mut step)?;
            Ok(step)
        }));
    }
    let understood = hide_dependencies(&api, &caller, understood).await?;
    let understood = understood.into_iter();
    let (good, bad): (Vec<_>, Vec<_>) = (0..).zip(understood).partition(|(_, step)| step.is_ok());
    let (places, steps): (Vec<usize>, Vec<NewStep>) = good
        .into_iter()
        .filter_map(|(place, step)| Some((place, step.ok()?)))
        .unzip();
    if !steps.is_empty() {
        let what = (Verb::Create, Resource::Steps);
        let name = format!("a batch of {}", steps.len());
        caller.note(&api, what, Some(&name)).await?;
    }
    let who = caller.clone();
    let stored = api.engine().submit(steps, move |core, results| {
        let mut enforcement = Enforcement::new(core);
        let views = results.into_iter().map(|result| {
            let seen = result.and_then(|step| seen_in_list(core, step, &mut enforcement));
            seen.map_err(|refusal| who.masked_refusal(core, refusal))
        });
        views.collect::<Vec<_>>()
    });
    let stored = places
        .into_iter()
        .zip(stored.await?)
        .map(|(place, result)| {
            let item = result.map_err(ApiError::from);
            let item = item.map(|(_, view)| caller.seen(view));
            (place, item)
        });
    let failed = bad
        .into_iter()
        .filter_map(|(place, step)| Some((place, Err(step.err()?))));
    let mut results: Vec<(usize, Result<StepView, ApiError>)> = stored.chain(failed).collect();
    results.sort_by_key(|(place, _)| *place);
    Ok(Json(BatchView {
        results: results
            .into_iter()
            .map(|(_, result)| item(result))
            .collect(),
    }))
}

/// Returns the call's idempotency key, bound to its caller.
fn own_key(caller: &Caller, headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let key = ids::key(headers)?;
    let caller = || caller.binding();
    Ok(key.map(|key| IdempotencyKey {
        caller: caller(),
        key,
    }))
}

/// Sets the submitter of a step, and fails if the caller may not submit it: a step that names no pool needs the right
/// in all, or gets the only pool in which the caller has it. Callers who could end a maintenance may submit during it.
pub(super) fn permit(caller: &Caller, step: &mut NewStep) -> Result<(), ApiError> {
    step.spec.submitted_by = caller.who().user();
    let subject = Scope::One(step.spec.subject.as_str());
    if step.spec.pool.is_none() && !caller.may(Verb::Create, Resource::Steps, Scope::Every, subject)
    {
        step.spec.pool = caller.submits_to(&step.spec.subject);
    }
    let pool = step.spec.pool.as_ref();
    let there = pool.map_or(Scope::Every, |pool| Scope::One(pool.as_str()));
    step.past_maintenance = caller.may(Verb::Update, Resource::Pools, there, Scope::Unscoped);
    let ask = AccessQuery {
        verb: Verb::Create,
        resource: Resource::Steps,
        pool: there,
        subject,
    };
    caller.require(&ask, None)
}

/// Refuses each step that is to start after one which the caller may not see, as if that one did not exist.
async fn hide_dependencies(
    api: &Api,
    caller: &Caller,
    steps: Vec<Result<NewStep, ApiError>>,
) -> Result<Vec<Result<NewStep, ApiError>>, ApiError> {
    let mut after = steps.iter().flatten().flat_map(|step| &step.spec.after);
    if caller.is_unbounded() || after.next().is_none() {
        return Ok(steps);
    }
    let who = caller.clone();
    let read = api.engine().read(move |core| {
        let is_hidden = |on: &StepId| {
            let known = core.state().find(on);
            known.is_some_and(|known| !who.lists(core, &known))
        };
        let checked = steps.into_iter().map(|step| {
            let step = step?;
            let mut after = step.spec.after.iter().map(|it| &it.step);
            let Some(on) = after.find(|on| is_hidden(on)).cloned() else {
                return Ok(step);
            };
            let step = step.id;
            Err(Refusal::UnknownDependency { step, on }.into())
        });
        checked.collect()
    });
    Ok(read.await?)
}

/// The same for one step.
async fn hide_dependency(api: &Api, caller: &Caller, step: NewStep) -> Result<NewStep, ApiError> {
    let mut checked = hide_dependencies(api, caller, vec![Ok(step)]).await?;
    checked.remove(0)
}

fn item(result: Result<StepView, ApiError>) -> BatchItem {
    match result {
        Ok(view) => BatchItem::Step(Box::new(view)),
        Err(error) => BatchItem::Error(error.body()),
    }
}

/// Returns the requests of a batch, each with the defaults of all.
fn read_batch(json: &[u8]) -> Result<Vec<Result<StepRequest, ApiError>>, ApiError> {
    let RawBatch { steps, defaults } = body::parse(json, "")?;
    if steps.len() > MAX_BATCH_STEPS {
        return Err(ApiError::TooManySteps {
            count: steps.len(),
            limit: MAX_BATCH_STEPS,
        });
    }
    let requests = (0..).zip(steps).map(|(place, raw): (usize, _)| {
        let mut request: StepRequest =
            body::parse(raw.get().as_bytes(), &format!("steps[{place}]"))?;
        // A step's own defaults take precedence over those of the batch.
        request = request.with_defaults()?;
        request.defaults = defaults.clone();
        Ok(request)
    });
    Ok(requests.collect())
}

/// Checks a step as [`understand`] does, and whether the caller may submit it.
async fn enter(
    api: &Api,
    caller: &Caller,
    mut request: StepRequest,
    key: Option<&IdempotencyKey>,
    place: usize,
) -> Result<NewStep, ApiError> {
    let allocation = Allocation::of(api, caller, &mut request).await?;
    let mut step = understand(request, key, place)?;
    match allocation {
        Some(allocation) => allocation.permit(caller, &mut step)?,
        None => permit(caller, &mut step)?,
    }
    Ok(step)
}

/// Checks a step and gives it an id: the caller's, else one derived from the call's key, else a random one.
fn understand(
    request: StepRequest,
    key: Option<&IdempotencyKey>,
    place: usize,
) -> Result<NewStep, ApiError> {
    let id = match (request.chosen_id()?, key) {
        (Some(id), _) => id,
        (None, Some(key)) => ids::derive(key, place),
        (None, None) => ids::draw()?,
    };
    let spec = request.check()?;
    Ok(NewStep::new(id, spec))
}

/// Returns the step as it is now. A rejected step may have been forgotten if very few are kept.
fn seen(core: &Core, submitted: Submitted) -> Result<(bool, StepView), Refusal> {
    let view = view::step_by_id(core, &submitted.step);
    found(submitted, view)
}

/// Returns the step as one of many.
fn seen_in_list(
    core: &Core,
    submitted: Submitted,
    enforcement: &mut Enforcement<'_>,
) -> Result<(bool, StepView), Refusal> {
    let step = core.state().step(&submitted.step);
    let view = step.map(|step| view::warned(core, step, enforcement));
    found(submitted, view)
}

fn found(submitted: Submitted, view: Option<StepView>) -> Result<(bool, StepView), Refusal> {
    let Submitted { step, created } = submitted;
    let view = view.ok_or(Refusal::UnknownStep { step })?;
    Ok((created, view))
}
