//! Applies records of the ports and the readiness of attempts.

use sluice_common::time::Time;

use crate::model::step::PartPhase;
use crate::record::{PortsAllocated, ReadinessChanged};
use crate::state::State;

use super::attempt::part_in;
use super::{ApplyResult, step_mut};

impl State {
    pub(super) fn on_ports_allocated(&mut self, it: &PortsAllocated) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &it.attempt.step)?;
        let phases = [PartPhase::Starting, PartPhase::Running];
        let part = part_in(step, &it.attempt, &it.node, &phases)?;
        part.endpoint.get_or_insert_default().ports = it.ports.clone();
        Ok(())
    }

    pub(super) fn on_readiness_changed(&mut self, at: Time, it: &ReadinessChanged) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &it.attempt.step)?;
        let part = part_in(step, &it.attempt, &it.node, &[PartPhase::Running])?;
        let endpoint = part.endpoint.get_or_insert_default();
        endpoint.succeeds = it.ready;
        endpoint.failure = it.failure.clone();
        endpoint.changed_at = at;
        if it.ready {
            endpoint.succeeded_at = at;
            endpoint.times = endpoint.times.saturating_add(1);
        }
        Ok(())
    }
}
