//! Why users named in the config cannot run steps.

use nix::errno::Errno;
use nix::unistd::Uid;
use sluice_common::id::UserName;
use sluice_common::supervisor_config::UserRef;
use sluice_common::uid_range::UidRange;

use super::range::RangeUnavailable;

/// Why the config cannot be applied on this host.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    /// The user database has no such user.
    #[error(
        "{key} is `{}`, and this host has no such user: create it (`useradd`), or name another", user.escape_debug()
    )]
    NoUser { key: String, user: String },
    /// The user database does not answer.
    #[error("cannot look up user `{}`", user.escape_debug())]
    Lookup { user: String, source: Errno },
    /// The user is root, which `allow_root` does not permit.
    #[error(
        "{key} is root: name an ordinary user, or set `allow_root = true` to let steps run as root"
    )]
    Root { key: String },
    /// The user of a submitter is root: anyone with that name elsewhere would be root of this host.
    #[error(
        "{key} is root, and steps of submitters never run as root: name an ordinary user, or remove the key"
    )]
    RootSubmitter { key: String },
    /// The user database lacks the user of a submitter.
    #[error(
        "as_submitter.{submitter} is `{}`, and this host has no such user, so it rejects the steps of `{submitter}`: create `{}` (`useradd`), name another user, or remove `{submitter}`", user.shown(), user.shown()
    )]
    NoSubmitter { submitter: UserName, user: UserRef },
    /// The supervisor is not root, so it cannot become another user.
    #[error(
        "{key} is `{}`, and a supervisor of user {own} can start steps as itself only: start it as root, or remove the key", user.escape_debug()
    )]
    NotRoot { key: String, user: String, own: Uid },
    /// The user is the agent's. A step could then send the supervisor the agent's commands.
    #[error("{key} is `{}`, which is the agent's own user: name another user for steps", user.escape_debug())]
    Agent { key: String, user: String },
    /// One user would run the steps of several subjects and is not listed as shared.
    #[error(
        "{keys} would run the steps of several subjects as one user, `{}`, and they could read, stop and change each other's. {way_out}, or set `shared_users = [\"{}\"]` to let them share it",
        user.escape_debug(), user.escape_debug()
    )]
    Shared {
        keys: String,
        user: String,
        way_out: &'static str,
    },
    /// An id for attempts is taken.
    #[error("uid_range")]
    Range(#[from] RangeUnavailable),
    /// The id of a named user lies in the range for attempts.
    #[error(
        "{key} is `{}`, whose id {uid} lies in uid_range, {} to {}, and would be given to other attempts: choose another \
         user or another range", user.escape_debug(), range.first, range.last
    )]
    InRange {
        key: String,
        user: String,
        uid: Uid,
        range: UidRange,
    },
}
