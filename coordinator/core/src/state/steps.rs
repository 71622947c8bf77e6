//! All remembered steps, by id and in the order of submission.

mod row_table;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Index;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_common::array::parts_in;
use sluice_common::id::{StepId, Subject};
use sluice_common::state::StepState;
use sluice_common::time::Time;
use smol_str::SmolStr;

use crate::model::step::Step;
use row_table::RowTable;

/// Steps in the order of submission, and the order of each by its id. A snapshot has them as a map by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    orders: BTreeMap<StepId, u64>,
    /// Steps by [`Step::order`].
    by_order: RowTable<ListedStep>,
}

/// A step behind its row. A list that passes over a step by its row does not read the rest of it, which lies elsewhere in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedStep {
    row: StepRow,
    step: Box<Step>,
}

/// The parts of a step by which lists are mostly filtered and sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// The step's [`Step::order`].
    pub order: u64,
    /// Id of the step.
    pub id: StepId,
    /// Name of the step.
    pub name: SmolStr,
    /// Subject of the step.
    pub subject: Subject,
    /// State of the step.
    pub state: StepState,
    /// Whether it is a part of an array.
    pub is_part: bool,
    /// Priority of the step.
    pub priority: i64,
    /// Time of acceptance or rejection.
    pub submitted_at: Time,
    /// Time at which the latest attempt began.
    pub began_at: Option<Time>,
    /// Time of the end.
    pub ended_at: Option<Time>,
}

impl StepRow {
    /// Returns the row of a step.
    pub fn of(step: &Step) -> Self {
        let spec = &step.spec;
        Self {
            order: step.order(),
            id: step.id.clone(),
            name: SmolStr::new(&spec.name),
            subject: spec.subject.clone(),
            state: step.state,
            is_part: step.part_of.is_some(),
            priority: spec.priority,
            submitted_at: step.submitted_at,
            began_at: began_at(step),
            ended_at: ended_at(step),
        }
    }

    /// Takes over what changes of a step.
    fn renew(&mut self, step: &Step) {
        self.state = step.state;
        self.began_at = began_at(step);
        self.ended_at = ended_at(step);
    }
}

fn began_at(step: &Step) -> Option<Time> {
    step.latest().and_then(|attempt| attempt.began_at)
}

fn ended_at(step: &Step) -> Option<Time> {
    step.finished.map(|end| end.at)
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
        self.by_order.get(*order).map(|listed| &*listed.step)
    }

    /// The step with this id, for changes that leave its place as it is. [`Steps::renew_row`] follows them.
    pub(crate) fn get_mut(&mut self, id: &StepId) -> Option<&mut Step> {
        let order = self.orders.get(id)?;
        self.by_order
            .get_mut(*order)
            .map(|listed| &mut *listed.step)
    }

    /// Makes the row of a step again, if there is one with this id.
    pub(crate) fn renew_row(&mut self, id: &StepId) {
        let order = self.orders.get(id);
        if let Some(listed) = order.and_then(|order| self.by_order.get_mut(*order)) {
            listed.row.renew(&listed.step);
        }
    }

    /// Ids, in their own order.
    pub fn keys(&self) -> impl Iterator<Item = &StepId> {
        self.orders.keys()
    }

    /// Steps in the order of submission.
    pub fn values(&self) -> impl Iterator<Item = &Step> {
        self.by_order.values().map(|listed| &*listed.step)
    }

    /// Steps in the order of submission, for changes that leave their places and rows as they are.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        self.by_order.values_mut().map(|listed| &mut *listed.step)
    }

    /// Steps that were submitted after the one of this order, in the order of submission.
    pub(crate) fn after(&self, order: u64) -> impl Iterator<Item = (&StepRow, &Step)> {
        let listed = self.by_order.after(order);
        listed.map(|listed| (&listed.row, &*listed.step))
    }

    /// Steps that were submitted before the one of this order, the last submitted first.
    pub(crate) fn before(&self, order: u64) -> impl Iterator<Item = (&StepRow, &Step)> {
        let listed = self.by_order.before(order);
        listed.map(|listed| (&listed.row, &*listed.step))
    }

    /// Steps that have ids of parts of an array, with their indexes.
    pub(crate) fn with_ids_of(&self, array: &StepId) -> impl Iterator<Item = (u32, &Step)> {
        let orders = parts_in(&self.orders, array);
        orders.filter_map(|(_, index, order)| Some((index, &*self.by_order.get(*order)?.step)))
    }

    /// Adds a step, in the place of one with its id.
    pub(crate) fn insert(&mut self, step: Step) {
        self.remove(&step.id);
        let row = StepRow::of(&step);
        self.orders.insert(row.id.clone(), row.order);
        let step = Box::new(step);
        let order = row.order;
        self.by_order.insert(order, ListedStep { row, step });
    }

    /// Removes the step with this id.
    pub(crate) fn remove(&mut self, id: &StepId) -> Option<Step> {
        let order = self.orders.remove(id)?;
        self.by_order.remove(order).map(|listed| *listed.step)
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
