//! The users whose own steps run as them: `as_submitter`. A step that somebody else submitted is refused, and runs as
//! nobody instead, unless the config says `other_submitters = "as_usual"`.

use std::collections::BTreeMap;

use sluice_common::id::UserName;
use sluice_common::supervisor_config::{OtherSubmitters, StepUser, SubmitterUsers, UserRef};

use super::{Identity, Nobody};

/// The submitters that the config lists, as this host's user database knows them.
#[derive(Clone, Debug)]
pub(super) struct Submitters {
    by_name: BTreeMap<UserName, Listed>,
    others: OtherSubmitters,
    place: Place,
}

/// The user of this host whom the config names for a submitter.
#[derive(Clone, Debug)]
struct Listed {
    user: UserRef,
    /// `None` if the database did not have it.
    found: Option<Identity>,
}

/// Where a refusal sends its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    file: String,
}

impl Submitters {
    /// Those of the list, by what the helper has found of each.
    pub(super) fn new(
        listed: &SubmitterUsers,
        file: String,
        mut found: BTreeMap<UserName, Option<StepUser>>,
    ) -> Self {
        let users = listed.users.iter().map(|(submitter, user)| {
            let found = found.remove(submitter).flatten().map(Identity::from);
            let user = user.clone();
            (submitter.clone(), Listed { user, found })
        });
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            by_name: users.collect(),
            others: listed.others,
            place: Place {
                host: host.to_string_lossy().into_owned(),
                file,
            },
        }
    }

    /// The user that runs what `submitter` has submitted; `None` if the host runs it as if there were no list.
    ///
    /// # Errors
    /// If nobody does.
    pub(super) fn of(&self, submitter: Option<&UserName>) -> Result<Option<&Identity>, Nobody> {
        let place = || self.place.clone();
        let refused = match submitter {
            Some(user) => match self.by_name.get(user) {
                Some(Listed {
                    found: Some(found), ..
                }) => return Ok(Some(found)),
                Some(Listed {
                    user: lacking,
                    found: None,
                }) => {
                    return Err(Nobody::Missing {
                        user: user.clone(),
                        lacking: lacking.clone(),
                        place: place(),
                    });
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
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of host `{}`", self.file, self.host.escape_debug())
    }
}
