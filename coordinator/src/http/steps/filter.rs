//! Selects steps, for lists and for calls on many steps.

use std::borrow::Cow;
use std::ops::ControlFlow;

use coordinator_core::{Core, ListedStep, Step, StepKind, StepRow};
use jiff::Timestamp;
use sluice_common::api::StepFilter;
use sluice_common::array::part_id;
use sluice_common::id::{NodeName, PoolName, StepId, Subject, UserName};
use sluice_common::selector::Selector;
use sluice_common::state::StepState;
use sluice_common::step::WorkKind;
use sluice_common::step_names::StepNames;
use sluice_common::time::{Span, Time};

use super::super::error::ApiError;
use super::super::params;
use crate::clock::wall;

/// Steps that one scan reads whole.
pub(super) const READ_LIMIT: usize = 1000;

/// Effort of one scan at most, in rows that it passes over: about two milliseconds.
pub(super) const SCAN_EFFORT: usize = 40_000;

/// Most ids in one filter.
const MAX_IDS: usize = 1000;

/// Filters after they were parsed; a `None` selects all.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSelector {
    ids: Option<Vec<StepId>>,
    names: Option<StepNames>,
    states: Option<Vec<StepState>>,
    subject: Option<Subject>,
    submitted_by: Option<UserName>,
    pool: Option<PoolName>,
    node: Option<NodeName>,
    work: Option<WorkKind>,
    labels: Option<Selector>,
    since: Option<Time>,
    until: Option<Time>,
    array: Option<StepId>,
    with_parts: bool,
    allocations: bool,
}

impl StepSelector {
    pub(super) fn of_allocations() -> Self {
        let allocations = true;
        Self {
            allocations,
            ..Self::default()
        }
    }

    pub(super) fn read(filter: &StepFilter) -> Result<Self, ApiError> {
        Self::default().and(filter)
    }

    /// The same selection, with these filters in the place of its own.
    pub(super) fn and(self, filter: &StepFilter) -> Result<Self, ApiError> {
        Ok(Self {
            allocations: self.allocations,
            ids: filter.id.as_deref().map(ids).transpose()?,
            names: params::read("name", filter.name.as_deref())?,
            states: params::states("state", filter.state.as_deref())?,
            subject: params::read("subject", filter.subject.as_deref())?,
            submitted_by: params::read("submitted_by", filter.submitted_by.as_deref())?,
            pool: params::read("pool", filter.pool.as_deref())?,
            node: params::read("node", filter.node.as_deref())?,
            work: params::read("work", filter.work.as_deref())?,
            labels: params::read("labels", filter.labels.as_deref())?,
            since: moment("since", filter.since.as_deref())?,
            until: moment("until", filter.until.as_deref())?,
            array: params::read("array", filter.array.as_deref())?,
            with_parts: params::flag("parts", filter.parts.as_deref())?,
        })
    }

    /// Visits the steps that may match and whose order is after `place`, in the order of submission, until told to break.
    pub(super) fn visit_after<'a>(
        &self,
        core: &'a Core,
        place: u64,
        mut visit: impl FnMut(&Candidate<'a>) -> ControlFlow<()>,
    ) {
        let _where_it_broke = match (&self.ids, &self.array) {
            (Some(ids), _) => {
                let mut named = named(core, ids).into_iter();
                named.try_for_each(|it| match it.row().order > place {
                    true => visit(&it),
                    false => ControlFlow::Continue(()),
                })
            }
            (None, Some(array)) => {
                parts_of(core, array, place).try_for_each(|part| visit(&Candidate::of(part)))
            }
            (None, None) => {
                let mut all = core.state().steps_after(place);
                all.try_for_each(|listed| visit(&Candidate::Listed(listed)))
            }
        };
    }

    /// Visits the steps that may match from `place` on, forwards or backwards, until told to break.
    pub(super) fn visit<'a>(
        &self,
        core: &'a Core,
        (place, descending): (u64, bool),
        visit: impl FnMut(&Candidate<'a>) -> ControlFlow<()>,
    ) {
        match descending {
            true => self.visit_before(core, place, visit),
            false => self.visit_after(core, place, visit),
        }
    }

