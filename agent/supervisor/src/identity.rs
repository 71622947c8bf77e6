//! Who steps run as: the users that `supervisor.toml` names, as this host's user database knows them.
//!
//! They are looked up once, when the supervisor starts and when it upgrades itself: a database that is asked over a
//! network may take long to answer, and must not keep a deadline waiting. `spawn` becomes them.

use std::collections::BTreeMap;
use std::ffi::CString;

use nix::errno::Errno;
use nix::sys::resource::{getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgrouplist, getgroups};
use sluice_common::id::Subject;

use crate::config::{Rlimit, Rules, UserRef};

/// The user and the groups that a step runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub uid: Uid,
    /// The first of its groups.
    pub gid: Gid,
    /// The others.
    pub groups: Vec<Gid>,
    /// `HOME` and the like, as far as the database knows them. What a step brings itself goes before.
    pub variables: Vec<(&'static str, String)>,
}

impl Identity {
    /// Whether it is the supervisor's own user.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid()
    }
}

/// Why the config cannot be obeyed on this host.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The database has no such user.
    #[error(
        "{key} is `{}`, and this host has no such user: make it (`useradd`), or name another", user.escape_debug()
    )]
    NoUser {
        /// The key.
        key: String,
        /// Its value.
        user: String,
    },
    /// The database does not answer.
    #[error("cannot look up user `{}`", user.escape_debug())]
    Lookup {
        /// Who.
        user: String,
        /// Why.
        source: Errno,
    },
    /// It is root, and nothing says that it may.
    #[error(
        "{key} is root: name an ordinary user, or say `allow_root = true` if steps shall run as root"
    )]
    Root {
        /// The key.
        key: String,
    },
    /// Only root can become somebody else.
    #[error(
        "{key} is `{}`, and a supervisor of user {own} can start steps as itself only: start it as root, or take the key \
         out", user.escape_debug()
    )]
    NotRoot {
        /// The key.
        key: String,
        /// Its value.
        user: String,
        /// Who we are.
        own: Uid,
    },
    /// A step could then say to the supervisor what only the agent may.
    #[error("{key} is `{}`, which is the agent's own user: give steps another", user.escape_debug())]
    Agent {
        /// The key.
        key: String,
        /// Its value.
        user: String,
    },
    /// The host gives less.
    #[error(
        "limits.{name} is more than this host gives the supervisor, which is {most}: ask for less, or raise what the \
         supervisor is started with (systemd: Limit{}=)", name.to_uppercase()
    )]
    Limit {
        /// The key.
        name: &'static str,
        /// What the host gives.
        most: u64,
    },
}

/// Nobody on this host runs the steps of a subject.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no user of this host may run steps of subject `{subject}`: name one under [users], or a default_user, in {file}, \
     and send the supervisor SIGHUP"
)]
pub struct Nobody {
    subject: Subject,
    file: String,
}

/// Who steps run as, by subject, and within what.
#[derive(Clone, Debug)]
pub struct Identities {
    default: Option<Identity>,
    by_subject: BTreeMap<Subject, Identity>,
    /// What else the config says of steps.
    pub rules: Rules,
}

impl Identities {
    /// Looks up whom `rules` names. Where they name nobody, root runs no step, and any other user runs all as itself.
    ///
    /// # Errors
    /// Where the host does not have, or this process may not become, what they name.
    pub fn resolve(rules: Rules, agent_uid: Option<u32>) -> Result<Self, IdentityError> {
        let own = geteuid();
        let resolve = |key: String, user: &UserRef| {
            let found = look_up(&key, user)?;
            check(&key, user, &found, &rules, agent_uid)?;
            Ok(found)
        };
        let default = match &rules.default_user {
            Some(user) => Some(resolve("default_user".to_owned(), user)?),
            None if own.is_root() => None,
            None => Some(myself()?),
        };
        let by_subject = rules.users.iter().map(|(subject, user)| {
            resolve(format!("users.{subject}"), user).map(|found| (subject.clone(), found))
        });
        let by_subject = by_subject.collect::<Result<_, IdentityError>>()?;
        rules.limits.iter().try_for_each(make_room)?;
        Ok(Self {
            default,
            by_subject,
            rules,
        })
    }

    /// Who runs the steps of a subject.
    ///
    /// # Errors
    /// Where nobody may.
    pub fn of(&self, subject: &Subject) -> Result<&Identity, Nobody> {
        let found = self.by_subject.get(subject).or(self.default.as_ref());
        found.ok_or_else(|| Nobody {
            subject: subject.clone(),
            file: self.rules.file.as_ref().map_or_else(
                || "the file that --config names".to_owned(),
                |file| file.display().to_string(),
            ),
        })
    }

    /// Whether nobody may run any step.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.by_subject.is_empty()
    }
}

fn check(
    key: &str,
    user: &UserRef,
    found: &Identity,
    rules: &Rules,
    agent_uid: Option<u32>,
) -> Result<(), IdentityError> {
    let (key, own) = (key.to_owned(), geteuid());
    if !own.is_root() && found.uid != own {
        let user = user.to_string();
        return Err(IdentityError::NotRoot { key, user, own });
    }
    if found.uid.is_root() && !rules.allow_root {
        return Err(IdentityError::Root { key });
    }
    if agent_uid == Some(found.uid.as_raw()) && found.uid != own {
        let user = user.to_string();
        return Err(IdentityError::Agent { key, user });
    }
    Ok(())
}

