//! Why users that the config names cannot run steps.

use nix::errno::Errno;
use nix::unistd::Uid;
use sluice_common::id::UserName;
use sluice_common::supervisor_config::UserRef;
use sluice_common::uid_range::UidRange;

use super::range::HostError;

/// Why the config cannot be obeyed on this host.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
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
    Range(#[from] HostError),
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
        range: UidRange,
    },
}
