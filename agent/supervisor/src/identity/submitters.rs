//! The users whose own steps run as them: `as_submitter`. A step that somebody else submitted is refused, and runs as
//! nobody instead, unless the config says `other_submitters = "as_usual"`.

use std::collections::BTreeMap;

use nix::unistd::Gid;
use sluice_common::id::UserName;
use sluice_common::supervisor_config::{AsSubmitter, OtherSubmitters, UserRef};

use super::{Identity, IdentityError, Nobody};

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
    /// Looks up, by `resolve`, the users that are listed. A user whom the host does not have is refused when such a step
    /// comes: whoever leaves must not keep the steps of all others from running.
    pub(super) fn resolve(
        listed: &AsSubmitter,
        file: String,
        mut resolve: impl FnMut(String, &UserRef) -> Result<Identity, IdentityError>,
    ) -> Result<Self, IdentityError> {
        let users = listed.users.iter().map(|(submitter, user)| {
            let key = key_of(submitter);
            let found = match resolve(key, user) {
                Ok(found) if found.uid.is_root() => Err(IdentityError::RootSubmitter {
                    key: key_of(submitter),
                }),
                // It speaks of a way out that there is for other keys alone.
                Err(IdentityError::Root { key }) => Err(IdentityError::RootSubmitter { key }),
                Ok(found) => Ok(Some(found)),
                Err(IdentityError::NoUser { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            let user = user.clone();
            found.map(|found| (submitter.clone(), Listed { user, found }))
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

    /// Whether nobody's steps run by this list.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// What is wrong with each submitter who is listed with a user whom the host does not have.
    pub(super) fn missing(&self) -> impl Iterator<Item = IdentityError> {
        let missing = self.by_name.iter().filter(|(_, it)| it.found.is_none());
        missing.map(|(submitter, it)| IdentityError::NoSubmitter {
            submitter: submitter.clone(),
            user: it.user.clone(),
        })
    }

    /// What an admin should know of submitters whose steps have root's group.
    pub(super) fn in_root_s_group(&self) -> impl Iterator<Item = String> {
        let root = Gid::from_raw(0);
        let is_in = move |it: &Identity| it.gid == root || it.groups.contains(&root);
        let them = self.by_name.iter();
        let them = them.filter(move |(_, it)| it.found.as_ref().is_some_and(is_in));
        them.map(|(submitter, it)| {
            let user = it.user.shown();
            format!(
                "{} is `{user}`, who is in group 0, which is root's: what `{submitter}` submits reaches what that group \
                 may. Give `{user}` another group (`usermod`), or take `{submitter}` out",
                key_of(submitter)
            )
        })
    }
}

fn key_of(submitter: &UserName) -> String {
    format!("as_submitter.{submitter}")
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of host `{}`", self.file, self.host.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Uid;

    #[test]
    fn a_submitter_in_root_s_group_is_told_of() {
        let name = |name: &str| UserName::new(name).unwrap();
        let users = ["first", "further", "neither"].map(|it| (name(it), UserRef::Name("u".into())));
        let listed = AsSubmitter {
            users: users.into(),
            ..AsSubmitter::default()
        };
        let resolve = |key: String, _: &UserRef| {
            let [gid, further] = match key.as_str() {
                "as_submitter.first" => [0, 1000],
                "as_submitter.further" => [1000, 0],
                _ => [1000, 1001],
            }
            .map(Gid::from_raw);
            Ok(Identity {
                uid: Uid::from_raw(1000),
                gid,
                groups: vec![further],
                variables: Vec::new(),
            })
        };
        let found = Submitters::resolve(&listed, String::new(), resolve).unwrap();
        let told: Vec<String> = found.in_root_s_group().collect();
        assert_eq!(told.len(), 2, "{told:?}");
        for (told, submitter) in told.iter().zip(["first", "further"]) {
            let wanted = format!("as_submitter.{submitter} is `u`, who is in group 0");
            assert!(told.starts_with(&wanted), "{told}");
        }
    }
}
