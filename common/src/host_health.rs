//! How a host is by its own health check: the same words from the supervisor to the agent, and from the agent to the
//! coordinator. A host that has not been checked says nothing.

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
