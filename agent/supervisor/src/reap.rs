//! Children that have ended: attempts' main processes and, because the supervisor is a subreaper, whatever they left
//! behind. Which is which is the table's business.

use sluice_common::supervision::Exit;

use crate::sys::{self, Ending};

/// Collects every child that has ended since the last call. Never blocks; cheap when there is none.
pub fn ended_children() -> Vec<(u32, Exit)> {
    std::iter::from_fn(sys::wait_any)
        .map(|(pid, ending)| (pid, exit_of(ending)))
        .collect()
}

fn exit_of(ending: Ending) -> Exit {
    match ending {
        Ending::Code(code) => Exit::Code(code),
        Ending::Signal(signal) => Exit::Signal(signal),
    }
}
