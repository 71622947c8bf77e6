//! Steps one by one and in lists, waiting for one, and cancelling one.

use std::ops::Bound;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use coordinator_core::{Core, PartPhase, Refusal, Step};
use serde::Deserialize;
use sluice_common::api::{Page, StepView};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::nearest::nearest;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use tokio::time::timeout;

use super::Api;
use super::error::ApiError;
use super::params::{self, Params, Segment};
use crate::view;

/// Steps that one look at the core walks over. A list that matches little is found in several looks, so that it does
/// not hold up the loop.
const SCAN: usize = 1000;

/// How long `:wait` waits unless the caller says otherwise, and at most: below what proxies and clients give up after.
const DEFAULT_WAIT: Span = Span::from_secs(30);
const MAX_WAIT: Span = Span::from_secs(300);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    cursor: Option<String>,
    limit: Option<String>,
    state: Option<String>,
    subject: Option<String>,
    pool: Option<String>,
    node: Option<String>,
}

/// Which steps are wanted; what is `None` asks for nothing.
#[derive(Clone, Debug, Default)]
struct Filter {
    states: Option<Vec<StepState>>,
    subject: Option<Subject>,
    pool: Option<PoolName>,
    node: Option<NodeName>,
}

impl Filter {
    fn read(params: &ListParams) -> Result<Self, ApiError> {
        Ok(Self {
            states: params::states("state", params.state.as_deref())?,
            subject: params::read("subject", params.subject.as_deref())?,
            pool: params::read("pool", params.pool.as_deref())?,
            node: params::read("node", params.node.as_deref())?,
        })
    }

    fn takes(&self, core: &Core, step: &Step) -> bool {
        let latest = step.latest();
        let in_pool = |pool: &PoolName| view::pool_of(core, step) == Some(pool);
        self.states
            .as_ref()
            .is_none_or(|states| states.contains(&step.state))
            && self
                .subject
                .as_ref()
                .is_none_or(|subject| step.spec.subject == *subject)
            && self.pool.as_ref().is_none_or(in_pool)
            && self
                .node
                .as_ref()
                .is_none_or(|node| latest.is_some_and(|attempt| attempt.on(node).is_some()))
    }
}

