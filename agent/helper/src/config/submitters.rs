//! Parses `as_submitter`, the users whose own steps run as themselves (a list of names, or a table from names
//! at the coordinator to users of this host), and `other_submitters`, which says who runs the steps of all
//! others.

use std::collections::BTreeMap;

use serde::Deserialize;
use sluice_common::id::UserName;
use sluice_common::supervisor_config::{ConfigFileError, OtherSubmitters, SubmitterUsers, UserRef};

use super::RawUser;

const KEY: &str = "as_submitter";

/// The value as written.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected users' names, as [\"alice\"], or a table of them with users of this host"
)]
pub(super) enum RawSubmitters {
    /// Users who have the same name on this host and at the coordinator.
    Same(Vec<String>),
    /// Names at the coordinator, with the user of this host for each.
    Mapped(BTreeMap<String, RawUser>),
}

pub(super) fn check(
    written: Option<RawSubmitters>,
    others: Option<OtherSubmitters>,
) -> Result<Option<SubmitterUsers>, ConfigFileError> {
    let Some(written) = written else {
        let needless = "it has no effect without as_submitter: add that, or remove it";
        return others.map_or(Ok(None), |_| {
            Err(ConfigFileError::value("other_submitters", needless))
        });
    };
    let entries: Vec<(String, UserRef)> = match written {
        RawSubmitters::Same(names) => {
            let both = names.into_iter();
            both.map(|name| (name.clone(), UserRef::Name(name)))
                .collect()
        }
        RawSubmitters::Mapped(users) => {
            let users = users.into_iter();
            users.map(|(name, user)| (name, user.into())).collect()
        }
    };
    let mut users = BTreeMap::new();
    for (name, user) in entries {
        let wrong = |message: String| ConfigFileError::value(KEY, message);
        let name = UserName::new(name).map_err(|e| wrong(e.to_string()))?;
        if users.insert(name.clone(), user).is_some() {
            return Err(wrong(format!("`{name}` is listed twice: keep one")));
        }
    }
    let others = others.unwrap_or_default();
    Ok(Some(SubmitterUsers { users, others }))
}

/// Rejects a default user that would run no steps.
pub(super) fn check_default(
    listed: Option<&SubmitterUsers>,
    has_default: bool,
) -> Result<(), ConfigFileError> {
    match listed {
        Some(listed) if has_default && listed.others == OtherSubmitters::Refuse => {
            Err(ConfigFileError::value(
                "default_user",
                "it would run no step, because as_submitter rejects users that it does not list: set `other_submitters = \"as_usual\"` to run their steps too, or remove it",
            ))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    fn read_list(text: &str) -> Result<Option<SubmitterUsers>, String> {
        Ok(read(text)?.as_submitter)
    }

    fn users<const N: usize>(users: [(&str, UserRef); N]) -> BTreeMap<UserName, UserRef> {
        let users = users.into_iter();
        users
            .map(|(name, user)| (UserName::new(name).unwrap(), user))
            .collect()
    }

    #[test]
    fn a_list_and_a_table_are_understood() {
        let name = |name: &str| UserRef::Name(name.to_owned());
        assert_eq!(read_list(""), Ok(None));
        let list = read_list("as_submitter = [\"alice\", \"bob\"]")
            .unwrap()
            .unwrap();
        assert_eq!(
            list.users,
            users([("alice", name("alice")), ("bob", name("bob"))])
        );
        assert_eq!(list.others, OtherSubmitters::Refuse);
        let table = read_list(
            "other_submitters = \"as_usual\"\n[as_submitter]\n\"alice@example.org\" = \"alice\"\nbob = 1001\n",
        );
        let table = table.unwrap().unwrap();
        let wanted = [
            ("alice@example.org", name("alice")),
            ("bob", UserRef::Uid(1001)),
        ];
        assert_eq!(table.users, users(wanted));
        assert_eq!(table.others, OtherSubmitters::AsUsual);
        let nobody = read_list("as_submitter = []").unwrap().unwrap();
        assert!(nobody.users.is_empty());
    }

    #[test]
    fn each_mistake_is_named_with_its_way_out() {
        let long = format!("as_submitter = [\"{}\"]", "a".repeat(300));
        for (text, wanted) in [
            (
                "as_submitter = [\"a\", \"a\"]",
                "as_submitter: `a` is listed twice",
            ),
            (
                "as_submitter = [\"../a\"]",
                "as_submitter: `../a` is not a valid user name",
            ),
            ("as_submitter = [\"a\\u0000\"]", "is not a valid user name"),
            ("as_submitter = [\"\"]", "is not a valid user name"),
            (long.as_str(), "is not a valid user name"),
            (
                "as_submitter = \"alice\"",
                "expected users' names, as [\"alice\"]",
            ),
            ("as_submitter = [1000]", "expected users' names"),
            (
                "other_submitters = \"as_usual\"",
                "other_submitters: it has no effect without as_submitter",
            ),
            ("as_submitter = []\nother_submitters = \"run\"", "line 2"),
            (
                "as_submitter = [\"a\"]\ndefault_user = \"b\"",
                "default_user: it would run no step",
            ),
        ] {
            let told = read_list(text).unwrap_err();
            assert!(told.contains(wanted), "{text}: {told}");
        }
        let both = "as_submitter = [\"a\"]\ndefault_user = \"b\"\nother_submitters = \"as_usual\"";
        assert!(read_list(both).is_ok());
    }
}
