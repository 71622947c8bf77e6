//! Calls on many steps at once: `POST /v1/steps:cancel`, `:suspend`, `:resume`, `:requeue` and `:delete` with filters.
//!
//! A call finds the steps by short scans of the core and acts on [`CHUNK`] of them at a time, so other callers and hosts
//! get their turn in between. Each chunk is durable before the next begins. If the call ends midway, because the
//! coordinator stops or the caller hangs up, a part of the steps is done; the same call then does the rest, because
//! each action passes over steps that it would not change. Steps that are submitted after the call began are left alone.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Request, State};
use axum::routing::{MethodRouter, post};
use coordinator_core::{Core, Refusal, Step, StepAction};
use futures_util::future::join_all;
use serde::Deserialize;
use sluice_common::access::{Resource, Verb};
use sluice_common::api::{StepFilter, StepOutcomeView, StepsActionRequest, StepsActionView};
use sluice_common::id::{PoolName, StepId};
use sluice_common::limit::MAX_BODY_BYTES;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::super::Api;
use super::super::access::Caller;
use super::super::body;
use super::super::error::ApiError;
use super::super::params::{self, Params};
use super::filter::{READ_LIMIT, StepSelector};
use super::grace;
use super::step_scan::StepScan;
use crate::engine::EngineStopped;

/// Steps that one round acts on: a small part of what the engine handles between two commits.
const CHUNK: usize = 256;

/// Time after which a call answers with a cursor instead of going on: less than clients wait for an answer.
const CALL_TIME: Duration = Duration::from_secs(10);

/// Most steps in an answer, and most failed ones beyond these.
const MAX_SHOWN: usize = 1000;

