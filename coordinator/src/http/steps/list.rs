//! Lists of steps: pages in the order of submission, found in looks at the core that are short each.

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
use super::super::page::{Filling, MAX_PAGE_BYTES};
use super::super::params::{self, Params};
use crate::view;

/// Steps that one look at the core walks over. A list that matches little is found in several looks, so that it does
/// not hold up the loop.
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

/// Which steps are wanted; what is `None` asks for nothing.
#[derive(Clone, Debug, Default)]
struct Filter {
    states: Option<Vec<StepState>>,
    subject: Option<Subject>,
    pool: Option<PoolName>,
    node: Option<NodeName>,
    work: Option<WorkKind>,
    labels: Option<Selector>,
}

impl Filter {
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

/// `GET /v1/steps`: oldest first. The cursor is a step's place, which nobody else ever has, so a list goes on where it
/// was although the step may be forgotten meanwhile.
pub(in super::super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Box<RawValue>>>, ApiError> {
    let mut filling = Filling::new(params::limit(params.limit.as_deref())?);
    let filter = Filter::read(&params)?;
    let mut after = Some(place(params.cursor.as_deref())?);
    while let Some(from) = after.filter(|_| !filling.is_full()) {
        // One more than fits tells whether anything follows.
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
            format!("`{cursor}` is none: pass the `next_cursor` of the page before"),
        )
    })
}

/// What one look found.
struct Found {
    /// With their places.
    steps: Vec<(u64, StepView)>,
    /// Where to look next; `None` at the end.
    next: Option<u64>,
}

/// At most `want` of the next [`SCAN`] steps, and no more than make a page by their bytes.
fn scan(core: &Core, after: u64, want: usize, takes: impl Fn(&Step) -> bool) -> Found {
    let mut steps = Vec::new();
    let mut bytes = 0;
    for (seen, step) in (1..).zip(core.state().steps_after(after)) {
        if takes(step) {
            bytes += text_bytes(step);
            steps.push((step.place, view::step(core, step)));
        }
        if steps.len() == want || seen == SCAN || bytes > MAX_PAGE_BYTES {
            let next = Some(step.place);
            return Found { steps, next };
        }
    }
    Found { steps, next: None }
}

/// About what a step takes as JSON, and no more than it does: its own texts, which alone can be long.
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