    /// Visits the steps that may match and whose order is before `place`, the last submitted first, until told to break.
    fn visit_before<'a>(
        &self,
        core: &'a Core,
        place: u64,
        mut visit: impl FnMut(&Candidate<'a>) -> ControlFlow<()>,
    ) {
        let found = match (&self.ids, &self.array) {
            (Some(ids), _) => named(core, ids),
            (None, Some(array)) => parts_of(core, array, 0).map(Candidate::of).collect(),
            (None, None) => {
                let mut all = core.state().steps_before(place);
                let _where_it_broke = all.try_for_each(|listed| visit(&Candidate::Listed(listed)));
                return;
            }
        };
        let mut before = found.iter().rev().filter(|it| it.row().order < place);
        let _where_it_broke = before.try_for_each(visit);
    }

    /// Whether a row matches the filters on its state and its time of submission.
    #[inline]
    pub(super) fn takes_row(&self, row: &StepRow) -> bool {
        (self.states.as_ref()).is_none_or(|states| states.contains(&row.state))
            && (self.until).is_none_or(|until| row.submitted_at <= until)
    }

    /// Whether a candidate matches the filters on its name, its node and its array.
    #[inline]
    pub(super) fn takes_itself(&self, core: &Core, candidate: &Candidate<'_>) -> bool {
        let row = candidate.row();
        let has_filters = self.names.is_some() || self.node.is_some() || self.array.is_some();
        if !has_filters && !row.is_part {
            return true;
        }
        (self.names.as_ref())
            .is_none_or(|names| names.select(candidate.id().as_str(), candidate.name()))
            && (self.node.as_ref()).is_none_or(|node| {
                row.kind.granted.is_some() && was_last_on(candidate.step(), node)
            })
            && self.takes_part(core, candidate)
    }

    /// Whether steps of a kind match the filters on it, except that on the pool.
    pub(super) fn takes_kind(&self, kind: &StepKind) -> bool {
        (self.subject.as_ref()).is_none_or(|subject| kind.subject == *subject)
            && (self.submitted_by.as_ref())
                .is_none_or(|user| kind.submitted_by.as_ref() == Some(user))
            && self.work.is_none_or(|work| kind.work == Some(work))
            && (!self.allocations || kind.is_allocation)
            && (self.labels.as_ref()).is_none_or(|labels| labels.matches(|key| label(kind, key)))
    }

    /// Whether steps in a pool match the filter on it.
    pub(super) fn takes_pool(&self, pool: Option<&PoolName>) -> bool {
        self.pool.is_none() || self.pool.as_ref() == pool
    }

    /// Whether parts of arrays are meant, if the step is one. A part whose array is unknown is listed like other steps.
    fn takes_part(&self, core: &Core, candidate: &Candidate<'_>) -> bool {
        // Of a step that is none, only the row is read.
        let part = candidate.row().is_part.then(|| candidate.step());
        let part = part.and_then(|step| Some((step, step.part_of.as_ref()?)));
        let Some((step, part)) = part else {
            return self.array.is_none();
        };
        if let Some(array) = &self.array {
            return *array == part.array;
        }
        if core.state().array_of(&step.id).is_none() {
            return true;
        }
        let by_name = |names: &StepNames| !names.select(part.array.as_str(), &step.spec.name);
        self.with_parts
            || self.ids.is_some()
            || self.node.is_some()
            || self.names.as_ref().is_some_and(by_name)
    }

    /// Effort of a scan for a candidate, in rows that it passes over.
    #[inline]
    pub(super) fn effort(&self, candidate: &Candidate<'_>) -> usize {
        let reads_step = match candidate {
            Candidate::Listed(listed) => self.node.is_some() && listed.row.kind.granted.is_some(),
            Candidate::Found(_) => true,
        };
        match reads_step {
            true => SCAN_EFFORT / READ_LIMIT,
            false => 1,
        }
    }

