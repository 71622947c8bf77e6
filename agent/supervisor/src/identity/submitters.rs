//! The users whose own steps run as them: `as_submitter`. A step that somebody else submitted is refused, and runs as
//! nobody instead, unless the config says `other_submitters = "as_usual"`.

use std::collections::BTreeMap;

use sluice_common::id::UserName;

use super::{Identity, IdentityError, Nobody};
use crate::config::{AsSubmitter, OtherSubmitters, UserRef};

/// The submitters that the config lists, as this host's user database knows them.
#[derive(Clone, Debug)]
pub(super) struct Submitters {
    /// `None` is a user whom the database did not have.
    by_name: BTreeMap<UserName, Option<Identity>>,
    others: OtherSubmitters,
    place: Place,
}

/// Where a refusal sends its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    file: String,
}

impl Submitters {
    /// Looks up, by `resolve`, the users that are listed. A user whom the host does not have is refused when such a step
    /// comes: whoever leaves must not keep the steps of all others from running.
    pub(super) fn resolve(
        listed: &AsSubmitter,
        file: String,
        mut resolve: impl FnMut(String, &UserRef) -> Result<Identity, IdentityError>,
    ) -> Result<Self, IdentityError> {
        let users = listed.users.iter().map(|(submitter, user)| {
            let key = key_of(submitter);
            match resolve(key.clone(), user) {
                Ok(found) if found.uid.is_root() => Err(IdentityError::RootSubmitter { key }),
                Ok(found) => Ok((submitter.clone(), Some(found))),
                Err(IdentityError::NoUser { .. }) => Ok((submitter.clone(), None)),
                Err(error) => Err(error),
            }
        });
        let host = nix::unistd::gethostname().unwrap_or_default();
        Ok(Self {
            by_name: users.collect::<Result<_, _>>()?,
            others: listed.others,
            place: Place {
                host: host.to_string_lossy().into_owned(),
                file,
            },
        })
    }

    /// The user that runs what `submitter` has submitted; `None` if the host runs it as if there were no list.
    ///
    /// # Errors
    /// If nobody does.
    pub(super) fn of(&self, submitter: Option<&UserName>) -> Result<Option<&Identity>, Nobody> {
        let place = || self.place.clone();
        let refused = match submitter {
            Some(user) => match self.by_name.get(user) {
                Some(Some(found)) => return Ok(Some(found)),
                Some(None) => {
                    let (user, place) = (user.clone(), place());
                    return Err(Nobody::Missing { user, place });
                }
                None => Nobody::Unlisted {
                    user: user.clone(),
                    place: place(),
                },
            },
            None => Nobody::Unnamed { place: place() },
        };
        match self.others {
            OtherSubmitters::AsUsual => Ok(None),
            OtherSubmitters::Refuse => Err(refused),
        }
    }

    /// Whether nobody's steps run by this list.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The submitters that are listed with a user whom the host does not have.
    pub(super) fn missing(&self) -> impl Iterator<Item = &UserName> {
        let missing = self.by_name.iter().filter(|(_, found)| found.is_none());
        missing.map(|(submitter, _)| submitter)
    }
}

pub(super) fn key_of(submitter: &UserName) -> String {
    format!("as_submitter.{submitter}")
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of host `{}`", self.file, self.host.escape_debug())
    }
}
