//! Ports of attempts, and their probes: what the core needs of the host for them.

use agent_core::Input;
use sluice_common::wire::ToNode;

use super::Engine;
use crate::epoch::EpochError;
use crate::metrics::MetricReader;
use crate::ports::PortSearch;
use crate::probes::ProbeRunner;

/// The parts of the host that ports and probes need.
pub(crate) struct PortsAndProbes {
    pub(crate) ports: PortSearch,
    pub(crate) probe_runner: ProbeRunner,
    pub(crate) metric_reader: MetricReader,
}

impl Engine {
    /// Finds ports for an attempt that an order assigns, before the core handles the order.
    pub(super) fn search_ports(&mut self, input: &Input) -> Result<(), EpochError> {
        let Input::Command { command, .. } = input else {
            return Ok(());
        };
        let ToNode::Assign(assignment) = &command.order else {
            return Ok(());
        };
        let is_known = self.core.status(&assignment.attempt).is_some();
        let count = assignment.ports.len();
        if count == 0 || is_known {
            return Ok(());
        }
        let found = self.probes.ports.find(count, &self.core.ports_in_use());
        self.feed(Input::FreePorts(found))
    }
}
