//! Errors about configured users, and why no user runs a step.

use std::io;

use sluice_common::id::{Subject, UserName};
use sluice_common::supervisor_config::UserRef;

use super::submitters::ConfigLocation;

/// Why the config cannot be applied on this host.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A named user does not exist, or may not run steps. The text has whole sentences.
    #[error("{0}")]
    Refused(String),
    /// The helper cannot be started.
    #[error("cannot look up the users of steps")]
    Ask(#[source] io::Error),
    /// The helper's answer cannot be parsed or fails the checks.
    #[error(
        "the users of steps cannot be looked up: sluice-helper gave an answer that cannot be read: install it and sluice-supervisor from one release"
    )]
    Answer,
    /// The supervisor's own limit is lower.
    #[error(
        "limits.{name} is more than the supervisor's own limit, which is {most}: lower it, or raise the limit that the supervisor is started with (systemd: Limit{}=)", name.to_uppercase()
    )]
    Limit { name: String, most: u64 },
}

/// No user on this host runs a step. The text is for a step that is to start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUser {
    /// The config names no user for the subject.
    Subject { subject: Subject, file: String },
    /// The config runs steps as their submitters and does not list this one.
    Unlisted {
        user: UserName,
        /// Config file that contains the list.
        place: ConfigLocation,
    },
    /// The config lists a user that did not exist when it was read.
    Missing {
        user: UserName,
        /// The user that did not exist.
        lacking: UserRef,
        /// Config file that contains the list.
        place: ConfigLocation,
    },
    /// The config runs steps as their submitters, and the submitter is unknown.
    Unnamed { place: ConfigLocation },
}

impl NoUser {
    /// The same for a program that runs beside or after a step; another pool does not help it.
    pub fn of_program(&self) -> String {
        let (why, way_out) = (self.why(), self.way_out());
        format!("{why}, so no program begins beside or after the step: {way_out}")
    }

    fn why(&self) -> String {
        match self {
            NoUser::Subject { subject, .. } => {
                format!("no user of this host may run steps of subject `{subject}`")
            }
            NoUser::Unlisted { user, place } => {
                format!(
                    "user `{user}` submitted the step, and as_submitter in {place} does not list `{user}`"
                )
            }
            NoUser::Missing {
                user,
                lacking,
                place,
            } => format!(
                "user `{user}` submitted the step, and as_submitter in {place} lists `{user}` as user `{}`, whom the host \
                 did not have when the supervisor read it",
                lacking.shown()
            ),
            NoUser::Unnamed { place } => format!(
                "the coordinator knows no user who submitted the step, and as_submitter in {place} runs each step as the user who submitted it"
            ),
        }
    }

    /// Advice for an admin of the host.
    fn way_out(&self) -> String {
        match self {
            NoUser::Subject { file, .. } => format!(
                "name one under [users], or a uid_range, in {file}, and send the supervisor SIGHUP"
            ),
            NoUser::Unlisted { user, .. } => format!(
                "have an admin of the host list a user for `{user}` there and send the supervisor SIGHUP"
            ),
            NoUser::Missing { user, lacking, .. } => format!(
                "have an admin of the host create `{}` (`useradd`), or list another user for `{user}`, and send the \
                 supervisor SIGHUP",
                lacking.shown()
            ),
            NoUser::Unnamed { .. } => "have an admin of the host set `other_submitters = \"as_usual\"` there and send the \
                 supervisor SIGHUP"
                .to_owned(),
        }
    }
}

impl std::fmt::Display for NoUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let instead = match self {
            NoUser::Subject { .. } => "",
            NoUser::Unlisted { .. } | NoUser::Missing { .. } => "use another pool, or ",
            NoUser::Unnamed { .. } => {
                "submit it with a user's certificate, an issuer's token or an API token made with `--user`, or "
            }
        };
        write!(f, "{}: {instead}{}", self.why(), self.way_out())
    }
}