type StepsAnswer = Result<Json<StepsActionView>, ApiError>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CancelStepsParams {
    dry_run: Option<String>,
    grace_period: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepsActionParams {
    dry_run: Option<String>,
}

/// Handles `POST /v1/steps:cancel`.
pub(in super::super) async fn cancel_many(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<CancelStepsParams>,
    request: Request,
) -> StepsAnswer {
    let grace = grace(params.grace_period.as_deref())?;
    let action = StepsAction::Cancel { grace };
    act(api, caller, action, params.dry_run, request).await
}

/// Makes the handler of `POST /v1/steps:suspend`, `:resume`, `:requeue` or `:delete`.
pub(in super::super) fn act_on_many(action: StepAction) -> MethodRouter<Api> {
    let action = StepsAction::Other(action);
    post(
        move |State(api), caller, Params(params): Params<StepsActionParams>, request| {
            act(api, caller, action, params.dry_run, request)
        },
    )
}

#[derive(Clone, Copy)]
enum StepsAction {
    Cancel { grace: Option<Span> },
    Other(StepAction),
}

impl StepsAction {
    fn verb(self) -> Verb {
        match self {
            StepsAction::Cancel { .. } => Verb::Cancel,
            StepsAction::Other(StepAction::Suspend) => Verb::Suspend,
            StepsAction::Other(StepAction::Resume) => Verb::Resume,
            StepsAction::Other(StepAction::Requeue) => Verb::Requeue,
            StepsAction::Other(StepAction::Delete) => Verb::Delete,
        }
    }

    /// Whether it would change the step.
    fn changes(self, step: &Step) -> bool {
        let stopping = step.live().and_then(|attempt| attempt.stopping);
        let is_live = !step.state.is_terminal();
        match self {
            StepsAction::Cancel { grace } => {
                is_live && (grace.is_some() || stopping != Some(StopReason::Cancelled))
            }
            StepsAction::Other(StepAction::Suspend) => is_live && !step.held,
            StepsAction::Other(StepAction::Resume) => is_live && step.held,
            StepsAction::Other(StepAction::Requeue) => {
                is_live && (step.held || (step.live().is_some() && stopping.is_none()))
            }
            StepsAction::Other(StepAction::Delete) => {
                !is_live && !step.holds_units() && step.part_of.is_none()
            }
        }
    }

    /// Acts on one step; returns it as it is afterwards, if it is still remembered.
    async fn act(
        self,
        api: &Api,
        id: StepId,
    ) -> Result<Result<Option<FoundStep>, Refusal>, EngineStopped> {
        let after = |core: &Core, result: Result<StepId, Refusal>| {
            result.map(|id| core.state().find(&id).map(|step| FoundStep::of(&step)))
        };
        match self {
            StepsAction::Cancel { grace } => api.engine().cancel(id, grace, after).await,
            StepsAction::Other(action) => api.engine().act_on_step(id, action, after).await,
        }
    }
}

/// The parts of a step that an answer shows.
struct FoundStep {
    id: StepId,
    name: String,
    state: StepState,
    held: bool,
}

impl FoundStep {
    fn of(step: &Step) -> Self {
        Self {
            id: step.id.clone(),
            name: step.spec.name.clone(),
            state: step.state,
            held: step.held && !step.state.is_terminal(),
        }
    }

    fn outcome(self, refusal: Option<Refusal>) -> StepOutcomeView {
        StepOutcomeView {
            id: self.id.to_string(),
            name: self.name,
            state: self.state,
            held: self.held,
            error: refusal.map(|refusal| ApiError::Refused(refusal).body().error),
        }
    }
}

/// The steps whose places are after `after` and not after `last`. As a cursor: both, with `-` between them.
#[derive(Clone, Copy)]
struct ScanRange {
    after: u64,
    last: u64,
}

impl ScanRange {
    fn read(cursor: &str) -> Result<Self, ApiError> {
        let range = cursor.split_once('-').and_then(|(after, last)| {
            let (after, last) = (after.parse().ok()?, last.parse().ok()?);
            Some(Self { after, last })
        });
        range.ok_or_else(|| {
            let shown = params::shown(cursor);
            let why =
                format!("`{shown}` is not a cursor: pass the `next_cursor` of the answer before");
            params::invalid("cursor", why)
        })
    }
}

async fn act(
    api: Api,
    caller: Caller,
    action: StepsAction,
    dry_run: Option<String>,
    request: Request,
) -> StepsAnswer {
    let dry_run = params::flag("dry_run", dry_run.as_deref())?;
    let json = body::read(request, MAX_BODY_BYTES).await?;
    let StepsActionRequest {
        filter,
        all,
        cursor,
    } = body::parse(&json, "")?;
    if !all && filter == StepFilter::default() {
        let why = "no filter is set: set one, or `\"all\": true` if you mean every step";
        return Err(params::invalid("filter", why));
    }
    let matcher = StepSelector::read(&filter)?;
    let mut range = match cursor.as_deref() {
        Some(cursor) => ScanRange::read(cursor)?,
        None => ScanRange {
            after: 0,
            last: (api.engine())
                .read(|core| Step::last_order_of(core.state().seq()))
                .await?,
        },
    };
    if !dry_run {
        let filters = Some(filter.to_string()).filter(|filters| !filters.is_empty());
        let what = (action.verb(), Resource::Steps);
        caller.note(&api, what, filters.as_deref()).await?;
    }
    let began = Instant::now();
    let mut answer = StepsActionView::default();
    loop {
        // The rights may change while the call lasts.
        let caller = caller.with_present_rights(&api)?;
        let matcher = matcher.clone();
        let look = move |core: &Core| scan(core, &matcher, &caller, action, range);
        let (found, next) = api.engine().read(look).await?;
        match dry_run {
            true => found
                .into_iter()
                .for_each(|step| add(&mut answer, step.outcome(None))),
            false => act_on_chunk(&api, action, found, &mut answer).await?,
        }
        let Some(next) = next else {
            return Ok(Json(answer));
        };
        range.after = next;
        if began.elapsed() > CALL_TIME {
            answer.next_cursor = Some(format!("{}-{}", range.after, range.last));
            return Ok(Json(answer));
        }
    }
}

/// Returns at most [`CHUNK`] of the next [`READ_LIMIT`] steps that the action would change and the caller may change, and
/// where the next scan begins; `None` at the end.
fn scan(
    core: &Core,
    matcher: &StepSelector,
    caller: &Caller,
    action: StepsAction,
    range: ScanRange,
) -> (Vec<FoundStep>, Option<u64>) {
    let (mut found, mut seen, mut next) = (Vec::new(), 0, None);
    let mut step_scan = StepScan::new(core, matcher, caller);
    matcher.visit_after(core, range.after, |candidate| {
        let (row, step) = (candidate.row(), candidate.step());
        if row.order > range.last {
            return ControlFlow::Break(());
        }
        let may_change = |pool: Option<&PoolName>| {
            let pool = pool.map(PoolName::as_str);
            let subject = step.spec.subject.as_str();
            caller.may_step(action.verb(), Resource::Steps, subject, pool)
        };
        let may_be_taken = action.changes(step) && matcher.is_recent(row);
        let taken = may_be_taken.then(|| step_scan.take(candidate)).flatten();
        if taken.is_some_and(|answer| may_change(answer.pool)) {
            found.push(FoundStep::of(step));
        }
        seen += 1;
        if found.len() == CHUNK || seen == READ_LIMIT {
            next = Some(row.order);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    (found, next)
}

/// Acts on steps at the same time, so that they are made durable together.
async fn act_on_chunk(
    api: &Api,
    action: StepsAction,
    found: Vec<FoundStep>,
    answer: &mut StepsActionView,
) -> Result<(), ApiError> {
    let calls = found.iter().map(|step| action.act(api, step.id.clone()));
    let results = join_all(calls).await;
    let deletes = action.verb() == Verb::Delete;
    for (before, result) in found.into_iter().zip(results) {
        match result? {
            Ok(Some(after)) => add(answer, after.outcome(None)),
            Ok(None) if deletes => add(answer, before.outcome(None)),
            // It has ended, or was forgotten, since it was found.
            Ok(None) | Err(Refusal::UnknownStep { .. } | Refusal::StepOver { .. }) => {}
            Err(refusal) => add(answer, before.outcome(Some(refusal))),
        }
    }
    Ok(())
}

fn add(answer: &mut StepsActionView, outcome: StepOutcomeView) {
    let failed = outcome.error.is_some();
    answer.matched += 1;
    answer.failed += u64::from(failed);
    let room = if failed { 2 * MAX_SHOWN } else { MAX_SHOWN };
    if answer.steps.len() < room {
        answer.steps.push(outcome);
    }
}
