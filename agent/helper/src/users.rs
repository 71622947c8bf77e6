//! Looks up the users that `supervisor.toml` names in this host's user database, and checks that the ids for
//! attempts are free. A separate process does this because user databases load libraries and may ask a
//! network.

mod error;
mod range;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::unistd::{Uid, User, getgrouplist};
use sluice_codec::{decode, encode};
use sluice_common::error_chain::error_chain;
use sluice_common::id::UserName;
use sluice_common::supervisor_config::{
    MAX_ANSWER_BYTES, StepRules, StepUser, StepUsers, SubmitterUsers, UidRangeSetting, UserLookup,
    UserRef,
};
use sluice_common::uid_range::UidRange;

use error::IdentityError;
use range::RangeUnavailable;

/// Shell of a user whose field is empty, by passwd(5).
const STANDARD_SHELL: &str = "/bin/sh";

/// Answers the supervisor's question at standard input: the users, or why they cannot be used.
///
/// # Errors
/// If there is no question, or the answer cannot be written.
pub(crate) fn find() -> io::Result<()> {
    let mut asked = Vec::new();
    io::stdin().read_to_end(&mut asked)?;
    let asked: UserLookup = decode(&asked, MAX_ANSWER_BYTES).map_err(io::Error::other)?;
    let found = resolve(&asked).map_err(|e| error_chain(&e));
    let answer = encode(&found, MAX_ANSWER_BYTES).map_err(io::Error::other)?;
    io::stdout().write_all(&answer)
}

/// Looks up the users that the rules name. A supervisor that is not root runs all steps as itself.
fn resolve(asked: &UserLookup) -> Result<StepUsers, IdentityError> {
    let (rules, is_root) = (&asked.rules, asked.own.uid == 0);
    let mut named = Vec::new();
    let mut resolve = |key: String, user: &UserRef, subjects| {
        let found = look_up(&key, user, &asked.own)?;
        check(&key, user, &found, asked)?;
        named.push(NamedUser {
            uid: found.uid,
            user: user.to_string(),
            key,
            subjects,
        });
        Ok(found)
    };
    let default = match &rules.default_user {
        Some(user) => Some(resolve(
            "default_user".to_owned(),
            user,
            SubjectCount::Many,
        )?),
        None if is_root => None,
        None => {
            let own = UserRef::Uid(asked.own.uid);
            Some(look_up("default_user", &own, &asked.own)?)
        }
    };
    let by_subject = rules.users.iter().map(|(subject, user)| {
        let key = format!("users.{subject}");
        resolve(key, user, SubjectCount::One).map(|found| (subject.clone(), found))
    });
    let by_subject = by_subject.collect::<Result<_, IdentityError>>()?;
    let listed = rules.as_submitter.as_ref();
    let by_submitter = listed.map(|listed| {
        let resolve = |key, user: &UserRef| resolve(key, user, SubjectCount::One);
        submitters(listed, resolve)
    });
    let by_submitter = by_submitter.transpose()?;
    let own_range = match is_root && default.is_none() {
        true => attempt_uid_range(rules, &named, asked.agent_uid)?,
        false => None,
    };
    let shared = match is_root {
        true => check_shared(asked, &named)?,
        // A supervisor that is not root cannot become another user.
        false => Vec::new(),
    };
    let mut found = StepUsers {
        default,
        by_subject,
        by_submitter,
        own_range,
        ..StepUsers::default()
    };
    let missing = missing(rules, &found);
    found.warnings = warnings(rules, &found, shared, &missing);
    found.missing = missing.into_iter().next();
    Ok(found)
}

