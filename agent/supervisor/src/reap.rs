//! Children that have ended: attempts' main processes and, because the supervisor is a subreaper, whatever they left
//! behind. Which is which is the table's business.

use sluice_common::supervision::Exit;
use sluice_common::usage::Usage;

use crate::sys::{self, ChildExit};

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedChild {
    /// Which.
    pub pid: u32,
    /// How.
    pub ending: ChildExit,
    /// What it and those that it waited for have used.
    pub usage: Usage,
}

/// Most children that are collected in one turn. A step can make orphans that end at once faster than they are collected:
/// deadlines and the agent have their turn all the same.
const MAX_COLLECTED: usize = 1_024;

/// Some of those that have ended.
#[derive(Debug, Default)]
pub struct CollectedChildren {
    /// Each of them.
    pub children: Vec<EndedChild>,
    /// Whether others may wait: no signal tells of them any more.
    pub is_cut: bool,
}

/// Collects the children that have ended since the last call, up to a bound. Never blocks; cheap when there is none.
pub fn ended_children() -> CollectedChildren {
    collect(sys::wait_any)
}

fn collect(next: impl FnMut() -> Option<EndedChild>) -> CollectedChildren {
    let children: Vec<EndedChild> = std::iter::from_fn(next).take(MAX_COLLECTED).collect();
    let is_cut = children.len() == MAX_COLLECTED;
    CollectedChildren { children, is_cut }
}

impl EndedChild {
    /// How, as the agent is told.
    pub fn exit(&self) -> Exit {
        match self.ending {
            ChildExit::Code(code) => Exit::Code(code),
            ChildExit::Signal(signal) => Exit::Signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_turn_collects_no_more_than_its_bound() {
        let ended = |pid| EndedChild {
            pid,
            ending: ChildExit::Code(0),
            usage: Usage::default(),
        };
        let without_end = collect(|| Some(ended(1)));
        assert_eq!(without_end.children.len(), MAX_COLLECTED);
        assert!(without_end.is_cut);
        let mut few = [ended(1), ended(2)].into_iter();
        let collected = collect(|| few.next());
        assert_eq!((collected.children.len(), collected.is_cut), (2, false));
    }
}
