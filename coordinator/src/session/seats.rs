//! How many links one node may have at once, from the handshake to the end. A certificate lets its host dial as often as it
//! likes, and each link costs memory before it has said a word: without a bound one host takes every place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_common::id::NodeName;

/// Links of one node at once: the one that counts, one that has not ended yet, and those of copies of the host that dial
/// and are refused.
pub(super) const MAX_LINKS_PER_NODE: usize = 8;

/// The links of every node that has one. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Arc<Mutex<BTreeMap<NodeName, usize>>>);

/// A link's place, as long as it lives.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    node: NodeName,
}

impl Seats {
    /// A place for one more link of a node; `None` if it has all that it may.
    pub(super) fn take(&self, node: &NodeName) -> Option<Seat> {
        let mut taken = self.lock();
        let links = taken.entry(node.clone()).or_default();
        if *links >= MAX_LINKS_PER_NODE {
            return None;
        }
        *links += 1;
        Some(Seat {
            seats: self.clone(),
            node: node.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Entry::Occupied(mut links) = taken.entry(self.node.clone()) {
            *links.get_mut() -= 1;
            if *links.get() == 0 {
                links.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_link_has_ended_and_nothing_is_kept_of_who_is_gone() {
        let seats = Seats::default();
        let node = |name: &str| NodeName::new(name).unwrap();
        let mut taken: Vec<Seat> = (0..MAX_LINKS_PER_NODE)
            .map(|_| seats.take(&node("n")).unwrap())
            .collect();
        assert!(seats.take(&node("n")).is_none());
        assert!(seats.take(&node("m")).is_some());
        taken.pop();
        let again = seats.take(&node("n"));
        assert!(again.is_some());
        assert!(seats.take(&node("n")).is_none());
        drop((taken, again));
        assert!(seats.lock().is_empty());
    }
}
