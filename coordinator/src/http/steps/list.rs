//! Lists of steps: pages in the order of submission, collected by short scans of the core.

use axum::Json;
use axum::extract::State;
use coordinator_core::{Core, Step};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_common::api::{Page, StepView};
use sluice_common::id::{NodeName, PoolName, Subject};
use sluice_common::selector::Selector;
use sluice_common::state::StepState;
use sluice_common::step::WorkKind;

use super::super::Api;
use super::super::access::Caller;
use super::super::error::ApiError;
use super::super::page::{MAX_PAGE_BYTES, PageBuilder};
use super::super::params::{self, Params};
use crate::view;

/// Steps that one scan reads. A list with few matches takes several scans, so that it does not block the engine.
const SCAN: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ListParams {
    cursor: Option<String>,
    limit: Option<String>,
    state: Option<String>,
    subject: Option<String>,
    pool: Option<String>,
    node: Option<String>,
    work: Option<String>,
    labels: Option<String>,
}

/// Selects steps; a `None` field selects all.
#[derive(Clone, Debug, Default)]
struct StepFilter {
    states: Option<Vec<StepState>>,
    subject: Option<Subject>,
    pool: Option<PoolName>,
    node: Option<NodeName>,
    work: Option<WorkKind>,
    labels: Option<Selector>,
}

impl StepFilter {
    fn read(params: &ListParams) -> Result<Self, ApiError> {
        Ok(Self {
            states: params::states("state", params.state.as_deref())?,
            subject: params::read("subject", params.subject.as_deref())?,
            pool: params::read("pool", params.pool.as_deref())?,
            node: params::read("node", params.node.as_deref())?,
            work: params::read("work", params.work.as_deref())?,
            labels: params::read("labels", params.labels.as_deref())?,
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
            && self.work.is_none_or(|work| step.spec.work == Some(work))
            && self
                .labels
                .as_ref()
                .is_none_or(|labels| labels.matches(|key| label(step, key)))
            && self.pool.as_ref().is_none_or(in_pool)
            && self
                .node
                .as_ref()
                .is_none_or(|node| latest.is_some_and(|attempt| attempt.on(node).is_some()))
    }
}

fn label<'a>(step: &'a Step, key: &str) -> Option<&'a str> {
    let mut labels = step.spec.labels.iter();
    let (_, value) = labels.find(|(name, _)| name.as_str() == key)?;
    Some(value.as_str())
}

/// Handles `GET /v1/steps`, oldest first. The cursor is a step's unique position, so a list continues there even if the
/// step was forgotten meanwhile.
pub(in super::super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Box<RawValue>>>, ApiError> {
    let mut filling = PageBuilder::new(params::limit(params.limit.as_deref())?);
    let filter = StepFilter::read(&params)?;
    let mut after = Some(place(params.cursor.as_deref())?);
    while let Some(from) = after.filter(|_| !filling.is_full()) {
        // One more than fits shows whether anything follows.
        let (filter, want) = (filter.clone(), filling.room() + 1);
        let who = caller.clone();
        let takes =
            move |core: &Core, step: &Step| filter.takes(core, step) && who.lists(core, step);
        let look = move |core: &Core| scan(core, from, want, |step| takes(core, step));
        let found = api.engine().read(look).await?;
        for (place, step) in found.steps {
            filling.offer(place, &caller.seen(step))?;
        }
        after = found.next;
    }
    Ok(Json(filling.page(None)))
}

fn place(cursor: Option<&str>) -> Result<u64, ApiError> {
    let Some(cursor) = cursor else { return Ok(0) };
    let place = cursor.parse();
    place.map_err(|_| {
        let cursor = cursor.escape_debug();
        params::invalid(
            "cursor",
            format!("`{cursor}` is not a cursor: pass the `next_cursor` of the page before"),
        )
    })
}

/// Result of one scan.
struct FoundSteps {
    /// Steps with their positions.
    steps: Vec<(u64, StepView)>,
    /// Position of the next scan; `None` at the end.
    next: Option<u64>,
}

/// Returns at most `want` of the next [`SCAN`] steps, and at most a page's bytes.
fn scan(core: &Core, after: u64, want: usize, takes: impl Fn(&Step) -> bool) -> FoundSteps {
    let mut steps = Vec::new();
    let mut bytes = 0;
    for (seen, step) in (1..).zip(core.state().steps_after(after)) {
        if takes(step) {
            bytes += text_bytes(step);
            steps.push((step.place, view::step(core, step)));
        }
        if steps.len() == want || seen == SCAN || bytes > MAX_PAGE_BYTES {
            let next = Some(step.place);
            return FoundSteps { steps, next };
        }
    }
    FoundSteps { steps, next: None }
}

/// Estimates the size of a step's JSON from below, by its own texts, because only those can be long.
fn text_bytes(step: &Step) -> usize {
    let spec = &step.spec;
    let command: usize = spec.command.iter().map(String::len).sum();
    let env: usize = spec
        .env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    command + env
}
