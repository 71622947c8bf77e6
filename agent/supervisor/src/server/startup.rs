//! What a server begins with: a directory that it locks, or one that it has from the program that this process was before.

use std::os::unix::net::UnixListener;

use super::ServerError;
use crate::handover::Handover;
use crate::options::Options;
use crate::state_dir::StateDir;
use crate::sys;
use crate::table::InheritedState;

/// What is there at the beginning: nothing, or what an earlier program of this process left.
pub(super) struct StartState {
    pub(super) state_dir: StateDir,
    pub(super) listener: Option<UnixListener>,
    pub(super) left: InheritedState,
}

impl StartState {
    pub(super) fn of(options: &Options, handover: Option<Handover>) -> Result<Self, ServerError> {
        let Some(handover) = handover else {
            return Ok(Self {
                state_dir: StateDir::open(&options.state_dir)?,
                listener: None,
                left: InheritedState::default(),
            });
        };
        let lock = sys::adopt(handover.lock).map_err(ServerError::Inherited)?;
        let listener = sys::adopt(handover.listener).map_err(ServerError::Inherited)?;
        Ok(Self {
            state_dir: StateDir::take_over(&options.state_dir, lock)?,
            listener: Some(listener.into()),
            left: InheritedState::take(
                handover.children,
                handover.killing,
                handover.seen,
                handover.epilogs,
                handover.afters,
            )
            .map_err(ServerError::Inherited)?,
        })
    }
}

/// Whose the output of steps shall be, where the agent is not the supervisor's own user.
pub(super) fn reader_uid(options: &Options) -> Option<u32> {
    let own_uid = nix::unistd::geteuid().as_raw();
    options.agent_uid.filter(|uid| *uid != own_uid)
}
