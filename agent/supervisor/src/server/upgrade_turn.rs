//! Upgrade of a server in place: the rehearsal before, and the handover. [`crate::upgrade`] runs the new
//! program.

use std::os::fd::AsFd;

use super::{Server, ServerError};
use crate::handover::{self, FORMAT, Handover, HandoverError};
use crate::helper_program::HelperProgram;
use crate::identity::Identities;
use crate::options::Options;
use crate::state_dir::StateDir;
use crate::table::TableError;

impl Server {
    /// Checks everything that could make [`Server::open`] fail, and changes nothing.
    ///
    /// # Errors
    /// The first such failure.
    pub fn rehearse(options: Options, form: u32) -> Result<(), ServerError> {
        if form != FORMAT {
            return Err(HandoverError::Format { theirs: form }.into());
        }
        HelperProgram::installed().map_err(TableError::Spawner)?;
        Identities::resolve(options.rules, options.agent_uid)?;
        Ok(StateDir::check(&options.state_dir)?)
    }

    /// Executes the new program when the spool is complete. That closes the agent's connection; the agent
    /// reconnects and gets a full list.
    pub(super) fn continue_upgrade(&mut self) {
        let (Some(listener), None) = (&self.listener, self.stop) else {
            return;
        };
        if !self.upgrade.is_due() || !self.table.is_saved() {
            return;
        }
        // The connection to their agent is lost.
        self.table.end_execs();
        let (children, killing, seen) = self.table.hand_over();
        let handover = Handover {
            format: FORMAT,
            lock: handover::number(&self.state_dir.lock()),
            listener: handover::number(listener),
            children,
            killing,
            seen,
            epilogs: self.table.hand_over_epilogs(),
            afters: self.table.hand_over_after_hooks(),
        };
        let mut kept = vec![self.state_dir.lock(), listener.as_fd()];
        kept.extend(self.table.handed());
        self.table.lower_own_limit(true);
        self.upgrade.exec(&handover, &kept);
        self.table.lower_own_limit(false);
    }
}
