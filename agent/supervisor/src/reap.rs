//! Collects children that have ended: attempts' main processes and, because the supervisor is a subreaper,
//! orphans of attempts. The table tells them apart.

use sluice_common::supervision::Exit;
use sluice_common::usage::Usage;

use crate::sys::{self, ChildExit};

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedChild {
    pub pid: u32,
    pub ending: ChildExit,
    /// Resource usage of the child and of the children that it reaped.
    pub usage: Usage,
}

/// Most children collected in one turn. A step can create short-lived orphans faster than they are collected,
/// which must not delay deadlines and the agent.
const MAX_COLLECTED: usize = 1_024;

/// The children collected in one turn.
#[derive(Debug, Default)]
pub struct CollectedChildren {
    pub children: Vec<EndedChild>,
    /// Whether more may wait, about which no further signal arrives.
    pub is_cut: bool,
}

/// Collects the children that have ended since the last call, up to a bound, without blocking.
pub fn ended_children() -> CollectedChildren {
    collect(sys::wait_any)
}

fn collect(next: impl FnMut() -> Option<EndedChild>) -> CollectedChildren {
    let children: Vec<EndedChild> = std::iter::from_fn(next).take(MAX_COLLECTED).collect();
    let is_cut = children.len() == MAX_COLLECTED;
    CollectedChildren { children, is_cut }
}

impl EndedChild {
    /// The exit for the agent.
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
