//! The users that run steps: those that `supervisor.toml` names, as this host's user database knows them; for
//! other subjects, a user id of the attempt's own (`uids`).
//!
//! `sluice-helper` looks them up once, at the start and at an upgrade: a user database on the network may be
//! slow, and must not delay deadlines. Its answer is checked again, so that it cannot make a step root or the
//! agent. `spawn` switches to the user.

mod error;
mod submitters;

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::resource::{getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, getegid, geteuid, getgroups};
use sluice_codec::decode;
use sluice_common::config::escape_controls;
use sluice_common::helper::FIND_USERS;
use sluice_common::id::{Subject, UserName};
use sluice_common::supervisor_config::{
    MAX_ANSWER_BYTES, StepRules, StepUser, StepUsers, UserLookup,
};
use sluice_common::uid_range::UidRange;

use crate::config;
use crate::helper_program::HelperProgram;
pub use error::{IdentityError, NoUser};
use submitters::Submitters;

/// `USER` and `LOGNAME` of an attempt with a user id of its own, which has no name in the database.
const OWN_NAME: &str = "sluice-step";

/// Shell of an attempt with a user id of its own.
const STANDARD_SHELL: &str = "/bin/sh";

/// The user and groups that a step runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: Uid,
    pub gid: Gid,
    pub groups: Vec<Gid>,
    /// `HOME` and similar variables from the user database. The step's own variables take precedence.
    pub variables: Vec<(String, String)>,
}

impl From<StepUser> for Identity {
    fn from(found: StepUser) -> Self {
        Self {
            uid: Uid::from_raw(found.uid),
            gid: Gid::from_raw(found.gid),
            groups: found.groups.into_iter().map(Gid::from_raw).collect(),
            variables: found.variables,
        }
    }
}

impl Identity {
    /// The identity of an attempt with a user id of its own, and the group with the same number. Its files
    /// are in `home`.
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
            variables: variables
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        }
    }

    /// Whether this is the supervisor's own user.
    pub fn is_own(&self) -> bool {
        self.uid == geteuid()
    }
}

/// The subject and submitter of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOwner {
    pub subject: Subject,
    /// The user who submitted the step, if this host's config requires one.
    pub submitter: Option<UserName>,
}

/// The user that the config assigns to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs<'a> {
    /// A user of this host.
    Named(&'a Identity),
    /// A user id of the attempt's own.
    Own,
}

/// The users of steps by subject, and the rules for steps.
#[derive(Clone, Debug)]
pub struct Identities {
    default: Option<Identity>,
    by_subject: BTreeMap<Subject, Identity>,
    /// `None` if the submitter does not matter.
    submitters: Option<Submitters>,
    /// The range of ids for attempts that have no configured user.
    own: Option<UidRange>,
    /// The error about the first submitter that this host lacks.
    missing: Option<String>,
    /// Warnings about a valid config.
    pub warnings: Vec<String>,
    /// Further rules for steps.
    pub rules: StepRules,
}

impl Identities {
    /// Looks up the users that `rules` name. A supervisor that is not root runs all steps as itself.
    ///
    /// # Errors
    /// If a user does not exist or may not run steps, or is shared without being listed as shared.
    pub fn resolve(rules: StepRules, agent_uid: Option<u32>) -> Result<Self, IdentityError> {
        let asked = UserLookup {
            rules,
            agent_uid,
            own: myself().map_err(|e| IdentityError::Ask(e.into()))?,
        };
        let found = ask(&asked)?.map_err(|why| IdentityError::Refused(escape_controls(&why)))?;
        if !is_sound(&found, &asked) {
            return Err(IdentityError::Answer);
        }
        asked.rules.limits.iter().try_for_each(make_room)?;
        Ok(Self::new(asked.rules, found))
    }

    /// Builds the identities from the helper's checked answer.
    fn new(rules: StepRules, found: StepUsers) -> Self {
        let listed = rules.as_submitter.as_ref().zip(found.by_submitter);
        let by_subject = found.by_subject.into_iter();
        Self {
            default: found.default.map(Identity::from),
            by_subject: by_subject.map(|(of, user)| (of, user.into())).collect(),
            submitters: listed
                .map(|(listed, users)| Submitters::new(listed, rules.shown_file(), users)),
            own: found.own_range,
            missing: found.missing,
            warnings: found
                .warnings
                .iter()
                .map(|it| escape_controls(it))
                .collect(),
            rules,
        }
    }

