//! What a host says of itself: how it is by its own health check, in the same words from the supervisor to the agent and
//! from the agent to the coordinator, and whether its supervisor answers. A host that has not been checked says nothing of
//! its health.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What the last checks of a host say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostHealth {
    /// Nothing is wrong, as far as anybody looks.
    Fit,
    /// It is to take no more work: a clause for people, such as `/scratch is read-only`.
    Unfit(String),
}

/// Whether the supervisor of a host answers its agent. Without it nothing starts, stops or is seen to end there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorState {
    /// It answers.
    Responding,
    /// It has answered this agent and does not answer now. The sentence says why and what to do on the host.
    Unresponsive(String),
    /// It has not answered since the agent started, so the agent does not know which attempts the host has. The sentence is
    /// like that of `Away`.
    NeverSeen(String),
}

impl SupervisorState {
    /// Why it does not answer; `None` where it does.
    pub fn unresponsive_reason(&self) -> Option<&str> {
        match self {
            Self::Responding => None,
            Self::Unresponsive(why) | Self::NeverSeen(why) => Some(why),
        }
    }
}
