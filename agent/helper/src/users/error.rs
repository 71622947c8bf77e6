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
        "{key} is `{}`, and this host has no such user: make it (`useradd`), or name another", user.escape_debug()
    )]
    NoUser { key: String, user: String },
    /// The user database does not answer.
    #[error("cannot look up user `{}`", user.escape_debug())]
    Lookup { user: String, source: Errno },
    /// The user is root, which `allow_root` does not permit.
    #[error(
        "{key} is root: name an ordinary user, or say `allow_root = true` if steps shall run as root"
    )]
    Root { key: String },
    /// The user of a submitter is root: anyone with that name elsewhere would be root of this host.
    #[error(
        "{key} is root, as whom no submitter's steps run: name an ordinary user, or take it out"
    )]
    RootSubmitter { key: String },
    /// The user database lacks the user of a submitter.
    #[error(
        "as_submitter.{submitter} is `{}`, and this host has no such user, so what `{submitter}` submits is refused here: \
         make `{}` (`useradd`), name another user, or take `{submitter}` out", user.shown(), user.shown()
    )]
    NoSubmitter { submitter: UserName, user: UserRef },
    /// The supervisor is not root, so it cannot become another user.
    #[error(
        "{key} is `{}`, and a supervisor of user {own} can start steps as itself only: start it as root, or take the key \
         out", user.escape_debug()
    )]
    NotRoot { key: String, user: String, own: Uid },
    /// The user is the agent's. A step could then send the supervisor the agent's commands.
    #[error("{key} is `{}`, which is the agent's own user: give steps another", user.escape_debug())]
    Agent { key: String, user: String },
    /// One user would run the steps of several subjects and is not listed as shared.
    #[error(
        "{keys} would run the steps of several subjects as one user, `{}`, and they could read, stop and falsify each \
         other's. {way_out}, or say `shared_users = [\"{}\"]` if they shall share it",
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
