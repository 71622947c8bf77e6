//! The users whose own steps run as them: `as_submitter`. A step that somebody else submitted is refused, and runs as
//! nobody instead, unless the config says `other_submitters = "as_usual"`.

use std::collections::BTreeMap;

use sluice_common::id::UserName;
use sluice_common::supervisor_config::{OtherSubmitters, StepUser, SubmitterUsers, UserRef};

use super::{Identity, NoUser};

/// The submitters that the config lists, as this host's user database knows them.
#[derive(Clone, Debug)]
pub(super) struct Submitters {
    by_name: BTreeMap<UserName, ListedSubmitter>,
    others: OtherSubmitters,
    place: ConfigLocation,
}

/// The user of this host whom the config names for a submitter.
#[derive(Clone, Debug)]
struct ListedSubmitter {
    user: UserRef,
    /// `None` if the database did not have it.
    found: Option<Identity>,
}

/// Where a refusal sends its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLocation {
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
            (submitter.clone(), ListedSubmitter { user, found })
        });
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            by_name: users.collect(),
            others: listed.others,
            place: ConfigLocation {
                host: host.to_string_lossy().into_owned(),
                file,
            },
        }
    }

    /// The user that runs what `submitter` has submitted; `None` if the host runs it as if there were no list.
    ///
    /// # Errors
    /// If nobody does.
    pub(super) fn of(&self, submitter: Option<&UserName>) -> Result<Option<&Identity>, NoUser> {
        let place = || self.place.clone();
        let refused = match submitter {
            Some(user) => match self.by_name.get(user) {
                Some(ListedSubmitter {
                    found: Some(found), ..
                }) => return Ok(Some(found)),
                Some(ListedSubmitter {
                    user: lacking,
                    found: None,
                }) => {
                    return Err(NoUser::Missing {
                        user: user.clone(),
                        lacking: lacking.clone(),
                        place: place(),
                    });
                }
                None => NoUser::Unlisted {
                    user: user.clone(),
                    place: place(),
                },
            },
            None => NoUser::Unnamed { place: place() },
        };
        match self.others {
            OtherSubmitters::AsUsual => Ok(None),
            OtherSubmitters::Refuse => Err(refused),
        }
    }
}

impl std::fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of host `{}`", self.file, self.host.escape_debug())
    }
}
