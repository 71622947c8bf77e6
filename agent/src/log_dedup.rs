//! Deduplicates log lines about an unreachable peer: each cause is logged once until the peer is reached.

use std::collections::BTreeSet;

/// Most causes that are remembered. Beyond that all are forgotten and logged again.
const MAX_CAUSES: usize = 64;

/// The causes since the peer was last reached.
#[derive(Debug, Default)]
pub(crate) struct LogDedup(BTreeSet<String>);

impl LogDedup {
    /// Whether this cause is new.
    pub(crate) fn is_new(&mut self, cause: &str) -> bool {
        if self.0.len() >= MAX_CAUSES {
            self.0.clear();
        }
        self.0.insert(cause.to_owned())
    }

    /// Forgets all causes, because the peer was reached.
    pub(crate) fn reached(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_take_turns_are_each_said_once() {
        let mut told = LogDedup::default();
        let said: Vec<bool> = ["a", "b", "a", "b"].map(|cause| told.is_new(cause)).into();
        assert_eq!(said, [true, true, false, false]);
        told.reached();
        assert!(told.is_new("a"));
    }

    #[test]
    fn causes_without_end_take_no_memory_without_end() {
        let mut told = LogDedup::default();
        assert!((0..10 * MAX_CAUSES).all(|number| told.is_new(&number.to_string())));
        assert!(told.0.len() <= MAX_CAUSES);
    }
}