fn look_up(key: &str, user: &UserRef) -> Result<Identity, IdentityError> {
    let lookup = |source| IdentityError::Lookup {
        user: user.to_string(),
        source,
    };
    let found = match user {
        UserRef::Name(name) => User::from_name(name),
        UserRef::Uid(uid) => User::from_uid(Uid::from_raw(*uid)),
    };
    match found.map_err(lookup)? {
        Some(found) => known(&found).map_err(lookup),
        // In a container a user may have no name.
        None if *user == UserRef::Uid(geteuid().as_raw()) => nameless().map_err(lookup),
        None => Err(IdentityError::NoUser {
            key: key.to_owned(),
            user: user.to_string(),
        }),
    }
}

fn myself() -> Result<Identity, IdentityError> {
    look_up("default_user", &UserRef::Uid(geteuid().as_raw()))
}

fn known(user: &User) -> Result<Identity, Errno> {
    // A user who is not root cannot take on the groups that the database says: such a one keeps those that it has.
    let (gid, groups) = match geteuid().is_root() {
        true => {
            let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
            (user.gid, getgrouplist(&name, user.gid)?)
        }
        false => (getegid(), getgroups()?),
    };
    let shell = user.shell.to_string_lossy().into_owned();
    let variables = [
        ("HOME", user.dir.to_string_lossy().into_owned()),
        ("USER", user.name.clone()),
        ("LOGNAME", user.name.clone()),
        // passwd(5): an empty field is the standard shell.
        (
            "SHELL",
            if shell.is_empty() {
                "/bin/sh".to_owned()
            } else {
                shell
            },
        ),
    ];
    Ok(Identity {
        uid: user.uid,
        gid,
        groups,
        variables: variables.into(),
    })
}

fn nameless() -> Result<Identity, Errno> {
    Ok(Identity {
        uid: geteuid(),
        gid: getegid(),
        groups: getgroups()?,
        variables: Vec::new(),
    })
}

/// Raises what this process may give to its children, where that is allowed: better now than at each start.
fn make_room(limit: &Rlimit) -> Result<(), IdentityError> {
    let refused = |most| IdentityError::Limit {
        name: limit.name,
        most,
    };
    let (soft, hard) = getrlimit(limit.resource).map_err(|_| refused(0))?;
    if limit.most <= hard {
        return Ok(());
    }
    setrlimit(limit.resource, soft, limit.most).map_err(|_| refused(hard))
}

impl std::fmt::Display for UserRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UserRef::Name(name) => f.write_str(name),
            UserRef::Uid(uid) => write!(f, "{uid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(rules: Rules) -> Result<Identities, String> {
        Identities::resolve(rules, Some(4321)).map_err(|e| e.to_string())
    }

    fn default(user: UserRef) -> Rules {
        Rules {
            default_user: Some(user),
            ..Rules::default()
        }
    }

    fn subject(name: &str) -> Subject {
        Subject::new(name).unwrap()
    }

    #[test]
    fn without_a_config_root_runs_nothing_and_another_runs_all_as_itself() {
        let found = resolve(Rules::default()).unwrap();
        if geteuid().is_root() {
            assert!(found.is_empty());
            let told = found.of(&subject("s")).unwrap_err().to_string();
            assert!(
                told.contains("subject `s`") && told.contains("--config"),
                "{told}"
            );
        } else {
            assert_eq!(found.of(&subject("s")).unwrap().uid, geteuid());
        }
    }

    #[test]
    fn root_needs_to_be_allowed() {
        if !geteuid().is_root() {
            // Another user is told that it cannot become root at all.
            return;
        }
        for user in [UserRef::Name("root".to_owned()), UserRef::Uid(0)] {
            let mut rules = default(user.clone());
            let told = resolve(rules.clone()).unwrap_err();
            assert!(told.contains("allow_root = true"), "{told}");
            rules.allow_root = true;
            let found = resolve(rules).unwrap();
            assert!(found.of(&subject("s")).unwrap().uid.is_root());
        }
    }

    #[test]
    fn a_subject_s_own_user_goes_before_the_default_and_each_is_as_the_database_says() {
        if !geteuid().is_root() {
            // Only root can become anybody.
            return;
        }
        let mut rules = default(UserRef::Name("nobody".to_owned()));
        rules
            .users
            .insert(subject("d"), UserRef::Name("daemon".to_owned()));
        let found = resolve(rules).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let other = found.of(&subject("s")).unwrap();
        assert_eq!((other.uid, other.gid), (nobody.uid, nobody.gid));
        let home = nobody.dir.to_string_lossy().into_owned();
        assert!(other.variables.contains(&("HOME", home)));
        let daemon = User::from_name("daemon").unwrap().unwrap();
        assert_eq!(found.of(&subject("d")).unwrap().uid, daemon.uid);
    }

    #[test]
    fn who_is_not_there_or_may_not_be_is_named_with_its_key() {
        let told = resolve(default(UserRef::Name("no-such-user".to_owned()))).unwrap_err();
        assert!(
            told.starts_with("default_user is `no-such-user`, and this host has no such user"),
            "{told}"
        );
        if !geteuid().is_root() {
            let told = resolve(default(UserRef::Name("root".to_owned()))).unwrap_err();
            assert!(told.contains("as itself only"), "{told}");
            return;
        }
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let rules = default(UserRef::Name("nobody".to_owned()));
        let told = Identities::resolve(rules, Some(nobody.uid.as_raw())).unwrap_err();
        assert!(matches!(told, IdentityError::Agent { .. }), "{told}");
    }
}
