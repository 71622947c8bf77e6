//! Children that have ended: attempts' main processes and, because the supervisor is a subreaper, whatever they left
//! behind. Which is which is the table's business.

use sluice_common::supervision::Exit;
use sluice_common::usage::Usage;

use crate::sys::{self, Ending};

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedChild {
    /// Which.
    pub pid: u32,
    /// How.
    pub ending: Ending,
    /// What it and those that it waited for have used.
    pub usage: Usage,
}

/// Collects every child that has ended since the last call. Never blocks; cheap when there is none.
pub fn ended_children() -> Vec<EndedChild> {
    std::iter::from_fn(sys::wait_any).collect()
}

impl EndedChild {
    /// How, as the agent is told.
    pub fn exit(&self) -> Exit {
        match self.ending {
            Ending::Code(code) => Exit::Code(code),
            Ending::Signal(signal) => Exit::Signal(signal),
        }
    }
}
