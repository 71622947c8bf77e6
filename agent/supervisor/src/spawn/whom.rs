//! Who an attempt runs as, a user that the config names or one of its own, and whose its directory is.

use std::borrow::Cow;
use std::path::Path;

use nix::unistd::Uid;
use sluice_common::attempt_dir::OWN_WORKDIR;
use sluice_common::id::Subject;

use super::{PASSED_THROUGH, PRIVATE, SpawnError, Spawner, make_dir};
use crate::identity::{Identity, Nobody, Whose};

impl Spawner {
    /// Whether each attempt of a subject is to have a user id of its own.
    ///
    /// # Errors
    /// Where nobody may run it.
    pub fn gives_own_uid(&self, subject: &Subject) -> Result<bool, Nobody> {
        Ok(self.identities.of(subject)? == Whose::Own)
    }

    /// Who an attempt runs as, which has the user id `own` if it has one of its own, and its files in `dir`.
    pub(super) fn identity(
        &self,
        subject: &Subject,
        own: Option<Uid>,
        dir: &Path,
    ) -> Result<Cow<'_, Identity>, Nobody> {
        if let Some(uid) = own {
            return Ok(Cow::Owned(Identity::of_attempt(
                uid,
                &dir.join(OWN_WORKDIR),
            )));
        }
        match self.identities.of(subject)? {
            Whose::Named(identity) => Ok(Cow::Borrowed(identity)),
            // It was started under a config that named a user, and this one names none.
            Whose::Own => Err(self.identities.nobody(subject)),
        }
    }

    /// The directory stays the supervisor's own: whoever could write there could put a link where the supervisor is
    /// about to make a file.
    pub(super) fn make_own(&self, dir: &Path, identity: &Identity) -> Result<(), SpawnError> {
        let alone = identity.is_own() && self.reader_uid.is_none();
        make_dir(dir, if alone { PRIVATE } else { PASSED_THROUGH }, None)
    }
}
