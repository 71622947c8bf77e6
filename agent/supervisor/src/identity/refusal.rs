//! Why users that the config names cannot run steps, and why nobody runs a step.

use nix::errno::Errno;
use nix::unistd::Uid;
use sluice_common::id::{Subject, UserName};
use sluice_common::supervisor_config::UserRef;

use super::submitters::Place;
use crate::uids::range::{RangeError, Uids};

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
    /// It is root: whoever is called so anywhere would be root of this host.
    #[error(
        "{key} is root, as whom no submitter's steps run: name an ordinary user, or take it out"
    )]
    RootSubmitter {
        /// The key.
        key: String,
    },
    /// The database lacks a submitter.
    #[error(
        "as_submitter.{submitter} is `{}`, and this host has no such user, so what `{submitter}` submits is refused here: \
         make `{}` (`useradd`), name another user, or take `{submitter}` out", user.shown(), user.shown()
    )]
    NoSubmitter {
        /// Who submits.
        submitter: UserName,
        /// The user whom the host lacks.
        user: UserRef,
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
    /// One user would run the steps of several subjects, and nothing says that it may.
    #[error(
        "{keys} would run the steps of several subjects as one user, `{}`, and they could read, stop and falsify each \
         other's. {way_out}, or say `shared_users = [\"{}\"]` if they shall share it",
        user.escape_debug(), user.escape_debug()
    )]
    Shared {
        /// The keys that name it.
        keys: String,
        /// The user.
        user: String,
        /// How not to share it.
        way_out: &'static str,
    },
    /// The ids that attempts would be given are somebody's.
    #[error("uid_range")]
    Range(#[from] RangeError),
    /// The id of a named user would be given to attempts as well.
    #[error(
        "{key} is `{}`, whose id {uid} lies in uid_range, {} to {}, and would be given to other attempts: choose another \
         user or another range", user.escape_debug(), range.first, range.last
    )]
    InRange {
        /// The key.
        key: String,
        /// Its value.
        user: String,
        /// The user's id.
        uid: Uid,
        /// The range.
        range: Uids,
    },
    /// The host gives less.
    #[error(
        "limits.{name} is more than this host gives the supervisor, which is {most}: ask for less, or raise what the \
         supervisor is started with (systemd: Limit{}=)", name.to_uppercase()
    )]
    Limit {
        /// The key.
        name: String,
        /// What the host gives.
        most: u64,
    },
}

/// Nobody on this host runs a step. What it says is for a step that is to begin.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nobody {
    /// The config names no user for its subject.
    Subject {
        /// Whose step.
        subject: Subject,
        /// The config.
        file: String,
    },
    /// The config runs steps as who submitted them, and has not heard of him.
    Unlisted {
        /// Who submitted it.
        user: UserName,
        /// Where he would have to be listed.
        place: Place,
    },
    /// The config lists a user who was not there when it was read.
    Missing {
        /// Who submitted it.
        user: UserName,
        /// The user whom the host lacked.
        lacking: UserRef,
        /// Where he is listed.
        place: Place,
    },
    /// The config runs steps as who submitted them, and nobody is known to have.
    Unnamed {
        /// Where it says so.
        place: Place,
    },
}

impl Nobody {
    /// The same of a program that is to run beside or after a step that has begun: no other pool helps it.
    pub fn of_program(&self) -> String {
        let (why, way_out) = (self.why(), self.way_out());
        format!("{why}, so no program begins beside or after the step: {way_out}")
    }

    fn why(&self) -> String {
        match self {
            Nobody::Subject { subject, .. } => {
                format!("no user of this host may run steps of subject `{subject}`")
            }
            Nobody::Unlisted { user, place } => {
                format!(
                    "user `{user}` submitted the step, and as_submitter in {place} does not list `{user}`"
                )
            }
            Nobody::Missing {
                user,
                lacking,
                place,
            } => format!(
                "user `{user}` submitted the step, and as_submitter in {place} lists `{user}` as user `{}`, whom the host \
                 did not have when the supervisor read it",
                lacking.shown()
            ),
            Nobody::Unnamed { place } => format!(
                "the coordinator knows no user who submitted the step, and by as_submitter in {place} steps run as who \
                 submitted them"
            ),
        }
    }

    /// What an admin of the host can do.
    fn way_out(&self) -> String {
        match self {
            Nobody::Subject { file, .. } => format!(
                "name one under [users], or a uid_range, in {file}, and send the supervisor SIGHUP"
            ),
            Nobody::Unlisted { user, .. } => format!(
                "have an admin of the host list a user for `{user}` there and send the supervisor SIGHUP"
            ),
            Nobody::Missing { user, lacking, .. } => format!(
                "have an admin of the host make `{}` (`useradd`), or list another user for `{user}`, and send the \
                 supervisor SIGHUP",
                lacking.shown()
            ),
            Nobody::Unnamed { .. } => "have an admin of the host say `other_submitters = \"as_usual\"` there and send the \
                 supervisor SIGHUP"
                .to_owned(),
        }
    }
}

impl std::fmt::Display for Nobody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let instead = match self {
            Nobody::Subject { .. } => "",
            Nobody::Unlisted { .. } | Nobody::Missing { .. } => "take another pool, or ",
            Nobody::Unnamed { .. } => {
                "submit it with a user's certificate, an issuer's token or an API token made with `--user`, or "
            }
        };
        write!(f, "{}: {instead}{}", self.why(), self.way_out())
    }
}