/// `GET /v1/steps`: by id.
pub(super) async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<StepView>>, ApiError> {
    let limit = params::limit(params.limit.as_deref())?;
    let filter = Filter::read(&params)?;
    let mut after: Option<StepId> = params::read("cursor", params.cursor.as_deref())?;
    let mut items: Vec<StepView> = Vec::new();
    loop {
        let (filter, from, want) = (filter.clone(), after, limit + 1 - items.len());
        let look =
            move |core: &Core| scan(core, from.as_ref(), want, |step| filter.takes(core, step));
        let (found, next) = api.engine().read(look).await?;
        items.extend(found);
        after = next;
        if items.len() > limit || after.is_none() {
            break;
        }
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    let next_cursor = last.map(|step| step.id.clone());
    Ok(Json(Page { items, next_cursor }))
}

/// At most `want` of the next [`SCAN`] steps, and where to go on; `None` at the end.
fn scan(
    core: &Core,
    after: Option<&StepId>,
    want: usize,
    takes: impl Fn(&Step) -> bool,
) -> (Vec<StepView>, Option<StepId>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let steps = core
        .state()
        .steps()
        .range::<StepId, _>((from, Bound::Unbounded));
    let mut found = Vec::new();
    for (seen, (id, step)) in (1..).zip(steps) {
        if takes(step) {
            found.push(view::step(core, step));
        }
        if found.len() == want || seen == SCAN {
            return (found, Some(id.clone()));
        }
    }
    (found, None)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    #[serde(rename = "for")]
    state: Option<String>,
    timeout: Option<String>,
}

/// What is called on a step behind a colon, and by which methods.
pub(super) const VERBS: [(&str, &str); 2] = [("cancel", "POST"), ("wait", "GET,HEAD")];

/// `GET /v1/steps/{id}` and `GET /v1/steps/{id}:wait`.
pub(super) async fn get(
    State(api): State<Api>,
    Segment(segment): Segment,
    // Judged after the verb: parameters of a call that is none say nothing.
    params: Result<Params<WaitParams>, ApiError>,
) -> Result<Json<StepView>, ApiError> {
    takes(&segment, "GET")?;
    let Params(params) = params?;
    match segment.rsplit_once(':') {
        None if params.state.is_some() || params.timeout.is_some() => Err(params::invalid(
            "for",
            "`for` and `timeout` belong to `/v1/steps/ID:wait`",
        )),
        None => read(&api, params::step_id(&segment)?).await,
        Some((id, "wait")) => wait(&api, params::step_id(id)?, &params).await,
        Some((_, verb)) => Err(unknown_verb(&segment, verb)),
    }
}

/// `POST /v1/steps/{id}:cancel`.
pub(super) async fn act(
    State(api): State<Api>,
    Segment(segment): Segment,
) -> Result<Json<StepView>, ApiError> {
    takes(&segment, "POST")?;
    match segment.rsplit_once(':') {
        Some((id, "cancel")) => cancel(&api, params::step_id(id)?).await,
        Some((_, verb)) => Err(unknown_verb(&segment, verb)),
        None => Err(wrong_method(&segment, "POST", STEP_METHODS)),
    }
}

/// Every other method.
pub(super) async fn no_method(method: Method, Segment(segment): Segment) -> ApiError {
    let refused = takes(&segment, method.as_str());
    refused.expect_err("a method of the router's comes to its own handler")
}

/// What a step itself takes.
const STEP_METHODS: &str = "GET,HEAD";

/// Whether the step or its verb is called by the right method.
fn takes(segment: &str, method: &str) -> Result<(), ApiError> {
    let verb = segment.rsplit_once(':').map(|(_, verb)| verb);
    let allow = match verb {
        None => STEP_METHODS,
        Some(verb) => {
            let known = VERBS.into_iter().find(|(known, _)| *known == verb);
            known.ok_or_else(|| unknown_verb(segment, verb))?.1
        }
    };
    match allow.split(',').any(|allowed| allowed == method) {
        true => Ok(()),
        false => Err(wrong_method(segment, method, allow)),
    }
}

fn wrong_method(segment: &str, method: &str, allow: &'static str) -> ApiError {
    ApiError::MethodNotAllowed {
        method: method.to_owned(),
        path: format!("/v1/steps/{segment}"),
        allow: Some(allow),
    }
}

fn unknown_verb(segment: &str, verb: &str) -> ApiError {
    let near = nearest(verb, VERBS.map(|(verb, _)| verb));
    let hint = near.map_or_else(String::new, |near| format!(" (did you mean `:{near}`?)"));
    ApiError::UnknownRoute {
        path: format!("/v1/steps/{segment}{hint}"),
    }
}

fn known(id: StepId, view: Option<StepView>) -> Result<StepView, ApiError> {
    view.ok_or(ApiError::Refused(Refusal::UnknownStep { step: id }))
}

async fn read(api: &Api, id: StepId) -> Result<Json<StepView>, ApiError> {
    let wanted = id.clone();
    let view = api
        .engine()
        .read(move |core| view::step_by_id(core, &wanted))
        .await?;
    Ok(Json(known(id, view)?))
}

async fn cancel(api: &Api, id: StepId) -> Result<Json<StepView>, ApiError> {
    let asked = id.clone();
    let cancelled = api.engine().cancel(id, move |core, result| {
        result
            .map(|_| view::step_by_id(core, &asked))
            .map(|view| (asked, view))
    });
    let (id, view) = cancelled.await??;
    Ok(Json(known(id, view)?))
}

/// Answers when the step has come to the state or to its end, or when the time is up: the caller sees which.
async fn wait(api: &Api, id: StepId, params: &WaitParams) -> Result<Json<StepView>, ApiError> {
    let target = params
        .state
        .as_deref()
        .map(|word| params::state("for", word))
        .transpose()?;
    let limit = params::time("timeout", params.timeout.as_deref(), DEFAULT_WAIT, MAX_WAIT)?;
    // Before the first look, so that nothing falls between a look and the news.
    let mut interest = api.engine().interest(id.clone());
    let there = async {
        loop {
            let wanted = id.clone();
            let look = move |core: &Core| {
                core.state()
                    .step(&wanted)
                    .is_none_or(|s| arrived(s, target))
            };
            if api.engine().read(look).await? {
                return Ok::<(), ApiError>(());
            }
            interest.news().await;
        }
    };
    tokio::select! {
        outcome = timeout(limit, there) => outcome.unwrap_or(Ok(()))?,
        () = api.stopped() => {}
    }
    read(api, id).await
}

/// Whether the step has come as far as `target`, which it may have passed between two looks; or can come no further.
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
