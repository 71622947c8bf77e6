//! The users whose own steps run as them (`as_submitter`). Steps of other submitters are rejected, unless the
//! config says `other_submitters = "as_usual"`.

use std::collections::BTreeMap;

use sluice_common::id::UserName;
use sluice_common::supervisor_config::{OtherSubmitters, StepUser, SubmitterUsers, UserRef};

use super::{Identity, NoUser};

/// The listed submitters, with their users on this host.
#[derive(Clone, Debug)]
pub(super) struct Submitters {
    by_name: BTreeMap<UserName, ListedSubmitter>,
    others: OtherSubmitters,
    place: ConfigLocation,
}

/// The user that the config names for a submitter.
#[derive(Clone, Debug)]
struct ListedSubmitter {
    user: UserRef,
    /// `None` if the user database does not have it.
    found: Option<Identity>,
}

/// Host and config file, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLocation {
    host: String,
    file: String,
}

impl Submitters {
    /// Combines the list in the config with the helper's answer.
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

    /// The user that runs the steps of `submitter`; `None` if the list does not apply.
    ///
    /// # Errors
    /// If no user may.
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
