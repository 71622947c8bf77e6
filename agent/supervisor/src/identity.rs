//! Who steps run as: the users that `supervisor.toml` names, as this host's user database knows them; for a subject without
//! one, a user id that no other attempt of this host has (`uids`).
//!
//! They are looked up once, when the supervisor starts and when it upgrades itself: a database that is asked over a
//! network may take long to answer, and must not keep a deadline waiting. `spawn` becomes them.

mod refusal;
mod submitters;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, getegid, geteuid, getgrouplist, getgroups};
use sluice_common::id::{Subject, UserName};
use sluice_common::supervisor_config::{StepRules, UidRange, UserRef};

use crate::config;
use crate::uids::range::{RangeError, Uids};
pub use refusal::{IdentityError, Nobody};
use submitters::Submitters;

/// What `USER` and `LOGNAME` say to an attempt with a user id of its own, which has no name in the database.
const OWN_NAME: &str = "sluice-step";

/// passwd(5): an empty field is the standard shell.
const STANDARD_SHELL: &str = "/bin/sh";

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
    /// The identity of an attempt with a user id of its own, and the group of the same number. Its files are in `home`.
    pub fn of_attempt(uid: Uid, home: &Path) -> Self {
        let gid = Gid::from_raw(uid.as_raw());
        let variables = [
            ("HOME", home.display().to_string()),
            ("USER", OWN_NAME.to_owned()),
            ("LOGNAME", OWN_NAME.to_owned()),
            ("SHELL", STANDARD_SHELL.to_owned()),
        ];
        Self {
            uid,
            gid,
            groups: vec![gid],
            variables: variables.into(),
        }
    }

    /// Whether it is the supervisor's own user.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid()
    }
}

/// For whom an attempt runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behalf {
    /// The subject of its step.
    pub subject: Subject,
    /// The user who submitted the step, if that matters on this host.
    pub submitter: Option<UserName>,
}

/// Whom the config has the steps of a subject run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// A user of this host.
    Named(&'a Identity),
    /// Each attempt is somebody of its own.
    Own,
}

/// Who steps run as, by subject, and within what.
#[derive(Clone, Debug)]
pub struct Identities {
    default: Option<Identity>,
    by_subject: BTreeMap<Subject, Identity>,
    /// `None` if it does not matter who submitted a step.
    submitters: Option<Submitters>,
    /// What is given to attempts of whom neither says anything.
    own: Option<Uids>,
    /// Users that run the steps of several subjects.
    shared: Vec<String>,
    /// What else the config says of steps.
    pub rules: StepRules,
}

impl Identities {
    /// Looks up whom `rules` names. A supervisor that is not root runs all steps as itself.
    ///
    /// # Errors
    /// Where the host does not have, or this process may not become, what they name; where a user is shared that the
    /// rules do not call so.
    pub fn resolve(rules: StepRules, agent_uid: Option<u32>) -> Result<Self, IdentityError> {
        let is_root = geteuid().is_root();
        let mut named = Vec::new();
        let mut resolve = |key: String, user: &UserRef, subjects| {
            let found = look_up(&key, user)?;
            check(&key, user, &found, &rules, agent_uid)?;
            named.push(Named {
                uid: found.uid,
                user: user.to_string(),
                key,
                subjects,
            });
            Ok(found)
        };
        let default = match &rules.default_user {
            Some(user) => Some(resolve("default_user".to_owned(), user, Subjects::Many)?),
            None if is_root => None,
            None => Some(myself()?),
        };
        let by_subject = rules.users.iter().map(|(subject, user)| {
            let key = format!("users.{subject}");
            resolve(key, user, Subjects::One).map(|found| (subject.clone(), found))
        });
        let by_subject = by_subject.collect::<Result<_, IdentityError>>()?;
        let submitters = rules.as_submitter.as_ref().map(|listed| {
            let resolve = |key, user: &UserRef| resolve(key, user, Subjects::One);
            Submitters::resolve(listed, rules.shown_file(), resolve)
        });
        let submitters = submitters.transpose()?;
        let own = match is_root && default.is_none() {
            true => own_range(&rules, &named, agent_uid)?,
            false => None,
        };
        let shared = match is_root {
            true => check_shared(&rules, &named)?,
            // There is nobody else whom it could become.
            false => Vec::new(),
        };
        rules.limits.iter().try_for_each(make_room)?;
        Ok(Self {
            default,
            by_subject,
            submitters,
            own,
            shared,
            rules,
        })
    }

