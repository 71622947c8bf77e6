//! How a server has its host checked, and tells the agent what was found. [`crate::hooks::health`] knows the check.

use sluice_common::supervision::FromSupervisor;

use super::Server;

impl Server {
    /// A child has ended: whether it checked the host. What was found is told where it has changed.
    pub(super) fn on_health_child_ended(&mut self, pid: u32) -> bool {
        let before = self.health.found().cloned();
        let is_its = self.health.on_child_ended(pid);
        if self.stop.is_none() && self.health.found() != before.as_ref() {
            self.tell_health();
        }
        is_its
    }

    /// Says how the host is, where that is known.
    pub(super) fn tell_health(&mut self) {
        if let Some(found) = self.health.found().cloned() {
            self.tell(&FromSupervisor::Health(found));
        }
    }
}
