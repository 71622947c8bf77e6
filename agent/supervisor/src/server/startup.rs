//! State that a server starts with: a directory that it locks, or the state that the previous program in this
//! process passed on.

use std::os::unix::net::UnixListener;

use super::ServerError;
use crate::handover::Handover;
use crate::options::Options;
use crate::state_dir::StateDir;
use crate::sys;
use crate::table::InheritedState;

/// Empty, or the state of the previous program in this process.
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

/// The user that may read the output of steps, if the agent is not the supervisor's own user.
pub(super) fn reader_uid(options: &Options) -> Option<u32> {
    let own_uid = nix::unistd::geteuid().as_raw();
    options.agent_uid.filter(|uid| *uid != own_uid)
}
