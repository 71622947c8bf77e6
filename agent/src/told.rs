//! What was said of a peer that cannot be reached: each cause once, however often it is tried, until it was reached.

use std::collections::BTreeSet;

/// Causes that are remembered. Beyond them all are forgotten and said once more.
const MAX_CAUSES: usize = 64;

/// The causes since the peer was reached last.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeSet<String>);

impl Told {
    /// Whether this cause is a new one.
    pub(crate) fn is_new(&mut self, cause: &str) -> bool {
        if self.0.len() >= MAX_CAUSES {
            self.0.clear();
        }
        self.0.insert(cause.to_owned())
    }

    /// The peer was reached: whatever goes wrong after that is news.
    pub(crate) fn reached(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_take_turns_are_each_said_once() {
        let mut told = Told::default();
        let said: Vec<bool> = ["a", "b", "a", "b"].map(|cause| told.is_new(cause)).into();
        assert_eq!(said, [true, true, false, false]);
        told.reached();
        assert!(told.is_new("a"));
    }

    #[test]
    fn causes_without_end_take_no_memory_without_end() {
        let mut told = Told::default();
        assert!((0..10 * MAX_CAUSES).all(|number| told.is_new(&number.to_string())));
        assert!(told.0.len() <= MAX_CAUSES);
    }
}
