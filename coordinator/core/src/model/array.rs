//! The stored array: which of its parts wait outside the queue, which are steps of their own now, and how the others
//! ended. Changed only by `state/apply/array.rs`.
//!
//! ```text
//! waiting --enters the queue--> open (a step of its own) --ends--> ended
//!    \------------------cancelled, rejected, ...------------------>/
//! ```
//! All parts ask for the same and stand at the same place of the queue, so it is enough that the next few are in it.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::array::{ArraySpec, IndexSet, PartCounts, part_id};
use sluice_common::dependency::{Dependency, ExpectedEnd};
use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::time::Time;
use sluice_reasons::Cause;

use crate::model::step::{Finished, Step};

/// Most different ends that are kept apart for one array. Beyond it, an end is counted with another of the same state.
const MAX_ENDS: usize = 100;

/// The progress of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Parts that have not entered the queue.
    pub waiting: IndexSet,
    /// Parts that have entered the queue and not ended: each is a step of its own.
    pub open: IndexSet,
    /// Ended parts, by the way in which they ended.
    pub ends: Vec<PartEnds>,
}

/// The parts of an array that ended in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEnds {
    pub state: StepState,
    pub reason: Cause,
    pub parts: IndexSet,
    /// Time of the last of these ends.
    pub last_at: Time,
}

/// The array and the index of a step that is a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    pub array: StepId,
    pub index: u32,
}

impl Array {
    /// Makes the progress of an array that was just submitted.
    pub(crate) fn new(spec: &ArraySpec) -> Self {
        Self {
            waiting: IndexSet::clone(&spec.indexes),
            ..Self::default()
        }
    }

    /// The end of a part, if it has ended.
    pub fn end_of(&self, index: u32) -> Option<&PartEnds> {
        self.ends.iter().find(|ends| ends.parts.contains(index))
    }

    /// Number of parts that have ended in a state.
    pub fn ended_as(&self, is: impl Fn(StepState) -> bool) -> u64 {
        let ends = self.ends.iter().filter(|ends| is(ends.state));
        ends.map(|ends| u64::from(ends.parts.len())).sum()
    }

    /// The parts that have ended, as `end` requires or not.
    pub(crate) fn ended(&self, end: ExpectedEnd, as_required: bool) -> Cow<'_, IndexSet> {
        let ends = self.ends.iter();
        let mut ends = ends.filter(|ends| end.is_met_by(ends.state) == as_required);
        let first = ends.next();
        let mut all = first.map_or(Cow::Owned(IndexSet::default()), |first| {
            Cow::Borrowed(&first.parts)
        });
        for more in ends {
            all.to_mut().add_all(&more.parts);
        }
        all
    }

    /// Number of parts by phase. `queued` counts those among the open ones.
    pub(crate) fn counts(&self, queued: u64) -> PartCounts {
        let open = u64::from(self.open.len());
        let waiting = u64::from(self.waiting.len());
        let succeeded = self.ended_as(|state| state == StepState::Succeeded);
        let cancelled = self.ended_as(|state| state == StepState::Cancelled);
        let ended = self.ended_as(|_| true);
        PartCounts {
            total: waiting + open + ended,
            waiting,
            queued,
            running: open.saturating_sub(queued),
            succeeded,
            failed: ended - succeeded - cancelled,
            cancelled,
        }
    }

    /// Notes the end of parts.
    pub(crate) fn note_ends(&mut self, parts: &IndexSet, state: StepState, why: &Cause, at: Time) {
        // All successes are alike, whatever host they were on.
        let reason = match state == StepState::Succeeded {
            true => &Cause::Completed,
            false => why,
        };
        let is_alike = |ends: &PartEnds| ends.state == state && ends.reason == *reason;
        let is_full = self.ends.len() >= MAX_ENDS;
        let same_state = |ends: &PartEnds| is_full && ends.state == state;
        let known = self.ends.iter().position(is_alike);
        let known = known.or_else(|| self.ends.iter().position(same_state));
        match known.and_then(|known| self.ends.get_mut(known)) {
            Some(ends) => {
                ends.parts.add_all(parts);
                ends.last_at = at;
            }
            None => self.ends.push(PartEnds {
                state,
                reason: reason.clone(),
                parts: parts.clone(),
                last_at: at,
            }),
        }
    }

    /// The state and the reason of an array whose parts have all ended.
    pub(crate) fn outcome(&self) -> (StepState, Cause) {
        if let [only] = &self.ends[..]
            && only.state != StepState::Succeeded
        {
            return (only.state, only.reason.clone());
        }
        let counts = self.counts(0);
        let state = match (counts.failed, counts.cancelled) {
            (0, 0) => StepState::Succeeded,
            (0, _) => StepState::Cancelled,
            (_, _) => StepState::Failed,
        };
        (state, Cause::Parts { counts })
    }
}

/// The spec of a part, made from that of its array.
pub(crate) fn part_spec(index: u32, spec: StepSpec) -> StepSpec {
    let paired = spec.after.iter().filter(|it| it.each);
    let after = paired.map(|it| Dependency {
        step: part_id(&it.step, index),
        each: false,
        end: it.end,
    });
    StepSpec {
        array: None,
        after: after.collect(),
        ..spec
    }
}

impl Step {
    /// The part with this index as a step: queued for the first time, or as it ended if it is not remembered as a step
    /// of its own any more. `None` if it is no array, or has no such part.
    pub fn part(&self, index: u32) -> Option<Step> {
        let array = self.array.as_ref()?;
        let spec = self.spec.array.as_ref()?;
        if !spec.indexes.contains(index) {
            return None;
        }
        let mut part = self.new_part(index, &self.spec);
        if let Some(end) = array.end_of(index) {
            part.state = end.state;
            part.reason = end.reason.clone();
            part.finished = Some(Finished {
                seq: self.place,
                at: end.last_at,
            });
        }
        Some(part)
    }

    /// A part as it enters the queue. `spec` is that of the array.
    pub(crate) fn new_part(&self, index: u32, spec: &StepSpec) -> Step {
        let spec = Arc::new(part_spec(index, spec.clone()));
        let id = part_id(&self.id, index);
        let queued = (StepState::Queued, Cause::Submitted);
        Step {
            excluded_pools: self.excluded_pools.clone(),
            route: self.route.clone(),
            moved_at: self.moved_at,
            provenance: self.provenance.clone(),
            part_of: Some(ArrayPart {
                array: self.id.clone(),
                index,
            }),
            ..Step::new(id, spec, self.place, self.submitted_at, queued)
        }
    }

    /// Whether the parts of an array may enter the queue: the array waits for no time, and for no other steps except for
    /// those with which its parts are paired.
    pub(crate) fn lets_parts_enter(&self) -> bool {
        let after = &self.spec.after;
        let is_paired = |on: &StepId| after.iter().any(|it| it.each && it.step == *on);
        self.not_before.is_none() && !self.held && self.unmet.iter().all(is_paired)
    }
}
