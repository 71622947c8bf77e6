//! Lists of steps: filtered, sorted, in pages, collected by short scans of the core, so that a long list does not block
//! the engine.

use std::ops::ControlFlow;

use axum::Json;
use axum::extract::State;
use coordinator_core::{Core, Step};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_common::api::{Page, StepFilter, StepOrderKey, StepView};
use sluice_common::id::PoolName;

use super::super::Api;
use super::super::access::Caller;
use super::super::error::ApiError;
use super::super::page::{MAX_PAGE_BYTES, PageBuilder};
use super::super::params::{self, Params};
use super::fields::StepFields;
use super::filter::{Candidate, SCAN_EFFORT, StepSelector};
use super::order::{PageSteps, StepOrder, StepPosition};
use super::step_scan::StepScan;
use crate::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ListParams {
    cursor: Option<String>,
    limit: Option<String>,
    sort: Option<String>,
    fields: Option<String>,
    id: Option<String>,
    name: Option<String>,
    state: Option<String>,
    subject: Option<String>,
    submitted_by: Option<String>,
    pool: Option<String>,
    node: Option<String>,
    work: Option<String>,
    labels: Option<String>,
    since: Option<String>,
    until: Option<String>,
    array: Option<String>,
    parts: Option<String>,
}

impl ListParams {
    fn filter(self) -> StepFilter {
        StepFilter {
            id: self.id,
            name: self.name,
            state: self.state,
            subject: self.subject,
            submitted_by: self.submitted_by,
            pool: self.pool,
            node: self.node,
            work: self.work,
            labels: self.labels,
            since: self.since,
            until: self.until,
            array: self.array,
            parts: self.parts,
        }
    }
}

/// A list as it was asked for.
struct StepList {
    api: Api,
    caller: Caller,
    order: StepOrder,
    fields: StepFields,
    cursor: Option<String>,
    limit: usize,
    matcher: StepSelector,
}

