//! Who an attempt runs as, a user that the config names or one of its own, and whose its directory is.

use std::borrow::Cow;
use std::path::Path;

use nix::unistd::Uid;
use sluice_common::attempt_dir::OWN_WORKDIR;
use sluice_common::id::UserName;

use super::{PRIVATE, SpawnError, Spawner, TRAVERSABLE, make_dir};
use crate::identity::{Identity, NoUser, RunAs, StepOwner};

impl Spawner {
    /// Whether an attempt is to have a user id of its own.
    ///
    /// # Errors
    /// Where nobody may run it.
    pub fn needs_own_uid(&self, step_owner: &StepOwner) -> Result<bool, NoUser> {
        Ok(self.identities.of(step_owner)? == RunAs::Own)
    }

    /// Whether it matters who submitted a step.
    pub fn needs_submitter(&self) -> bool {
        self.identities.needs_submitter()
    }

    /// Refuses whoever would become another user by a program beside a step that runs as its submitter.
    ///
    /// # Errors
    /// Why, and the way out.
    pub fn may_become(&self, step_owner: &StepOwner, by: Option<&UserName>) -> Result<(), String> {
        match self.identities.as_submitter(step_owner) {
            Some(submitter) if by != Some(submitter) => Err(format!(
                "on this host the step runs as `{submitter}`, who submitted it, and nobody else may run programs as that \
                 user: ask `{submitter}`, or an admin of the cluster"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Who an attempt runs as, which has the user id `own` if it has one of its own, and its files in `dir`.
    pub(super) fn identity(
        &self,
        step_owner: &StepOwner,
        own: Option<Uid>,
        dir: &Path,
    ) -> Result<Cow<'_, Identity>, SpawnError> {
        if let Some(uid) = own {
            return Ok(Cow::Owned(Identity::of_attempt(
                uid,
                &dir.join(OWN_WORKDIR),
            )));
        }
        // Who a step would begin as was asked before: by now it runs, or has run.
        match self
            .identities
            .of(step_owner)
            .map_err(SpawnError::NoProgram)?
        {
            RunAs::Named(identity) => Ok(Cow::Borrowed(identity)),
            // It was started under a config that named a user, and this one names none.
            RunAs::Own => {
                let nobody = self.identities.nobody(&step_owner.subject);
                Err(SpawnError::NoProgram(nobody))
            }
        }
    }

    /// The directory stays the supervisor's own: whoever could write there could put a link where the supervisor is
    /// about to make a file.
    pub(super) fn make_own(&self, dir: &Path, identity: &Identity) -> Result<(), SpawnError> {
        let alone = identity.is_own() && self.reader_uid.is_none();
        make_dir(dir, if alone { PRIVATE } else { TRAVERSABLE }, None)
    }
}
