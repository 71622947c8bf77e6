//! The user that an attempt runs as, configured or of the attempt's own, and the owner of its directory.

use std::borrow::Cow;
use std::path::Path;

use nix::unistd::Uid;
use sluice_common::attempt_dir::OWN_WORKDIR;
use sluice_common::id::{AttemptId, UserName};

use super::{PRIVATE, SpawnError, Spawner, TRAVERSABLE, make_dir};
use crate::identity::{Identity, NoUser, RunAs, StepOwner};

impl Spawner {
    /// Whether the attempt needs a user id of its own.
    ///
    /// # Errors
    /// If no user may run it.
    pub fn needs_own_uid(&self, step_owner: &StepOwner) -> Result<bool, NoUser> {
        Ok(self.identities.of(step_owner)? == RunAs::Own)
    }

    /// Whether the submitter of a step matters on this host.
    pub fn needs_submitter(&self) -> bool {
        self.identities.needs_submitter()
    }

    /// Fails if a program beside a step would run as the step's submitter on behalf of another user.
    ///
    /// # Errors
    /// The reason, and what to do.
    pub fn may_become(&self, step_owner: &StepOwner, by: Option<&UserName>) -> Result<(), String> {
        match self.identities.as_submitter(step_owner) {
            Some(submitter) if by != Some(submitter) => Err(format!(
                "on this host the step runs as `{submitter}`, who submitted it, and nobody else may run programs as that \
                 user: ask `{submitter}`, or an admin of the cluster"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that programs may run beside an attempt now, as its user.
    ///
    /// # Errors
    /// If the host has no user for it any more.
    pub fn check_identity(
        &self,
        attempt: &AttemptId,
        step_owner: &StepOwner,
        own: Option<Uid>,
    ) -> Result<(), SpawnError> {
        let dir = self.attempt_dir(attempt);
        self.identity(step_owner, own, &dir).map(drop)
    }

    /// The user of an attempt, which has the user id `own` if it has one of its own, and its files in `dir`.
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
        // The step has started already, so another pool does not help.
        match self
            .identities
            .of(step_owner)
            .map_err(SpawnError::NoProgram)?
        {
            RunAs::Named(identity) => Ok(Cow::Borrowed(identity)),
            // The step started under a config that named a user, and the current one names none.
            RunAs::Own => {
                let nobody = self.identities.nobody(&step_owner.subject);
                Err(SpawnError::NoProgram(nobody))
            }
        }
    }

    /// The directory stays the supervisor's: a user who could write there could place a link that the
    /// supervisor follows.
    pub(super) fn make_own(&self, dir: &Path, identity: &Identity) -> Result<(), SpawnError> {
        let alone = identity.is_own() && self.reader_uid.is_none();
        make_dir(dir, if alone { PRIVATE } else { TRAVERSABLE }, None)
    }
}