/// Handles `GET /v1/steps`, in the order of submission unless `sort` is set. The cursor is a step's unique position, so a
/// list continues there even if the step was forgotten meanwhile.
pub(in super::super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Box<RawValue>>>, ApiError> {
    let matcher = StepSelector::default();
    list_of(api, caller, params, matcher).await
}

/// Handles `GET /v1/allocations`: the same for the steps that are allocations.
pub(in super::super) async fn list_allocations(
    State(api): State<Api>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Box<RawValue>>>, ApiError> {
    let matcher = StepSelector::of_allocations();
    list_of(api, caller, params, matcher).await
}

async fn list_of(
    api: Api,
    caller: Caller,
    mut params: ListParams,
    within: StepSelector,
) -> Result<Json<Page<Box<RawValue>>>, ApiError> {
    let list = StepList {
        api,
        caller,
        order: StepOrder::read(params.sort.as_deref())?,
        fields: StepFields::read(params.fields.as_deref())?,
        cursor: params.cursor.take(),
        limit: params::limit(params.limit.as_deref())?,
        matcher: within.and(&params.filter())?,
    };
    let page = match list.order.key {
        StepOrderKey::Submitted => list.by_submission().await?,
        _ => list.sorted().await?,
    };
    Ok(Json(page))
}

impl StepList {
    /// Returns a page by the core's index.
    async fn by_submission(self) -> Result<Page<Box<RawValue>>, ApiError> {
        let mut filling = PageBuilder::new(self.limit);
        let mut left_out = 0;
        let descending = self.order.descending;
        let begin = if descending { u64::MAX } else { 0 };
        let place = |cursor: &str| cursor.parse().map_err(|_| not_a_cursor(cursor));
        let mut after = Some(self.cursor.as_deref().map_or(Ok(begin), place)?);
        while let Some(from) = after.filter(|_| !filling.is_full()) {
            let (matcher, who) = (self.matcher.clone(), self.caller.clone());
            // One more than fits shows whether anything follows.
            let want = filling.room() + 1;
            let look = move |core: &Core| {
                let (mut steps, mut bytes) = (Vec::new(), 0);
                let seen = scan(core, &matcher, &who, (from, descending), |candidate, _| {
                    let step = candidate.step();
                    bytes += text_bytes(step);
                    steps.push((candidate.row().order, view::step(core, step)));
                    steps.len() == want || bytes > MAX_PAGE_BYTES
                });
                (steps, seen)
            };
            let (steps, seen) = self.api.engine().read(look).await?;
            for (place, step) in steps {
                self.offer(&mut filling, place, step)?;
            }
            after = seen.next;
            left_out += seen.left_out;
        }
        Ok(Page {
            left_out: self.matcher.has_since().then_some(left_out),
            ..filling.page(None)
        })
    }

    /// Returns a page in an order without an index: goes through all steps, and reads those of the page.
    async fn sorted(self) -> Result<Page<Box<RawValue>>, ApiError> {
        let position = |cursor: &str| {
            StepPosition::read(cursor, self.order).ok_or_else(|| not_a_cursor(cursor))
        };
        let position = self.cursor.as_deref().map(position).transpose()?;
        let is_first = position.is_none();
        let mut first = PageSteps::new(self.order, position, self.limit + 1);
        let mut left_out = 0;
        // Names often count up: then the first ones of the page are found first, and the others are passed over.
        let descending = self.order.descending && self.order.key == StepOrderKey::Name;
        let mut after = Some(if descending { u64::MAX } else { 0 });
        while let Some(from) = after {
            let (matcher, who) = (self.matcher.clone(), self.caller.clone());
            let look = move |core: &Core| {
                let seen = scan(
                    core,
                    &matcher,
                    &who,
                    (from, descending),
                    |candidate, pool| {
                        first.offer(candidate, pool);
                        false
                    },
                );
                (first, seen)
            };
            let seen;
            (first, seen) = self.api.engine().read(look).await?;
            left_out += seen.left_out;
            after = seen.next;
        }
        let mut filling = PageBuilder::new(self.limit);
        let mut ids = first.in_order().peekable();
        while ids.peek().is_some() && !filling.is_full() {
            // A few at a time, because steps may be large.
            let some: Vec<_> = ids.by_ref().take(100).collect();
            let look = move |core: &Core| {
                let view = |id| core.state().find(&id).map(|step| view::step(core, &step));
                let views = some.into_iter();
                let views = views.filter_map(|(position, id)| Some((position, view(id)?)));
                views.collect::<Vec<_>>()
            };
            for (position, step) in self.api.engine().read(look).await? {
                self.offer(&mut filling, position, step)?;
            }
        }
        let left_out = (is_first && self.matcher.has_since()).then_some(left_out);
        Ok(Page {
            left_out,
            ..filling.page(None)
        })
    }

    fn offer<C: ToString>(
        &self,
        filling: &mut PageBuilder<C>,
        cursor: C,
        step: StepView,
    ) -> Result<(), ApiError> {
        let step = self.caller.seen(step);
        filling.offer(cursor, &self.fields.of(&step))
    }
}

fn not_a_cursor(cursor: &str) -> ApiError {
    let cursor = params::shown(cursor);
    params::invalid(
        "cursor",
        format!(
            "`{cursor}` is not a cursor of this list: pass the `next_cursor` of the page before"
        ),
    )
}

/// Progress of one scan.
#[derive(Default)]
struct ScanCount {
    effort: usize,
    /// Steps that only `since` leaves out.
    left_out: u64,
    /// Place of the next scan; `None` at the end.
    next: Option<u64>,
}

/// Offers the steps that a list has to `accept`, from a place on, until it says that it has enough or the effort of one scan
/// is spent. A list with few matches takes several scans.
fn scan<'a>(
    core: &'a Core,
    matcher: &'a StepSelector,
    who: &'a Caller,
    from: (u64, bool),
    mut accept: impl FnMut(&Candidate<'a>, Option<&PoolName>) -> bool,
) -> ScanCount {
    let mut count = ScanCount::default();
    let mut step_scan = StepScan::new(core, matcher, who);
    matcher.visit(core, from, |candidate| {
        let mut has_enough = false;
        if let Some(answer) = step_scan.take(candidate) {
            match matcher.is_recent(candidate.row()) {
                true => has_enough = accept(candidate, answer.pool),
                false => count.left_out += 1,
            }
        }
        count.effort += matcher.effort(candidate);
        if has_enough || count.effort >= SCAN_EFFORT {
            count.next = Some(candidate.row().order);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    count
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
