//! How a server tells the agent how its host is: by the admin's check, which [`crate::hooks::health`] knows, and by the
//! room that is left on the disk.

use sluice_common::supervision::FromSupervisor;

use super::Server;

impl Server {
    /// Says how the host is, where that is known and the agent was not told so yet.
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
