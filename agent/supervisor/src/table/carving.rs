//! Cuts GPUs into slices, one at a time: whether this host allows it, when a helper is started, and what follows from its
//! output or its time limit. The helper finds out whether the driver lists the GPU and whether it is in use.

use std::mem::take;

use sluice_common::carving::{CarveFailure, GpuLayout, is_gpu_uuid};
use sluice_common::error_chain::error_chain;
use sluice_common::supervision::{BootMillis, FromSupervisor};
use tracing::{info, warn};

use super::{Attempt, Table};
use crate::carving::{CarvingGpu, RunningCarving};
use crate::clock;
use crate::spawn::carver::CarveTask;

impl Table {
    /// Cuts a GPU, now or after the one that is being cut.
    pub(super) fn on_carve(&mut self, gpu: String, layout: GpuLayout, now: BootMillis) {
        let order = CarvingGpu { gpu, layout };
        let is_known = is_gpu_uuid(&order.gpu) && order.layout.can_be_made();
        let refusal = match (self.carvings.is_allowed(), is_known) {
            (false, _) => Some(CarveFailure::NotAllowed),
            (true, false) => Some(CarveFailure::Refused(
                "the order names no GPU, or slices that no GPU has".to_owned(),
            )),
            (true, true) => None,
        };
        if let Some(why) = refusal {
            return self.carvings.ended.push(order.ended(Some(why)));
        }
        match &self.carvings.running {
            Some(running) if running.order == order => self.carvings.next = None,
            Some(_) => self.carvings.next = Some(order),
            None => self.start_carver(order, now),
        }
    }

    fn start_carver(&mut self, order: CarvingGpu, now: BootMillis) {
        let live = self.attempts.values().filter(|attempt| !attempt.is_gone());
        let held = live.flat_map(|attempt: &Attempt| attempt.memo.gpus.clone());
        let started = self.spawner.send_carver(&CarveTask {
            library: self.carvings.rules.library.as_deref(),
            gpu: &order.gpu,
            layout: &order.layout,
            held: &held.collect::<Vec<String>>(),
        });
        match started {
            Ok(helper) => {
                info!(gpu = order.gpu, layout = %order.layout, pid = helper.pid, "a helper begins to cut a GPU");
                let until = clock::after(now, self.carvings.rules.limit);
                self.carvings.running = Some(RunningCarving {
                    order,
                    helper,
                    until,
                });
            }
            Err(e) => {
                let why = CarveFailure::Refused(error_chain(&e));
                self.carvings.ended.push(order.ended(Some(why)));
            }
        }
    }

    /// Handles the end of a child; returns whether it was such a helper.
    pub(super) fn on_carver_ended(&mut self, pid: u32, now: BootMillis) -> bool {
        let is_it = |running: &mut RunningCarving| running.helper.pid == pid;
        let Some(running) = self.carvings.running.take_if(is_it) else {
            return false;
        };
        let failure = running.helper.failure();
        self.end_carving(running.order, failure, now);
        true
    }

    /// Kills a helper that exceeds its time limit. Its end is not waited for, because the driver may hold it.
    pub(super) fn check_carver_timeout(&mut self, now: BootMillis) {
        let is_late = |running: &mut RunningCarving| running.until <= now;
        if let Some(running) = self.carvings.running.take_if(is_late) {
            running.helper.kill();
            self.end_carving(running.order, Some(CarveFailure::TimedOut), now);
        }
    }

    fn end_carving(&mut self, order: CarvingGpu, failure: Option<CarveFailure>, now: BootMillis) {
        match &failure {
            None => info!(gpu = order.gpu, layout = %order.layout, "the GPU is cut"),
            Some(why) => {
                warn!(gpu = order.gpu, layout = %order.layout, "the GPU is not cut: {why}")
            }
        }
        self.carvings.ended.push(order.ended(failure));
        if let Some(next) = self.carvings.next.take() {
            self.start_carver(next, now);
        }
    }

    /// Messages about GPUs that were cut, or were not.
    pub fn ended_carvings(&mut self) -> Vec<FromSupervisor> {
        take(&mut self.carvings.ended)
    }
}