/// Looks up, by `resolve`, the users listed for submitters. A user that the host lacks is no error here;
/// steps of that submitter are rejected when they arrive, so that a user who leaves does not stop the steps
/// of all others.
fn submitters(
    listed: &SubmitterUsers,
    mut resolve: impl FnMut(String, &UserRef) -> Result<StepUser, IdentityError>,
) -> Result<BTreeMap<UserName, Option<StepUser>>, IdentityError> {
    let users = listed.users.iter().map(|(submitter, user)| {
        let key = key_of(submitter);
        let found = match resolve(key, user) {
            Ok(found) if found.uid == 0 => Err(IdentityError::RootSubmitter {
                key: key_of(submitter),
            }),
            // The message of the other error suggests `allow_root`, which does not exist for submitters.
            Err(IdentityError::Root { key }) => Err(IdentityError::RootSubmitter { key }),
            Ok(found) => Ok(Some(found)),
            Err(IdentityError::NoUser { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        found.map(|found| (submitter.clone(), found))
    });
    users.collect()
}

fn key_of(submitter: &UserName) -> String {
    format!("as_submitter.{submitter}")
}

/// The listed submitters, each with the user in the config and the user that was found.
fn listed<'a>(
    rules: &'a StepRules,
    found: &'a StepUsers,
) -> impl Iterator<Item = (&'a UserName, &'a UserRef, Option<&'a StepUser>)> {
    let listed = rules.as_submitter.iter().flat_map(|listed| &listed.users);
    listed.map(|(submitter, user)| {
        let by_submitter = found.by_submitter.as_ref();
        let found = by_submitter.and_then(|users| users.get(submitter)?.as_ref());
        (submitter, user, found)
    })
}

/// Error messages for listed submitters whose user the host lacks.
fn missing(rules: &StepRules, found: &StepUsers) -> Vec<String> {
    let missing = listed(rules, found).filter(|(.., found)| found.is_none());
    let missing = missing.map(|(submitter, user, _)| IdentityError::NoSubmitter {
        submitter: submitter.clone(),
        user: user.clone(),
    });
    missing.map(|error| error.to_string()).collect()
}

/// Warning for submitters whose steps have root's group.
fn root_group_warning(submitter: &UserName, user: &UserRef) -> String {
    let user = user.shown();
    format!(
        "{} is `{user}`, who is in root's group (0): steps of `{submitter}` may do whatever that group may. Give `{user}` another group (`usermod`), or remove `{submitter}`",
        key_of(submitter)
    )
}

/// Warnings about a valid config.
fn warnings(
    rules: &StepRules,
    found: &StepUsers,
    shared: Vec<String>,
    missing: &[String],
) -> Vec<String> {
    let shared = shared.iter().map(|user| {
        format!(
            "steps of several subjects run as user `{}`: they can read, stop and change each other's",
            user.escape_debug()
        )
    });
    let is_in = |it: &StepUser| it.gid == 0 || it.groups.contains(&0);
    let in_root_s = listed(rules, found).filter(|(.., found)| found.is_some_and(is_in));
    let in_root_s = in_root_s.map(|(submitter, user, _)| root_group_warning(submitter, user));
    let lists = found.by_submitter.as_ref().is_some_and(|it| !it.is_empty());
    let named = lists || found.default.is_some() || !found.by_subject.is_empty();
    let nobody = (!named && found.own_range.is_none())
        .then(|| "no user may run steps: name users under [users], or a uid_range".to_owned());
    shared
        .chain(missing.iter().cloned())
        .chain(in_root_s)
        .chain(nobody)
        .collect()
}

/// Number of subjects that a config key applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubjectCount {
    One,
    Many,
}

/// A user named in the config.
#[derive(Debug)]
struct NamedUser {
    key: String,
    user: String,
    uid: u32,
    subjects: SubjectCount,
}

/// The id range for attempts. No other user may have an id in it.
fn attempt_uid_range(
    rules: &StepRules,
    named: &[NamedUser],
    agent_uid: Option<u32>,
) -> Result<Option<UidRange>, IdentityError> {
    let Some(range) = rules.uid_range.uids().map_err(RangeUnavailable::from)? else {
        return Ok(None);
    };
    match range::check(range) {
        // The default range was not asked for: a container may have fewer ids, and its own users.
        Err(RangeUnavailable::NotMapped(_)) if rules.uid_range == UidRangeSetting::Default => {
            return Ok(None);
        }
        checked => checked?,
    }
    let agent = agent_uid.map(|uid| ("agent_uid".to_owned(), uid.to_string(), uid));
    let all = named.iter();
    let all = all
        .map(|it| (it.key.clone(), it.user.clone(), it.uid))
        .chain(agent);
    match all.into_iter().find(|(_, _, uid)| range.contains(*uid)) {
        None => Ok(Some(range)),
        Some((key, user, uid)) => Err(IdentityError::InRange {
            key,
            user,
            uid: Uid::from_raw(uid),
            range,
        }),
    }
}

/// The users that run the steps of several subjects, each of which the config must list as shared. Root is
/// exempt, because `allow_root` covers it.
fn check_shared(asked: &UserLookup, named: &[NamedUser]) -> Result<Vec<String>, IdentityError> {
    let may_be = asked
        .rules
        .shared_users
        .iter()
        .map(|user| look_up("shared_users", user, &asked.own).map(|found| found.uid));
    let may_be = may_be.collect::<Result<Vec<u32>, _>>()?;
    let mut by_uid: BTreeMap<u32, Vec<&NamedUser>> = BTreeMap::new();
    for it in named.iter().filter(|it| it.uid != 0) {
        by_uid.entry(it.uid).or_default().push(it);
    }
    let is_shared = |them: &&Vec<&NamedUser>| {
        them.len() > 1 || them.iter().any(|it| it.subjects == SubjectCount::Many)
    };
    let shared = by_uid.values().filter(is_shared).map(|them| {
        let (first, keys) = (them[0], them.iter().map(|it| it.key.as_str()));
        if may_be.contains(&first.uid) {
            return Ok(first.user.clone());
        }
        let is_default = them.iter().any(|it| it.subjects == SubjectCount::Many);
        Err(IdentityError::Shared {
            keys: keys.collect::<Vec<_>>().join(" and "),
            user: first.user.clone(),
            way_out: match is_default {
                true => "Remove default_user, so that each attempt of a subject without a user gets a user id of its own",
                false => "Name a user for each",
            },
        })
    });
    shared.collect()
}

fn check(
    key: &str,
    user: &UserRef,
    found: &StepUser,
    asked: &UserLookup,
) -> Result<(), IdentityError> {
    let (key, own) = (key.to_owned(), asked.own.uid);
    if own != 0 && found.uid != own {
        let (user, own) = (user.to_string(), Uid::from_raw(own));
        return Err(IdentityError::NotRoot { key, user, own });
    }
    if found.uid == 0 && !asked.rules.allow_root {
        return Err(IdentityError::Root { key });
    }
    if asked.agent_uid == Some(found.uid) && found.uid != own {
        let user = user.to_string();
        return Err(IdentityError::Agent { key, user });
    }
    Ok(())
}

fn look_up(key: &str, user: &UserRef, own: &StepUser) -> Result<StepUser, IdentityError> {
    let lookup = |source| IdentityError::Lookup {
        user: user.to_string(),
        source,
    };
    let found = match user {
        UserRef::Name(name) => User::from_name(name),
        UserRef::Uid(uid) => User::from_uid(Uid::from_raw(*uid)),
    };
    match found.map_err(lookup)? {
        Some(found) => step_user(&found, own).map_err(lookup),
        // A user in a container may have no name.
        None if user.uid() == Some(own.uid) => Ok(own.clone()),
        None => Err(IdentityError::NoUser {
            key: key.to_owned(),
            user: user.to_string(),
        }),
    }
}

fn step_user(user: &User, own: &StepUser) -> Result<StepUser, Errno> {
    // A supervisor that is not root cannot change its groups, so the user keeps the current ones.
    let (gid, groups) = match own.uid == 0 {
        true => {
            let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
            let groups = getgrouplist(&name, user.gid)?;
            let groups = groups.into_iter().map(|group| group.as_raw());
            (user.gid.as_raw(), groups.collect())
        }
        false => (own.gid, own.groups.clone()),
    };
    let shell = match user.shell.to_string_lossy() {
        shell if shell.is_empty() => STANDARD_SHELL.to_owned(),
        shell => shell.into_owned(),
    };
    let variables = [
        ("HOME", user.dir.to_string_lossy().into_owned()),
        ("USER", user.name.clone()),
        ("LOGNAME", user.name.clone()),
        ("SHELL", shell),
    ];
    Ok(StepUser {
        uid: user.uid.as_raw(),
        gid,
        groups,
        variables: variables
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::geteuid;
    use sluice_common::id::Subject;

    /// The question of a supervisor that runs as the current user.
    fn asked(rules: StepRules, agent_uid: u32) -> UserLookup {
        UserLookup {
            rules,
            agent_uid: Some(agent_uid),
            own: StepUser {
                uid: geteuid().as_raw(),
                ..StepUser::default()
            },
        }
    }

    fn resolve(rules: StepRules) -> Result<StepUsers, String> {
        super::resolve(&asked(rules, 4321)).map_err(|e| error_chain(&e))
    }

    fn default(user: UserRef) -> StepRules {
        StepRules {
            shared_users: vec![user.clone()],
            default_user: Some(user),
            ..StepRules::default()
        }
    }

    fn subject(name: &str) -> Subject {
        Subject::new(name).unwrap()
    }

    fn name(name: &str) -> UserRef {
        UserRef::Name(name.to_owned())
    }

    #[test]
    fn without_a_config_root_gives_each_attempt_an_id_and_another_runs_all_as_itself() {
        let found = resolve(StepRules::default()).unwrap();
        if !geteuid().is_root() {
            assert_eq!(found.default.unwrap().uid, geteuid().as_raw());
            return;
        }
        assert_eq!(found.default, None);
        assert_eq!(found.own_range, Some(UidRange::DEFAULT));
        assert!(found.warnings.is_empty());
        let none = StepRules {
            uid_range: UidRangeSetting::Nothing,
            ..StepRules::default()
        };
        let found = resolve(none).unwrap();
        assert_eq!((&found.default, found.own_range), (&None, None));
        assert!(found.warnings[0].contains("no user may run steps"));
    }

    #[test]
    fn root_needs_to_be_allowed() {
        if !geteuid().is_root() {
            // A supervisor that is not root gets a different error.
            return;
        }
        for user in [name("root"), UserRef::Uid(0)] {
            let mut rules = default(user.clone());
            // Root need not be listed as shared.
            rules.shared_users.clear();
            let error_message = resolve(rules.clone()).unwrap_err();
            assert!(
                error_message.contains("allow_root = true"),
                "{error_message}"
            );
            rules.allow_root = true;
            assert_eq!(resolve(rules).unwrap().default.unwrap().uid, 0);
        }
    }

    #[test]
    fn a_subject_s_own_user_goes_before_the_default_and_each_is_as_the_database_says() {
        if !geteuid().is_root() {
            // Only root can become another user.
            return;
        }
        let mut rules = default(name("nobody"));
        rules.users.insert(subject("d"), name("daemon"));
        let found = resolve(rules).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let other = found.default.unwrap();
        let wanted = (nobody.uid.as_raw(), nobody.gid.as_raw());
        assert_eq!((other.uid, other.gid), wanted);
        let home = nobody.dir.to_string_lossy().into_owned();
        assert!(other.variables.contains(&("HOME".to_owned(), home)));
        let daemon = User::from_name("daemon").unwrap().unwrap();
        assert_eq!(found.by_subject[&subject("d")].uid, daemon.uid.as_raw());
    }

    #[test]
    fn several_subjects_are_one_user_only_where_the_config_says_so() {
        if !geteuid().is_root() {
            // Only root can become another user.
            return;
        }
        let uid = User::from_name("daemon").unwrap().unwrap().uid.as_raw();
        let two = |a, b| StepRules {
            users: [(subject("a"), a), (subject("b"), b)].into(),
            ..StepRules::default()
        };
        let mut alone = default(name("daemon"));
        alone.shared_users.clear();
        for (mut rules, wanted) in [
            (
                alone,
                "default_user would run the steps of several subjects as one user, `daemon`",
            ),
            (
                two(name("daemon"), name("daemon")),
                "users.a and users.b would run",
            ),
            (
                two(name("daemon"), UserRef::Uid(uid)),
                "users.a and users.b would run",
            ),
        ] {
            let error_message = resolve(rules.clone()).unwrap_err();
            assert!(
                error_message.contains(wanted)
                    && error_message.contains("`shared_users = [\"daemon\"]`"),
                "{error_message}"
            );
            rules.shared_users = vec![UserRef::Uid(uid)];
            let warnings = resolve(rules).unwrap().warnings;
            assert!(
                matches!(&warnings[..], [error_message] if error_message.contains("user `daemon`")),
                "{warnings:?}"
            );
        }
        let apart = resolve(two(name("daemon"), name("nobody"))).unwrap();
        assert!(apart.warnings.is_empty());
        let mut one = two(name("daemon"), name("nobody"));
        one.shared_users = vec![name("no-such-user")];
        assert!(
            resolve(one)
                .unwrap_err()
                .contains("shared_users is `no-such-user`")
        );
    }

    fn listed<const N: usize>(users: [(&str, UserRef); N]) -> StepRules {
        let users = users.into_iter();
        let users = users.map(|(it, user)| (UserName::new(it).unwrap(), user));
        StepRules {
            as_submitter: Some(SubmitterUsers {
                users: users.collect(),
                ..SubmitterUsers::default()
            }),
            ..StepRules::default()
        }
    }

    #[test]
    fn no_submitter_is_root_the_agent_or_another_subject_s_user() {
        if !geteuid().is_root() {
            return;
        }
        for root in [name("root"), UserRef::Uid(0)] {
            for allow_root in [false, true] {
                let mut rules = listed([("alice", root.clone())]);
                rules.allow_root = allow_root;
                let error_message = resolve(rules).unwrap_err();
                assert!(
                    error_message.starts_with("as_submitter.alice is root"),
                    "{error_message}"
                );
                assert!(!error_message.contains("allow_root"), "{error_message}");
            }
        }
        let agent = listed([("alice", name("nobody"))]);
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let error_message = super::resolve(&asked(agent, nobody.uid.as_raw())).unwrap_err();
        assert!(
            matches!(error_message, IdentityError::Agent { .. }),
            "{error_message}"
        );
        let mut prod = listed([("alice", name("daemon"))]);
        prod.users.insert(subject("prod"), name("daemon"));
        let two = listed([("alice", name("daemon")), ("a@b", name("daemon"))]);
        for (rules, keys) in [
            (prod, "users.prod and as_submitter.alice would run"),
            (two, "as_submitter.a@b and as_submitter.alice would run"),
        ] {
            let error_message = resolve(rules.clone()).unwrap_err();
            assert!(error_message.contains(keys), "{error_message}");
            let shared_users = vec![name("daemon")];
            assert!(
                resolve(StepRules {
                    shared_users,
                    ..rules
                })
                .is_ok()
            );
        }
    }

    #[test]
    fn a_submitter_whom_the_host_lacks_stops_no_start_and_is_told_to_whoever_checks() {
        if !geteuid().is_root() {
            return;
        }
        let found = resolve(listed([
            ("alice", name("no-such-user")),
            ("bob", name("games")),
        ]));
        let found = found.unwrap();
        let error_message = found.missing.clone().unwrap();
        assert!(
            error_message.starts_with(
                "as_submitter.alice is `no-such-user`, and this host has no such user"
            ) && error_message.contains("create `no-such-user` (`useradd`)"),
            "{error_message}"
        );
        assert_eq!(found.warnings, [error_message]);
        let games = User::from_name("games").unwrap().unwrap();
        let users = found.by_submitter.unwrap();
        let of = |user: &str| users[&UserName::new(user).unwrap()].as_ref();
        assert_eq!(of("bob").map(|it| it.uid), Some(games.uid.as_raw()));
        assert_eq!(of("alice"), None);
    }

    #[test]
    fn a_user_whose_id_attempts_would_get_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let rules = StepRules {
            uid_range: UidRangeSetting::Given([4_000, 5_000]),
            ..StepRules::default()
        };
        // The agent's user.
        let error_message = resolve(rules).unwrap_err();
        assert!(
            error_message.contains("agent_uid is `4321`, whose id 4321 lies in uid_range"),
            "{error_message}"
        );
    }

    #[test]
    fn who_is_not_there_or_may_not_be_is_named_with_its_key() {
        let error_message = resolve(default(name("no-such-user"))).unwrap_err();
        assert!(
            error_message
                .starts_with("default_user is `no-such-user`, and this host has no such user"),
            "{error_message}"
        );
        if !geteuid().is_root() {
            let error_message = resolve(default(name("root"))).unwrap_err();
            assert!(error_message.contains("as itself only"), "{error_message}");
            return;
        }
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let rules = default(name("nobody"));
        let error_message = super::resolve(&asked(rules, nobody.uid.as_raw())).unwrap_err();
        assert!(
            matches!(error_message, IdentityError::Agent { .. }),
            "{error_message}"
        );
    }

    #[test]
    fn a_submitter_in_root_s_group_is_told_of() {
        let users = ["first", "further", "neither"].map(|it| (it, name("u")));
        let rules = listed(users);
        let resolve = |key: String, _: &UserRef| {
            let [gid, further] = match key.as_str() {
                "as_submitter.first" => [0, 1000],
                "as_submitter.further" => [1000, 0],
                _ => [1000, 1001],
            };
            Ok(StepUser {
                uid: 1000,
                gid,
                groups: vec![further],
                variables: Vec::new(),
            })
        };
        let by_submitter = submitters(rules.as_submitter.as_ref().unwrap(), resolve).unwrap();
        let found = StepUsers {
            by_submitter: Some(by_submitter),
            ..StepUsers::default()
        };
        let error_message = warnings(&rules, &found, Vec::new(), &[]);
        assert_eq!(error_message.len(), 2, "{error_message:?}");
        for (error_message, submitter) in error_message.iter().zip(["first", "further"]) {
            let wanted = format!("as_submitter.{submitter} is `u`, who is in root's group (0)");
            assert!(error_message.starts_with(&wanted), "{error_message}");
        }
    }
}
