//! Assigns user ids to attempts: claimed before a process is made, released if the start fails.
//! [`crate::uids`] knows which ids are free.

use std::io;

use nix::unistd::Uid;
use sluice_common::supervision::SpawnSpec;

use super::{Attempt, SpawnError, Table, clock, error_chain};
use crate::identity::StepOwner;
use crate::lease::Lease;

impl Table {
    /// Claims a user id before anything of the attempt exists, so that the id is cleaned if a later part
    /// fails.
    pub(super) fn fork(&mut self, spec: &SpawnSpec, lease: Lease) -> Result<Attempt, SpawnError> {
        let id = &spec.attempt;
        self.check_pinning(spec)?;
        self.check_room(clock::boot_now())?;
        self.clear_old_directory(id)?;
        let step_owner = self.step_owner(spec)?;
        let own = self.own_uid(spec, &step_owner)?;
        let forked = self.fork_as(spec, (step_owner, own), lease);
        if let (Err(_), Some(uid)) = (&forked, own) {
            self.uids.on_gone(uid, id);
        }
        forked
    }

    /// The subject and submitter of an attempt. On a host that runs steps as their submitters, the
    /// coordinator's signature for this attempt and host is required; on others the submitter is ignored.
    fn step_owner(&self, spec: &SpawnSpec) -> Result<StepOwner, SpawnError> {
        let submitter = match &spec.submitter {
            Some(submitter) if self.spawner.needs_submitter() => {
                self.seals.verify_submitter(&spec.attempt, submitter)?;
                Some(submitter.user.clone())
            }
            Some(_) | None => None,
        };
        let subject = spec.subject.clone();
        Ok(StepOwner { subject, submitter })
    }

    fn own_uid(
        &mut self,
        spec: &SpawnSpec,
        step_owner: &StepOwner,
    ) -> Result<Option<Uid>, SpawnError> {
        if !self.spawner.needs_own_uid(step_owner)? {
            return Ok(None);
        }
        let claimed = self.uids.claim(&spec.attempt);
        claimed.map(Some).map_err(|e| SpawnError::Host {
            action: "give the attempt a user id".to_owned(),
            why: io::Error::other(error_chain(&e)),
        })
    }
}