    /// Who runs a step: the user of its subject, else the user of its submitter, else the user of all others.
    ///
    /// # Errors
    /// Where nobody may.
    pub fn of(&self, behalf: &Behalf) -> Result<Whose<'_>, Nobody> {
        if let Some(found) = self.by_subject.get(&behalf.subject) {
            return Ok(Whose::Named(found));
        }
        if let Some(found) = self.by_submitter(behalf)? {
            return Ok(Whose::Named(found));
        }
        match (&self.default, self.own) {
            (Some(found), _) => Ok(Whose::Named(found)),
            (None, Some(_)) => Ok(Whose::Own),
            (None, None) => Err(self.nobody(&behalf.subject)),
        }
    }

    /// The user whom a step runs as because that user submitted it.
    pub fn as_submitter<'a>(&self, behalf: &'a Behalf) -> Option<&'a UserName> {
        let found = self.by_submitter(behalf).ok().flatten();
        behalf.submitter.as_ref().filter(|_| found.is_some())
    }

    /// Who runs a step because of its submitter: the user of its subject goes before.
    fn by_submitter(&self, behalf: &Behalf) -> Result<Option<&Identity>, Nobody> {
        match &self.submitters {
            Some(submitters) if !self.by_subject.contains_key(&behalf.subject) => {
                submitters.of(behalf.submitter.as_ref())
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Whether it matters who submitted a step.
    pub fn asks_who_submitted(&self) -> bool {
        self.submitters.is_some()
    }

    /// Refuses a list of submitters of whom this host lacks one: a start goes on without, and an admin who asks is told.
    ///
    /// # Errors
    /// If it lacks one.
    pub fn check_submitters(&self) -> Result<(), IdentityError> {
        let missing = self.submitters.iter().flat_map(Submitters::missing).next();
        missing.map_or(Ok(()), Err)
    }

    /// Why nobody runs the steps of a subject.
    pub fn nobody(&self, subject: &Subject) -> Nobody {
        Nobody::Subject {
            subject: subject.clone(),
            file: self.rules.shown_file(),
        }
    }

    /// The user ids that are given to attempts, each to one at a time.
    pub fn own_range(&self) -> Option<Uids> {
        self.own
    }

    /// What an admin should know of the config that is no mistake.
    pub fn warnings(&self) -> Vec<String> {
        let shared = self.shared.iter().map(|user| {
            format!(
                "steps of several subjects run as user `{}`: they can read, stop and falsify each other's",
                user.escape_debug()
            )
        });
        let missing = self.submitters.iter().flat_map(Submitters::missing);
        let missing = missing.map(|error| error.to_string());
        let in_root_s = self.submitters.iter();
        let in_root_s = in_root_s.flat_map(Submitters::in_root_s_group);
        let listed = self.submitters.as_ref().is_some_and(|it| !it.is_empty());
        let named = listed || self.default.is_some() || !self.by_subject.is_empty();
        let nobody = (!named && self.own.is_none())
            .then(|| "no user may run steps: name users under [users], or a uid_range".to_owned());
        shared
            .chain(missing)
            .chain(in_root_s)
            .chain(nobody)
            .collect()
    }
}

/// How many subjects a key speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subjects {
    One,
    Many,
}

/// A user that the config names.
#[derive(Debug)]
struct Named {
    key: String,
    user: String,
    uid: Uid,
    subjects: Subjects,
}

/// The range that is given to attempts, which nobody else may have an id of.
fn own_range(
    rules: &StepRules,
    named: &[Named],
    agent_uid: Option<u32>,
) -> Result<Option<Uids>, IdentityError> {
    let Some(range) = config::uids(rules.uid_range) else {
        return Ok(None);
    };
    match range.check_host() {
        // Nobody has asked for it: a container may have no more than some ids, and users of its own.
        Err(RangeError::NotMapped { .. }) if rules.uid_range == UidRange::Default => {
            return Ok(None);
        }
        checked => checked?,
    }
    let agent = agent_uid.map(|uid| ("agent_uid".to_owned(), uid.to_string(), Uid::from_raw(uid)));
    let all = named.iter();
    let all = all
        .map(|it| (it.key.clone(), it.user.clone(), it.uid))
        .chain(agent);
    match all
        .into_iter()
        .find(|(_, _, uid)| range.contains(uid.as_raw()))
    {
        None => Ok(Some(range)),
        Some((key, user, uid)) => Err(IdentityError::InRange {
            key,
            user,
            uid,
            range,
        }),
    }
}

/// The users that run the steps of several subjects, all of which the config must call shared. Of root it says more than
/// that: `allow_root`.
fn check_shared(rules: &StepRules, named: &[Named]) -> Result<Vec<String>, IdentityError> {
    let may_be = rules
        .shared_users
        .iter()
        .map(|user| look_up("shared_users", user).map(|found| found.uid));
    let may_be = may_be.collect::<Result<Vec<Uid>, _>>()?;
    let mut by_uid: BTreeMap<u32, Vec<&Named>> = BTreeMap::new();
    for it in named.iter().filter(|it| !it.uid.is_root()) {
        by_uid.entry(it.uid.as_raw()).or_default().push(it);
    }
    let is_shared =
        |them: &&Vec<&Named>| them.len() > 1 || them.iter().any(|it| it.subjects == Subjects::Many);
    let shared = by_uid.values().filter(is_shared).map(|them| {
        let (first, keys) = (them[0], them.iter().map(|it| it.key.as_str()));
        if may_be.contains(&first.uid) {
            return Ok(first.user.clone());
        }
        let is_default = them.iter().any(|it| it.subjects == Subjects::Many);
        Err(IdentityError::Shared {
            keys: keys.collect::<Vec<_>>().join(" and "),
            user: first.user.clone(),
            way_out: match is_default {
                true => "Take default_user out, and each attempt of a subject without a user gets a user id of its own",
                false => "Name a user for each",
            },
        })
    });
    shared.collect()
}

fn check(
    key: &str,
    user: &UserRef,
    found: &Identity,
    rules: &StepRules,
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
        (
            "SHELL",
            if shell.is_empty() {
                STANDARD_SHELL.to_owned()
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
fn make_room((name, most): &(String, u64)) -> Result<(), IdentityError> {
    let refused = |most| IdentityError::Limit {
        name: name.clone(),
        most,
    };
    let resource = config::rlimit(name).ok_or_else(|| refused(0))?;
    let (soft, hard) = getrlimit(resource).map_err(|_| refused(0))?;
    if *most <= hard {
        return Ok(());
    }
    setrlimit(resource, soft, *most).map_err(|_| refused(hard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervisor_config::AsSubmitter;

    fn resolve(rules: StepRules) -> Result<Identities, String> {
        Identities::resolve(rules, Some(4321)).map_err(|e| e.to_string())
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

    fn of(name: &str) -> Behalf {
        let subject = subject(name);
        Behalf {
            subject,
            submitter: None,
        }
    }

    fn named<'a>(found: &'a Identities, subject: &str) -> &'a Identity {
        match found.of(&of(subject)).unwrap() {
            Whose::Named(identity) => identity,
            Whose::Own => panic!("each attempt is somebody of its own"),
        }
    }

    fn name(name: &str) -> UserRef {
        UserRef::Name(name.to_owned())
    }

    #[test]
    fn without_a_config_root_gives_each_attempt_an_id_and_another_runs_all_as_itself() {
        let found = resolve(StepRules::default()).unwrap();
        if !geteuid().is_root() {
            assert_eq!(named(&found, "s").uid, geteuid());
            return;
        }
        assert_eq!(found.of(&of("s")), Ok(Whose::Own));
        assert_eq!(found.own_range(), Some(Uids::DEFAULT));
        assert!(found.warnings().is_empty());
        let none = StepRules {
            uid_range: UidRange::Nothing,
            ..StepRules::default()
        };
        let found = resolve(none).unwrap();
        let told = found.of(&of("s")).unwrap_err().to_string();
        assert!(
            told.contains("subject `s`") && told.contains("--config"),
            "{told}"
        );
        assert!(found.warnings()[0].contains("no user may run steps"));
    }

    #[test]
    fn root_needs_to_be_allowed() {
        if !geteuid().is_root() {
            // Another user is told that it cannot become root at all.
            return;
        }
        for user in [name("root"), UserRef::Uid(0)] {
            let mut rules = default(user.clone());
            // Nobody needs to say of root that it is shared.
            rules.shared_users.clear();
            let told = resolve(rules.clone()).unwrap_err();
            assert!(told.contains("allow_root = true"), "{told}");
            rules.allow_root = true;
            let found = resolve(rules).unwrap();
            assert!(named(&found, "s").uid.is_root());
        }
    }

    #[test]
    fn a_subject_s_own_user_goes_before_the_default_and_each_is_as_the_database_says() {
        if !geteuid().is_root() {
            // Only root can become anybody.
            return;
        }
        let mut rules = default(name("nobody"));
        rules.users.insert(subject("d"), name("daemon"));
        let found = resolve(rules).unwrap();
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let other = named(&found, "s");
        assert_eq!((other.uid, other.gid), (nobody.uid, nobody.gid));
        let home = nobody.dir.to_string_lossy().into_owned();
        assert!(other.variables.contains(&("HOME", home)));
        let daemon = User::from_name("daemon").unwrap().unwrap();
        assert_eq!(named(&found, "d").uid, daemon.uid);
    }

    #[test]
    fn several_subjects_are_one_user_only_where_the_config_says_so() {
        if !geteuid().is_root() {
            // There is nobody else whom they could be.
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
            let told = resolve(rules.clone()).unwrap_err();
            assert!(
                told.contains(wanted) && told.contains("`shared_users = [\"daemon\"]`"),
                "{told}"
            );
            rules.shared_users = vec![UserRef::Uid(uid)];
            let warnings = resolve(rules).unwrap().warnings();
            assert!(
                matches!(&warnings[..], [told] if told.contains("user `daemon`")),
                "{warnings:?}"
            );
        }
        let apart = resolve(two(name("daemon"), name("nobody"))).unwrap();
        assert!(apart.warnings().is_empty());
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
            as_submitter: Some(AsSubmitter {
                users: users.collect(),
                ..AsSubmitter::default()
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
                let told = resolve(rules).unwrap_err();
                assert!(told.starts_with("as_submitter.alice is root"), "{told}");
                assert!(!told.contains("allow_root"), "{told}");
            }
        }
        let agent = listed([("alice", name("nobody"))]);
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let told = Identities::resolve(agent, Some(nobody.uid.as_raw())).unwrap_err();
        assert!(matches!(told, IdentityError::Agent { .. }), "{told}");
        let mut prod = listed([("alice", name("daemon"))]);
        prod.users.insert(subject("prod"), name("daemon"));
        let two = listed([("alice", name("daemon")), ("a@b", name("daemon"))]);
        for (rules, keys) in [
            (prod, "users.prod and as_submitter.alice would run"),
            (two, "as_submitter.a@b and as_submitter.alice would run"),
        ] {
            let told = resolve(rules.clone()).unwrap_err();
            assert!(told.contains(keys), "{told}");
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
        let told = found.check_submitters().unwrap_err().to_string();
        assert!(
            told.starts_with(
                "as_submitter.alice is `no-such-user`, and this host has no such user"
            ) && told.contains("make `no-such-user` (`useradd`)"),
            "{told}"
        );
        assert_eq!(found.warnings(), [told]);
        let by = |user: &str| Behalf {
            submitter: Some(UserName::new(user).unwrap()),
            ..of("s")
        };
        let games = User::from_name("games").unwrap().unwrap();
        assert!(matches!(found.of(&by("bob")), Ok(Whose::Named(it)) if it.uid == games.uid));
        let missing = found.of(&by("alice")).unwrap_err();
        assert!(matches!(missing, Nobody::Missing { .. }), "{missing}");
        for (told, has_pool) in [(missing.to_string(), true), (missing.of_program(), false)] {
            assert!(
                told.contains("lists `alice` as user `no-such-user`"),
                "{told}"
            );
            assert_eq!(told.contains("another pool"), has_pool, "{told}");
        }
        assert!(matches!(
            found.of(&by("carol")),
            Err(Nobody::Unlisted { .. })
        ));
        assert!(matches!(found.of(&of("s")), Err(Nobody::Unnamed { .. })));
    }

    #[test]
    fn a_user_whose_id_attempts_would_get_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let rules = StepRules {
            uid_range: UidRange::Given([4_000, 5_000]),
            ..StepRules::default()
        };
        // The agent's user.
        let told = resolve(rules).unwrap_err();
        assert!(
            told.contains("agent_uid is `4321`, whose id 4321 lies in uid_range"),
            "{told}"
        );
    }

    #[test]
    fn who_is_not_there_or_may_not_be_is_named_with_its_key() {
        let told = resolve(default(name("no-such-user"))).unwrap_err();
        assert!(
            told.starts_with("default_user is `no-such-user`, and this host has no such user"),
            "{told}"
        );
        if !geteuid().is_root() {
            let told = resolve(default(name("root"))).unwrap_err();
            assert!(told.contains("as itself only"), "{told}");
            return;
        }
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let rules = default(name("nobody"));
        let told = Identities::resolve(rules, Some(nobody.uid.as_raw())).unwrap_err();
        assert!(matches!(told, IdentityError::Agent { .. }), "{told}");
    }
}
