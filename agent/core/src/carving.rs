//! GPUs that the coordinator orders to be cut into slices: the order of the work, and the layout to ask the supervisor for.
//! [`crate::on::carving`] handles the inputs.
//!
//! ```text
//! waiting --> cutting --done--------------------------------> ended --(the driver was asked again)--> reported
//!                |  \--not allowed----------------------------^  ^
//!                \--failed--> restoring --done or failed--------/
//! ```
//! One GPU is cut at a time. A GPU that cannot be restored is quarantined, so that no step gets it.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use sluice_common::carving::{CarveFailure, CarveOrder, CarveOutcome, GpuLayout, MAX_CARVINGS};
use sluice_common::supervision::BootMillis;

/// A GPU to cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carving {
    pub(crate) order: CarveOrder,
    pub(crate) stage: CarveStage,
}

/// Stage of cutting one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarveStage {
    /// Another GPU is being cut.
    Waiting,
    /// The supervisor makes the layout.
    Cutting,
    /// The supervisor makes the layout from before, because of this failure.
    Restoring(CarveFailure),
    /// The result is known since this time and not reported, until the driver shows it.
    Ended(BootMillis, CarveOutcome),
}

/// All GPUs to cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carvings {
    by_gpu: BTreeMap<String, Carving>,
}

impl Carvings {
    /// Whether a GPU is to be cut, or was and is not reported.
    pub(crate) fn contains(&self, gpu: &str) -> bool {
        self.by_gpu.contains_key(gpu)
    }

    /// Adds an order. Returns whether there was room.
    pub(crate) fn add(&mut self, order: CarveOrder) -> bool {
        if self.by_gpu.len() >= MAX_CARVINGS {
            return false;
        }
        let carving = Carving {
            order,
            stage: CarveStage::Waiting,
        };
        self.by_gpu.insert(carving.order.gpu.clone(), carving);
        true
    }

    /// GPUs to cut, and those that were cut and are not reported.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &str> {
        self.by_gpu.keys().map(String::as_str)
    }

    /// The next question for the supervisor, unless it is at work: the GPU, and the layout.
    pub(crate) fn next(&mut self) -> Option<(String, GpuLayout)> {
        if self.current().is_some() {
            return None;
        }
        let mut waiting = self.by_gpu.values_mut();
        let first = waiting.find(|carving| carving.stage == CarveStage::Waiting)?;
        first.stage = CarveStage::Cutting;
        self.current()
    }

    /// The last question for the supervisor, if it has not answered.
    pub(crate) fn current(&self) -> Option<(String, GpuLayout)> {
        let asked = |carving: &Carving| {
            let layout = match carving.stage {
                CarveStage::Cutting => &carving.order.layout,
                CarveStage::Restoring(_) => &carving.order.before,
                CarveStage::Waiting | CarveStage::Ended(..) => return None,
            };
            Some((carving.order.gpu.clone(), layout.clone()))
        };
        self.by_gpu.values().find_map(asked)
    }

    /// Takes an answer of the supervisor. Returns why the GPU could not be restored, if so.
    pub(crate) fn on_answer(
        &mut self,
        gpu: &str,
        layout: &GpuLayout,
        failure: Option<CarveFailure>,
        now: BootMillis,
    ) -> Option<String> {
        let asked = self.current();
        if asked.is_none_or(|(asked, of)| asked != gpu || of != *layout) {
            return None;
        }
        let carving = self.by_gpu.get_mut(gpu)?;
        let (outcome, unrestored) = match (&carving.stage, failure) {
            (CarveStage::Cutting, None) => (CarveOutcome::Done, None),
            (CarveStage::Cutting, Some(CarveFailure::NotAllowed)) => {
                (failed(CarveFailure::NotAllowed, true), None)
            }
            (CarveStage::Cutting, Some(why)) => {
                carving.stage = CarveStage::Restoring(why);
                return None;
            }
            (CarveStage::Restoring(why), None) => (failed(why.clone(), true), None),
            (CarveStage::Restoring(why), Some(also)) => {
                (failed(why.clone(), false), Some(also.to_string()))
            }
            (CarveStage::Waiting | CarveStage::Ended(..), _) => return None,
        };
        carving.stage = CarveStage::Ended(now, outcome);
        unrestored
    }

    /// Takes the results that the driver had time to show since.
    pub(crate) fn take_shown(&mut self, began: BootMillis) -> BTreeMap<String, CarveOutcome> {
        let is_shown = |_: &String, carving: &mut Carving| matches!(carving.stage, CarveStage::Ended(since, _) if since <= began);
        let shown = self.by_gpu.extract_if(.., is_shown);
        let outcome = |(gpu, carving): (String, Carving)| match carving.stage {
            CarveStage::Ended(_, outcome) => Some((gpu, outcome)),
            CarveStage::Waiting | CarveStage::Cutting | CarveStage::Restoring(_) => None,
        };
        shown.filter_map(outcome).collect()
    }
}

pub(crate) fn failed(why: CarveFailure, is_restored: bool) -> CarveOutcome {
    CarveOutcome::Failed { why, is_restored }
}