    /// The user that runs a step: the user of its subject, else of its submitter, else the default.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(&self, step_owner: &StepOwner) -> Result<RunAs<'_>, NoUser> {
        if let Some(found) = self.by_subject.get(&step_owner.subject) {
            return Ok(RunAs::Named(found));
        }
        if let Some(found) = self.by_submitter(step_owner)? {
            return Ok(RunAs::Named(found));
        }
        match (&self.default, self.own) {
            (Some(found), _) => Ok(RunAs::Named(found)),
            (None, Some(_)) => Ok(RunAs::Own),
            (None, None) => Err(self.nobody(&step_owner.subject)),
        }
    }

    /// The submitter, if the step runs as a user because of its submitter.
    pub fn as_submitter<'a>(&self, step_owner: &'a StepOwner) -> Option<&'a UserName> {
        let found = self.by_submitter(step_owner).ok().flatten();
        step_owner.submitter.as_ref().filter(|_| found.is_some())
    }

    /// The user that runs a step because of its submitter; a user for the subject takes precedence.
    fn by_submitter(&self, step_owner: &StepOwner) -> Result<Option<&Identity>, NoUser> {
        match &self.submitters {
            Some(submitters) if !self.by_subject.contains_key(&step_owner.subject) => {
                submitters.of(step_owner.submitter.as_ref())
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Whether the submitter of a step matters on this host.
    pub fn needs_submitter(&self) -> bool {
        self.submitters.is_some()
    }

    /// Fails if this host lacks a listed submitter. A start ignores that, and `--check-config` reports it.
    ///
    /// # Errors
    /// If a user is missing.
    pub fn check_submitters(&self) -> Result<(), IdentityError> {
        let missing = self.missing.as_deref().map(escape_controls);
        missing.map_or(Ok(()), |why| Err(IdentityError::Refused(why)))
    }

    /// Why no user runs the steps of a subject.
    pub fn nobody(&self, subject: &Subject) -> NoUser {
        NoUser::Subject {
            subject: subject.clone(),
            file: self.rules.shown_file(),
        }
    }

    /// Range of the user ids for attempts.
    pub fn own_range(&self) -> Option<UidRange> {
        self.own
    }
}

fn ask(asked: &UserLookup) -> Result<Result<StepUsers, String>, IdentityError> {
    let answer = HelperProgram::ask_about(FIND_USERS, asked).map_err(IdentityError::Ask)?;
    decode(&answer, MAX_ANSWER_BYTES).map_err(|_| IdentityError::Answer)
}

fn myself() -> nix::Result<StepUser> {
    let groups = getgroups()?.into_iter();
    Ok(StepUser {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: groups.map(|group| group.as_raw()).collect(),
        variables: Vec::new(),
    })
}

/// Whether an answer respects the rules: no step becomes root, the agent, or a user of other attempts.
fn is_sound(found: &StepUsers, asked: &UserLookup) -> bool {
    let (rules, own) = (&asked.rules, asked.own.uid);
    let listed = rules.as_submitter.as_ref().map(|listed| &listed.users);
    let submitters = found.by_submitter.iter().flatten();
    let submitters: Vec<_> = submitters
        .filter_map(|(of, user)| Some((of, user.as_ref()?)))
        .collect();
    let others = found.default.iter().chain(found.by_subject.values());
    let mut all = others.chain(submitters.iter().map(|(_, user)| *user));
    let may_be = |user: &StepUser| {
        let uid = user.uid;
        let is_other_s = found.own_range.is_some_and(|range| range.contains(uid));
        (own == 0 || uid == own)
            && (uid != 0 || rules.allow_root)
            && (asked.agent_uid != Some(uid) || uid == own)
            && !is_other_s
    };
    let is_listed = |of: &UserName| listed.is_some_and(|users| users.contains_key(of));
    let range = rules.uid_range.uids().ok().flatten();
    let agent_s = |range: UidRange| asked.agent_uid.is_some_and(|uid| range.contains(uid));
    all.all(may_be)
        && submitters
            .iter()
            .all(|(of, user)| user.uid != 0 && is_listed(of))
        && found
            .by_subject
            .keys()
            .all(|of| rules.users.contains_key(of))
        && found.by_submitter.is_some() == listed.is_some()
        && (found.own_range.is_none() || found.own_range == range)
        && !found.own_range.is_some_and(agent_s)
}

/// Raises this process's own limits as far as allowed, so that its children can have them.
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
    use sluice_common::supervisor_config::{SubmitterUsers, UserRef};
    use sluice_fuzz::Fuzz;

    fn subject(name: &str) -> Subject {
        Subject::new(name).unwrap()
    }

    fn of(name: &str) -> StepOwner {
        let subject = subject(name);
        StepOwner {
            subject,
            submitter: None,
        }
    }

    fn user(uid: u32) -> StepUser {
        StepUser {
            uid,
            ..StepUser::default()
        }
    }

    fn uid_of(found: Result<RunAs<'_>, NoUser>) -> Option<u32> {
        match found {
            Ok(RunAs::Named(identity)) => Some(identity.uid.as_raw()),
            Ok(RunAs::Own) | Err(_) => None,
        }
    }

    #[test]
    fn a_subject_s_own_user_goes_before_the_default_and_without_either_an_attempt_has_an_id() {
        let found = StepUsers {
            default: Some(user(7)),
            by_subject: [(subject("d"), user(8))].into(),
            ..StepUsers::default()
        };
        let found = Identities::new(StepRules::default(), found);
        assert_eq!(uid_of(found.of(&of("s"))), Some(7));
        assert_eq!(uid_of(found.of(&of("d"))), Some(8));
        let own = StepUsers {
            own_range: Some(UidRange::DEFAULT),
            ..StepUsers::default()
        };
        let found = Identities::new(StepRules::default(), own);
        assert_eq!(found.of(&of("s")), Ok(RunAs::Own));
        assert_eq!(found.own_range(), Some(UidRange::DEFAULT));
        let found = Identities::new(StepRules::default(), StepUsers::default());
        let told = found.of(&of("s")).unwrap_err().to_string();
        assert!(
            told.contains("subject `s`") && told.contains("--config"),
            "{told}"
        );
    }

    #[test]
    fn who_runs_what_a_submitter_whom_the_host_lacks_has_submitted_is_told() {
        let name = |name: &str| UserName::new(name).unwrap();
        let user_ref = |name: &str| UserRef::Name(name.to_owned());
        let rules = StepRules {
            as_submitter: Some(SubmitterUsers {
                users: [
                    (name("alice"), user_ref("no-such-user")),
                    (name("bob"), user_ref("games")),
                ]
                .into(),
                ..SubmitterUsers::default()
            }),
            ..StepRules::default()
        };
        let found = StepUsers {
            by_submitter: Some([(name("alice"), None), (name("bob"), Some(user(5)))].into()),
            missing: Some("no `no-such-user`".to_owned()),
            ..StepUsers::default()
        };
        let found = Identities::new(rules, found);
        let told = found.check_submitters().unwrap_err().to_string();
        assert_eq!(told, "no `no-such-user`");
        let by = |user: &str| StepOwner {
            submitter: Some(name(user)),
            ..of("s")
        };
        assert_eq!(uid_of(found.of(&by("bob"))), Some(5));
        let missing = found.of(&by("alice")).unwrap_err();
        assert!(matches!(missing, NoUser::Missing { .. }), "{missing}");
        for (told, has_pool) in [(missing.to_string(), true), (missing.of_program(), false)] {
            assert!(
                told.contains("lists `alice` as user `no-such-user`"),
                "{told}"
            );
            assert_eq!(told.contains("another pool"), has_pool, "{told}");
        }
        assert!(matches!(
            found.of(&by("carol")),
            Err(NoUser::Unlisted { .. })
        ));
        assert!(matches!(found.of(&of("s")), Err(NoUser::Unnamed { .. })));
    }

    fn asked_by(uid: u32) -> UserLookup {
        UserLookup {
            rules: StepRules::default(),
            agent_uid: Some(4321),
            own: user(uid),
        }
    }

    /// Fuzz test: an answer is parsed and checked, or rejected.
    #[test]
    fn answers_of_the_helper() {
        // `serde` reserves memory for a claimed list length, up to 1 MiB at a time.
        let target = Fuzz::new("users-answer").memory(4 << 20, 256);
        target.run(|input| {
            let found = decode::<Result<StepUsers, String>>(input, MAX_ANSWER_BYTES);
            if let Ok(Ok(found)) = &found
                && is_sound(found, &asked_by(0))
            {
                let default = found.default.as_ref();
                assert!(default.is_none_or(|user| ![0, 4321].contains(&user.uid)));
            }
        });
    }

    #[test]
    fn nobody_is_root_or_the_agent_or_another_s_user_by_the_helper_s_word() {
        let alice = || UserName::new("alice").unwrap();
        let subject = || subject("prod");
        let named = || UserRef::Name("u".to_owned());
        let asked = |own| UserLookup {
            rules: StepRules {
                users: [(subject(), named())].into(),
                as_submitter: Some(SubmitterUsers {
                    users: [(alice(), named())].into(),
                    ..SubmitterUsers::default()
                }),
                ..StepRules::default()
            },
            ..asked_by(own)
        };
        let found = |of_subject, of_submitter| StepUsers {
            by_subject: [(subject(), user(of_subject))].into(),
            by_submitter: Some([(alice(), Some(user(of_submitter)))].into()),
            own_range: Some(UidRange::DEFAULT),
            ..StepUsers::default()
        };
        let first = UidRange::DEFAULT.first;
        assert!(is_sound(&found(1000, 1001), &asked(0)));
        for (of_subject, of_submitter) in [
            (0, 1001),
            (1000, 0),
            (4321, 1001),
            (1000, 4321),
            (first, 1001),
            (1000, first),
        ] {
            let found = found(of_subject, of_submitter);
            assert!(!is_sound(&found, &asked(0)), "{of_subject} {of_submitter}");
        }
        assert!(!is_sound(&found(1000, 1000), &asked(1002)), "nobody else");
        let mut root = asked(0);
        root.rules.allow_root = true;
        assert!(is_sound(&found(0, 1001), &root));
        assert!(!is_sound(&found(1000, 0), &root), "no submitter ever");
        let changed = |change: fn(&mut StepUsers)| {
            let mut found = found(1000, 1001);
            change(&mut found);
            is_sound(&found, &asked(0))
        };
        assert!(!changed(|it| it.by_submitter = None));
        let other = |it: &mut StepUsers| {
            let range = UidRange::new(2_000_000_000, 2_000_065_535);
            it.own_range = range.ok();
        };
        assert!(!changed(other));
        assert!(!changed(|it| {
            it.by_subject
                .insert(super::tests::subject("other"), StepUser::default());
        }));
    }
}
