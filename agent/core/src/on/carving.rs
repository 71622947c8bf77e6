//! Cuts GPUs into slices for the coordinator. [`crate::carving`] has the stages.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use sluice_common::carving::{CarveFailure, CarveOrder, CarveOutcome, GpuLayout};
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, ToSupervisor};
use sluice_common::wire::FromNode;

use crate::attempt::Attempt;
use crate::carving::failed;
use crate::core::Core;
use crate::output::Output;

impl Core {
    /// Cuts a GPU, unless it is in use: the coordinator may know less. A repeat changes nothing.
    pub(crate) fn on_carve(&mut self, order: CarveOrder) {
        let gpu = order.gpu.clone();
        if self.carvings.contains(&gpu) {
            return;
        }
        if let Some(why) = self.carve_refusal(&order) {
            return self.report_carving(gpu, failed(why, true));
        }
        if !self.carvings.add(order) {
            let why = "too many GPUs of the host are being cut".to_owned();
            return self.report_carving(gpu, failed(CarveFailure::Refused(why), true));
        }
        self.order_carving();
    }

    fn carve_refusal(&self, order: &CarveOrder) -> Option<CarveFailure> {
        if self.settings.gpus_are_declared {
            let why = "the GPUs of the host are only declared".to_owned();
            return Some(CarveFailure::Refused(why));
        }
        if let Some(id) = self.holder_of(&order.gpu) {
            return Some(CarveFailure::InUse(format!("step `{}`", id.step)));
        }
        let fault = self.gpus.fault_of(&order.gpu)?;
        Some(CarveFailure::Refused(format!("the GPU is unfit: {fault}")))
    }

    /// The attempt that has a GPU or a slice of it, frozen ones included.
    fn holder_of(&self, gpu: &str) -> Option<&AttemptId> {
        let holds = |id: &AttemptId| {
            let attempt = self.attempts.get(id);
            attempt.is_some_and(|it| !matches!(it, Attempt::Released { .. }))
        };
        let mut held = self.assigned_gpus.iter().filter(|(id, _)| holds(id));
        let overlaps = |unit: &String| self.gpus.overlap(unit, gpu);
        let found = held.find(|(_, units)| units.iter().any(overlaps));
        found.map(|(id, _)| id)
    }

    /// Whether a unit is, or is a slice of, a GPU that is being cut.
    pub(crate) fn is_carved(&self, unit: &str) -> bool {
        let mut carved = self.carvings.gpus();
        carved.any(|gpu| self.gpus.overlap(unit, gpu))
    }

    fn order_carving(&mut self) {
        if let Some((gpu, layout)) = self.carvings.next() {
            self.supervise(ToSupervisor::Carve(gpu, layout));
        }
    }

    /// Repeats the order that a supervisor may have lost. Whatever it did, the same layout results.
    pub(crate) fn order_carving_again(&mut self) {
        if let Some((gpu, layout)) = self.carvings.current() {
            self.supervise(ToSupervisor::Carve(gpu, layout));
        }
    }

    pub(crate) fn on_carved(
        &mut self,
        gpu: &str,
        layout: &GpuLayout,
        failure: Option<CarveFailure>,
    ) {
        let before = self.carvings.current();
        let unrestored = self.carvings.on_answer(gpu, layout, failure, self.clock);
        if let Some(why) = unrestored {
            let why = format!("it could not be cut, nor made as before: {why}");
            self.gpus.mark_unhealthy(gpu, why, false);
            self.report_gpus();
        }
        if before != self.carvings.current() {
            self.order_carving_again();
        }
        self.order_carving();
    }

    /// Reports results that the inventory on the link shows.
    pub(crate) fn on_full_look(&mut self, began: BootMillis) {
        for (gpu, outcome) in self.carvings.take_shown(began) {
            self.report_carving(gpu, outcome);
        }
    }

    /// Reports to the coordinator if the link was greeted; to a later link the coordinator repeats the order.
    fn report_carving(&mut self, gpu: String, outcome: CarveOutcome) {
        if let Some(link) = self.greeted_link() {
            let message = FromNode::Carved { gpu, outcome };
            self.outputs.push(Output::Send { link, message });
        }
    }
}
