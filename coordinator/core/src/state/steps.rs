//! All remembered steps, by id and in the order of submission.

mod kinds;
mod row_table;
mod shared_parts;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Index;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_common::array::parts_in;
use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::Time;
use smol_str::SmolStr;

use crate::model::step::Step;
use kinds::KindTable;
pub use kinds::StepKind;
use row_table::{Row, RowTable};
use shared_parts::SharedParts;

/// Steps in the order of submission, and the order of each by its id. A snapshot has them as a map by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    orders: BTreeMap<StepId, u64>,
    /// Steps by [`Step::order`].
    by_order: RowTable<StepRow, StoredStep>,
    kinds: KindTable,
    shared_parts: SharedParts,
}

/// The parts of a step by which most lists are filtered and sorted: as much as a processor reads at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// The step's [`Step::order`].
    pub order: u64,
    /// Kind of the step: the parts that it has in common with others.
    pub kind: Arc<StepKind>,
    /// State of the step.
    pub state: StepState,
    /// Whether it is a part of an array.
    pub is_part: bool,
    /// Time of acceptance or rejection.
    pub submitted_at: Time,
    /// Time at which the latest attempt began.
    pub began_at: Option<Time>,
    /// Time of the end.
    pub ended_at: Option<Time>,
}

const _: () = assert!(size_of::<StepRow>() <= 64);

impl Row for StepRow {
    fn order(&self) -> u64 {
        self.order
    }
}

/// The rest of a remembered step: its id and its name, which some lists read of all steps, and the step itself, which a
/// copy of the state shares until it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredStep {
    id: StepId,
    name: SmolStr,
    step: Arc<Step>,
}

impl StepRow {
    /// Returns the row of a step that is not remembered.
    pub fn of(step: &Step) -> Self {
        Self::with_kind(step, Arc::new(StepKind::of(step)))
    }

    /// The step's [`Step::place`].
    pub fn place(&self) -> u64 {
        Step::place_of(self.order)
    }

    fn with_kind(step: &Step, kind: Arc<StepKind>) -> Self {
        Self {
            order: step.order(),
            kind,
            state: step.state,
            is_part: step.part_of.is_some(),
            submitted_at: step.submitted_at,
            began_at: step.latest().and_then(|attempt| attempt.began_at),
            ended_at: step.finished.map(|end| end.at),
        }
    }
}

/// A remembered step with its row. A list that passes over a step by its row, its id or its name does not read the step
/// itself, which lies elsewhere in memory.
#[derive(Clone, Copy, Debug)]
pub struct ListedStep<'a> {
    /// The row of the step.
    pub row: &'a StepRow,
    stored: &'a StoredStep,
}

impl<'a> ListedStep<'a> {
    fn new((row, stored): (&'a StepRow, &'a StoredStep)) -> Self {
        Self { row, stored }
    }

    /// Id of the step.
    pub fn id(&self) -> &'a StepId {
        &self.stored.id
    }

    /// Name of the step.
    pub fn name(&self) -> &'a SmolStr {
        &self.stored.name
    }

    /// The step itself.
    pub fn step(&self) -> &'a Step {
        &self.stored.step
    }
}

impl Steps {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// Whether there is a step with this id.
    pub fn contains_key(&self, id: &StepId) -> bool {
        self.orders.contains_key(id)
    }

    /// The step with this id.
    pub fn get(&self, id: &StepId) -> Option<&Step> {
        let order = self.orders.get(id)?;
        self.by_order.get(*order).map(|stored| &*stored.step)
    }

    /// The step with this id, for changes that leave its place as it is. [`Steps::renew_row`] follows them.
    pub(crate) fn get_mut(&mut self, id: &StepId) -> Option<&mut Step> {
        let order = self.orders.get(id)?;
        let (_, stored) = self.by_order.get_mut(*order)?;
        Some(Arc::make_mut(&mut stored.step))
    }

    /// Makes the row of a step again, if there is one with this id.
    pub(crate) fn renew_row(&mut self, id: &StepId) {
        let found = self.orders.get(id);
        let Some((row, stored)) = found.and_then(|order| self.by_order.get_mut(*order)) else {
            return;
        };
        let step = &stored.step;
        if !row.kind.is_of(step) {
            let kind = self.kinds.take(StepKind::of(step));
            self.kinds.release(&core::mem::replace(&mut row.kind, kind));
        }
        *row = StepRow::with_kind(step, row.kind.clone());
    }

    /// Ids, in their own order.
    pub fn keys(&self) -> impl Iterator<Item = &StepId> {
        self.orders.keys()
    }

    /// Steps in the order of submission.
    pub fn values(&self) -> impl Iterator<Item = &Step> {
        self.by_order.entries().map(|(_, stored)| &*stored.step)
    }

    /// Steps in the order of submission, for changes that leave their places and rows as they are.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        let all = self.by_order.values_mut();
        all.map(|stored| Arc::make_mut(&mut stored.step))
    }

    /// Steps that were submitted after the one of this order, in the order of submission.
    pub(crate) fn after(&self, order: u64) -> impl Iterator<Item = ListedStep<'_>> {
        self.by_order.after(order).map(ListedStep::new)
    }

    /// Steps that were submitted before the one of this order, the last submitted first.
    pub(crate) fn before(&self, order: u64) -> impl Iterator<Item = ListedStep<'_>> {
        self.by_order.before(order).map(ListedStep::new)
    }

    /// Steps that have ids of parts of an array, with their indexes.
    pub(crate) fn with_ids_of(&self, array: &StepId) -> impl Iterator<Item = (u32, &Step)> {
        let orders = parts_in(&self.orders, array);
        orders.filter_map(|(_, index, order)| Some((index, &*self.by_order.get(*order)?.step)))
    }

    /// Adds a step, in the place of one with its id.
    pub(crate) fn insert(&mut self, mut step: Step) {
        self.remove(&step.id);
        self.shared_parts.share(&mut step);
        let row = StepRow::with_kind(&step, self.kinds.take(StepKind::of(&step)));
        self.orders.insert(step.id.clone(), row.order);
        let stored = StoredStep {
            id: step.id.clone(),
            name: SmolStr::new(&step.spec.name),
            step: Arc::new(step),
        };
        self.by_order.insert(row, stored);
    }

    /// Removes the step with this id.
    pub(crate) fn remove(&mut self, id: &StepId) -> Option<Step> {
        let order = self.orders.remove(id)?;
        let (row, stored) = self.by_order.remove(order)?;
        self.kinds.release(&row.kind);
        Some(Arc::unwrap_or_clone(stored.step))
    }
}

impl Index<&StepId> for Steps {
    type Output = Step;

    fn index(&self, id: &StepId) -> &Step {
        self.get(id).expect("the id of a remembered step")
    }
}

impl Serialize for Steps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_id = self.orders.iter();
        serializer.collect_map(
            by_id.filter_map(|(id, order)| Some((id, &*self.by_order.get(*order)?.step))),
        )
    }
}

impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_id = BTreeMap::<StepId, Step>::deserialize(deserializer)?;
        let mut steps = Self::default();
        by_id.into_values().for_each(|step| steps.insert(step));
        if steps.by_order.len() < steps.orders.len() {
            return Err(D::Error::custom("two steps have one place"));
        }
        Ok(steps)
    }
}