    pub(super) fn has_since(&self) -> bool {
        self.since.is_some()
    }

    /// Whether it matches the filter `since`.
    pub(super) fn is_recent(&self, row: &StepRow) -> bool {
        self.since
            .zip(row.ended_at)
            .is_none_or(|(since, ended)| ended >= since)
    }
}

/// A step that may match. Most are passed over by their rows alone.
pub(super) enum Candidate<'a> {
    Listed(ListedStep<'a>),
    /// Found by its id. It may be a part of an array that is no step of its own.
    Found(Box<(StepRow, Cow<'a, Step>)>),
}

impl<'a> Candidate<'a> {
    fn of(step: Cow<'a, Step>) -> Self {
        Self::Found(Box::new((StepRow::of(&step), step)))
    }

    #[inline]
    pub(super) fn row(&self) -> &StepRow {
        match self {
            Self::Listed(listed) => listed.row,
            Self::Found(found) => &found.0,
        }
    }

    pub(super) fn id(&self) -> &StepId {
        match self {
            Self::Listed(listed) => listed.id(),
            Self::Found(found) => &found.1.id,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Listed(listed) => listed.name(),
            Self::Found(found) => &found.1.spec.name,
        }
    }

    pub(super) fn step(&self) -> &Step {
        match self {
            Self::Listed(listed) => listed.step(),
            Self::Found(found) => &found.1,
        }
    }
}

/// The steps with these ids, in the order of submission.
fn named<'a>(core: &'a Core, ids: &[StepId]) -> Vec<Candidate<'a>> {
    let found = ids.iter().filter_map(|id| core.state().find(id));
    let mut named: Vec<_> = found.map(Candidate::of).collect();
    named.sort_by_key(|it| it.row().order);
    named
}

/// All parts of an array whose order is after `after`, also those that are no steps of their own.
fn parts_of<'a>(
    core: &'a Core,
    array: &StepId,
    after: u64,
) -> impl Iterator<Item = Cow<'a, Step>> + use<'a> {
    let step = core.state().step(array);
    let spec = step.and_then(|step| Some((step, step.spec.array.as_ref()?)));
    spec.into_iter().flat_map(move |(step, spec)| {
        let from = u32::try_from(after.saturating_sub(step.order()));
        let indexes = spec.indexes.iter_from(from.unwrap_or(u32::MAX));
        indexes.filter_map(|index| core.state().find(&part_id(&step.id, index)))
    })
}

fn was_last_on(step: &Step, node: &NodeName) -> bool {
    step.latest()
        .is_some_and(|attempt| attempt.on(node).is_some())
}

fn label<'a>(kind: &'a StepKind, key: &str) -> Option<&'a str> {
    let mut labels = kind.labels.iter();
    let (_, value) = labels.find(|(name, _)| name.as_str() == key)?;
    Some(value.as_str())
}

fn ids(text: &str) -> Result<Vec<StepId>, ApiError> {
    let ids: Result<Vec<StepId>, _> = text.split(',').map(StepId::new).collect();
    let mut ids = ids.map_err(|error| params::invalid("id", error))?;
    if ids.len() > MAX_IDS {
        let why = format!("{} ids: write at most {MAX_IDS}", ids.len());
        return Err(params::invalid("id", why));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Parses a point in time, or a duration before now.
fn moment(name: &'static str, text: Option<&str>) -> Result<Option<Time>, ApiError> {
    let parse = |text: &str| {
        if let Ok(span) = text.parse::<Span>() {
            return Some(wall().before(span));
        }
        let millis = text.parse::<Timestamp>().ok()?.as_millisecond();
        Some(Time::from_unix_millis(u64::try_from(millis).unwrap_or(0)))
    };
    let refused = |text: &str| {
        let shown = params::shown(text);
        let way_out = "write a duration such as `2h` for that long ago, or a time such as `2026-01-31T08:00:00Z`";
        params::invalid(name, format!("`{shown}` is not a time: {way_out}"))
    };
    let parsed = text.map(|text| parse(text).ok_or_else(|| refused(text)));
    parsed.transpose()
}
