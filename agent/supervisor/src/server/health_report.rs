//! Reports the host's health to the agent: the result of the admin's check ([`crate::hooks::health`]),
//! missing keepers, and lack of disk space.

use sluice_common::supervision::FromSupervisor;

use super::Server;

impl Server {
    /// Reports the health if it is known and has changed.
    pub(super) fn tell_health(&mut self) {
        let found = self.host_health();
        if self.agent.is_none() || found == self.reported_health {
            return;
        }
        if let Some(found) = found.clone() {
            self.send_to_agent(&FromSupervisor::Health(found));
        }
        self.reported_health = found;
    }
}
